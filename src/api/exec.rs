//! Commands of a session and their output.

use super::auth::Scope;
use super::extract::{Named, QueryOf};
use super::{body, objects, sessions};
use crate::app::App;
use crate::failure::{Code, Failure, Tried};
use crate::sessions::output::{Batch, Follower};
use crate::sessions::service::{self, NewCommand, failure};
use crate::store::CommandRow;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use hangar_runtime::ids::{CommandId, SessionId};
use hangar_runtime::record::Frame;
use hangar_runtime::wire::warden::{CommandEnd, OutputLimit};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most output that is kept of one command.
const OUTPUT_BYTES_MAX: u64 = 4 << 30;
/// The stream of the frame that ends the output.
const END_STREAM: u32 = 3;

#[derive(Debug, Deserialize)]
struct Asked {
    command: Command,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    output: Output,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Command {
    Arguments(Vec<String>),
    Shell(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Output {
    head_bytes_max: Option<u64>,
    tail_bytes_max: Option<u64>,
}

fn parse(asked: Asked) -> NewCommand {
    let program = match asked.command {
        Command::Arguments(arguments) => arguments,
        Command::Shell(text) => vec!["/bin/sh".to_owned(), "-c".to_owned(), text],
    };
    let default = OutputLimit::default();
    let bounded =
        |wanted: Option<u64>, default: u64| wanted.unwrap_or(default).min(OUTPUT_BYTES_MAX);
    NewCommand {
        program,
        variables: asked.env,
        directory: asked.cwd,
        timeout_ms: asked.timeout_ms,
        output: OutputLimit {
            head_bytes_max: bounded(asked.output.head_bytes_max, default.head_bytes_max),
            tail_bytes_max: bounded(asked.output.tail_bytes_max, default.tail_bytes_max),
        },
    }
}

pub(super) async fn start(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
    body: Body,
) -> Result<Json<Value>, Failure> {
    let session = sessions::find(&app, &scope, &id).await?;
    let asked: Asked = body::json(&app, body).await?;
    let number = service::exec(&app, &session, parse(asked)).await?;
    Ok(Json(serde_json::json!({
        "id": number, "object": "hangar.command", "session": id, "status": "running",
    })))
}

type Place = (SessionId, CommandId);

/// The command and how it ended, as far as anybody knows.
async fn find(
    app: &App,
    scope: &str,
    place: &Place,
) -> Result<(CommandRow, Option<CommandEnd>), Failure> {
    sessions::find(app, scope, &place.0).await?;
    let row = app.store.command(&place.0, place.1).await.tried("reading the command")?;
    let none = || Failure::new(Code::CommandNotFound, "there is no such command");
    let row = row.ok_or_else(none)?;
    let live = app.isolations.command(&place.0, place.1).and_then(|command| command.end());
    let end = row.ending.or(live);
    Ok((row, end))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(place): Named<Place>,
) -> Result<Json<Value>, Failure> {
    let (row, end) = find(&app, &scope, &place).await?;
    Ok(Json(objects::command(&row, end)))
}

pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(place): Named<Place>,
) -> Result<Json<Value>, Failure> {
    let (row, end) = find(&app, &scope, &place).await?;
    if end.is_none() {
        service::cancel(&app, &place.0, place.1).await?;
    }
    Ok(Json(objects::command(&row, end)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputQuery {
    from: u64,
}

/// The output as frames, from the frame with this number on, until the command ended.
pub(super) async fn output(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(place): Named<Place>,
    QueryOf(query): QueryOf<OutputQuery>,
) -> Result<Response, Failure> {
    let (row, end) = find(&app, &scope, &place).await?;
    let what = "reading the output";
    let command = app.isolations.attached(&place.0, place.1, end).await;
    let command = command.map_err(|error| failure(what, &error))?;
    let follower = command.follow().ok_or_else(|| Failure::internal(what, "no record"))?;
    let state = Some((follower, row, query.from));
    let stream = futures_util::stream::unfold(state, |state| async {
        let (mut follower, row, from) = state?;
        match next(&mut follower, &row, from).await {
            Ok((bytes, Rest::More)) => Some((Ok(bytes), Some((follower, row, from)))),
            Ok((bytes, Rest::Nothing)) => Some((Ok(bytes), None)),
            Err(error) => {
                tracing::error!("the output of {} was cut off: {error}", row.session);
                Some((Err(std::io::Error::other("the output cannot be read")), None))
            }
        }
    });
    let headers = [
        ("content-type", "application/vnd.hangar.frames"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}

enum Rest {
    More,
    Nothing,
}

async fn next(
    follower: &mut Follower,
    row: &CommandRow,
    from: u64,
) -> Result<(Bytes, Rest), hangar_runtime::record::RecordError> {
    match follower.next().await? {
        Batch::Frames(frames) => Ok((encode(&frames, from), Rest::More)),
        Batch::End { end, lost } => {
            let mut object = objects::command(row, Some(end));
            object["lost"] = serde_json::json!(lost);
            if row.ended_ms.is_none() {
                // The row was read while the command ran.
                object["ended_at_ms"] = serde_json::json!(crate::app::now_ms());
            }
            let json = object.to_string();
            let mut bytes = BytesMut::with_capacity(16 + json.len());
            put_frame(&mut bytes, END_STREAM, u64::MAX, json.as_bytes());
            Ok((bytes.freeze(), Rest::Nothing))
        }
    }
}

fn encode(frames: &[Frame], from: u64) -> Bytes {
    let wanted = || frames.iter().filter(|frame| frame.sequence >= from);
    let length = wanted().map(|frame| 16 + frame.bytes.len()).sum();
    let mut bytes = BytesMut::with_capacity(length);
    for frame in wanted() {
        put_frame(&mut bytes, frame.stream as u32, frame.sequence, &frame.bytes);
    }
    bytes.freeze()
}

fn put_frame(into: &mut BytesMut, stream: u32, sequence: u64, bytes: &[u8]) {
    into.put_u32_le(stream);
    into.put_u32_le(u32::try_from(bytes.len()).expect("a frame is short"));
    into.put_u64_le(sequence);
    into.put_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use hangar_runtime::record::Stream;

    #[test]
    fn frames_begin_where_the_client_asks() {
        let frame = |sequence, bytes: &[u8]| Frame {
            stream: Stream::Stderr,
            sequence,
            lost_before: 0,
            bytes: bytes.to_vec(),
        };
        let all = [frame(0, b"a"), frame(1, b"bc")];
        let bytes = encode(&all, 1);
        let header = [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes[..], [&header[..], b"bc"].concat());
        assert_eq!(encode(&all, 0).len(), 35);
    }

    #[test]
    fn a_text_is_run_by_the_shell_and_a_list_is_run_as_it_is() {
        let parsed = |text| parse(serde_json::from_str(text).unwrap()).program;
        assert_eq!(parsed(r#"{"command": "a | b"}"#), ["/bin/sh", "-c", "a | b"]);
        assert_eq!(parsed(r#"{"command": ["a", "|"]}"#), ["a", "|"]);
        assert!(serde_json::from_str::<Asked>("{}").is_err());
    }
}
