//! The objects of the protocol, from what is stored.

use crate::environments::spec::{Manager, Spec};
use crate::store::{
    CommandRow, Declared, EnvironmentRow, ResponseRow, SessionRow, VersionRow, VersionStatus,
};
use hangar_runtime::plan::ENVIRONMENTS_DIR;
use hangar_runtime::wire::warden::{CommandEnd, EndCause, ExitStatus};
use serde_json::{Value, json};

/// An environment with its versions, the newest first.
pub(super) fn environment(
    row: &EnvironmentRow,
    versions: &[VersionRow],
    source: (u64, u64),
) -> Value {
    let active = row.active.and_then(|number| versions.iter().find(|v| v.number == number));
    json!({
        "id": row.id,
        "object": "environment",
        "name": row.name,
        "slug": row.slug,
        "description": row.description,
        "entry": row.entry,
        "status": status(row, versions),
        "mount": format!("{ENVIRONMENTS_DIR}/{}", row.slug),
        "version": row.active,
        "latestVersion": versions.first().map(|version| version.number),
        "files": { "count": source.0, "bytes": source.1 },
        "packages": active.map(|version| version.packages.clone()).unwrap_or_default(),
        "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "build": versions.first().map(latest),
        "declared": declared(&row.declared),
        "runtime": { "python": row.python.as_deref().unwrap_or_default() },
        "imported": row.imported,
        "createdAt": row.created_ms,
        "updatedAt": row.updated_ms,
    })
}

/// `building` while any build runs; `failed` only when nothing is active.
fn status(row: &EnvironmentRow, versions: &[VersionRow]) -> &'static str {
    if versions.iter().any(|version| version.status == VersionStatus::Building) {
        "building"
    } else if row.active.is_some() {
        "ready"
    } else if versions.is_empty() {
        "empty"
    } else {
        "failed"
    }
}

/// The latest build, with the step a running one is in.
fn latest(row: &VersionRow) -> Value {
    let mut object = version(row);
    object["stage"] = json!(stage(row));
    object
}

/// The step a running build is in; nothing once it ended.
fn stage(row: &VersionRow) -> &str {
    match row.status {
        VersionStatus::Building => &row.stage,
        _ => "",
    }
}

fn declared(declared: &Declared) -> Value {
    let list = |manager: Manager, specs: &[String]| -> Vec<Value> {
        let shown = |text: &String| {
            let Spec { name, version } = Spec::parse(manager, text).unwrap_or_default();
            json!({ "spec": text, "name": name, "version": version })
        };
        specs.iter().map(shown).collect()
    };
    json!({
        "pip": list(Manager::Pip, &declared.pip),
        "npm": list(Manager::Npm, &declared.npm),
        "apt": list(Manager::Apt, &declared.apt),
    })
}

/// A version in a list.
pub(super) fn version(row: &VersionRow) -> Value {
    json!({
        "version": row.number,
        "status": row.status.as_str(),
        "started_at": row.started_s,
        "finished_at": row.finished_s,
        "error": row.error,
        "files": row.files,
        "bytes": row.bytes,
        "packages": row.packages.len(),
        "source_digest": row.source_digest,
        "root_digest": row.root_digest,
        "toolchain": row.toolchain,
    })
}

/// The record of a build, with its log so far.
pub(super) fn build(row: &VersionRow, log: &str) -> Value {
    json!({
        "id": row.environment,
        "object": "environment.build",
        "version": row.number,
        "status": row.status.as_str(),
        "started_at": row.started_s,
        "finished_at": row.finished_s,
        "error": row.error,
        "stage": stage(row),
        "log": log,
        "packages": row.packages,
        "files": row.files,
        "bytes": row.bytes,
        "source_digest": row.source_digest,
        "root_digest": row.root_digest,
        "toolchain": row.toolchain,
    })
}

/// A session. What it does not have is left out: the protocol knows no null there.
pub(super) fn session(row: &SessionRow, running: bool) -> Value {
    let mut object = json!({
        "id": row.id,
        "object": "session",
        "status": if running { "running" } else { "stopped" },
        "network": row.network,
        "limits": row.limits,
        "container_id": container_id(row),
        "created_at": row.created_ms / 1000,
        "updated_at": row.updated_ms / 1000,
    });
    if let Some(harness) = &row.harness {
        object["harness_id"] = json!(harness);
        object["title"] = json!(row.title);
    }
    if let Some((id, version, slug)) = &row.environment {
        object["environment"] = json!(id);
        object["environment_version"] = json!(version);
        object["mount"] = json!(format!("{ENVIRONMENTS_DIR}/{slug}"));
    }
    object
}

/// A session as the protocol has it: its status is that of its last task, where there was one.
pub(super) fn session_of_tasks(row: &SessionRow, running: bool) -> Value {
    let mut object = session(row, running);
    object["isolation"] = object["status"].clone();
    if let Some(status) = &row.last_status {
        object["status"] = json!(status);
    }
    object
}

/// A task in the history of its session.
pub(super) fn turn(row: &ResponseRow) -> Value {
    let response = row.current();
    let items = response["output"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_kind = |kind: &str| items.iter().filter(|item| item["type"] == kind).collect::<Vec<_>>();
    let message = of_kind("message").first().map(|message| message["content"][0]["text"].clone());
    let results = of_kind("function_call_output");
    let tools: Vec<_> = of_kind("function_call")
        .into_iter()
        .map(|call| {
            let result = results.iter().find(|result| result["call_id"] == call["call_id"]);
            json!({
                "call_id": call["call_id"], "name": call["name"], "arguments": call["arguments"],
                "output": result.map(|result| &result["output"]), "status": call["status"],
            })
        })
        .collect();
    let metadata = &response["metadata"];
    json!({
        "id": row.id,
        "object": "session.turn",
        "turn": row.turn,
        "status": row.status,
        "user": row.request["text"],
        "assistant": message.unwrap_or_default(),
        "tools": tools,
        "files": row.outcome.files,
        "deleted_files": row.outcome.deleted,
        "model": response["model"],
        "error": response["error"],
        "environment": metadata["environment"],
        "environment_version": metadata["environment_version"],
        "created_at": row.created_ms / 1000,
    })
}

/// The file namespace of a session.
pub fn container_id(row: &SessionRow) -> String {
    format!("cntr_{}", row.id.as_str().trim_start_matches("hsess"))
}

/// A command, with the end that is known.
pub(super) fn command(row: &CommandRow, end: Option<CommandEnd>) -> Value {
    let mut object = json!({
        "id": row.number,
        "object": "hangar.command",
        "session": row.session,
        "command": row.program,
        "status": if end.is_some() { "ended" } else { "running" },
        "started_at_ms": row.started_ms,
        "ended_at_ms": row.ended_ms,
    });
    if let Some(end) = end {
        let (field, value) = match end.status {
            ExitStatus::Code(code) => ("exit_code", i32::from(code)),
            ExitStatus::Signal(signal) => ("signal", signal),
            ExitStatus::NotExecuted(errno) => ("not_executed", errno),
        };
        object[field] = json!(value);
        object["cause"] = json!(cause(end.cause));
        object["pids_limit_hit"] = json!(end.pids_limit_hit);
    }
    object
}

fn cause(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Own => "own",
        EndCause::Cancelled => "cancelled",
        EndCause::Timeout => "timeout",
        EndCause::OutOfMemory => "out_of_memory",
        EndCause::SessionEnded => "session_ended",
    }
}
