//! The response object: as a task begins, while it runs, and as it ended.

use super::budgets::Spent;
use super::harness::Work;
use super::request::TaskRequest;
use crate::store::SessionRow;
use serde_json::{Map, Value, json};

/// The ids of the items of one response; they follow from its own.
#[derive(Debug, Clone, Copy)]
pub struct Items<'a> {
    digits: &'a str,
}

impl<'a> Items<'a> {
    /// Those of this response.
    #[must_use]
    pub fn of(response: &'a str) -> Self {
        Self { digits: response.trim_start_matches("resp_") }
    }

    /// The tool call.
    #[must_use]
    pub fn call(&self, work: &Work) -> Value {
        json!({
            "id": format!("fc_{}", self.digits),
            "type": "function_call",
            "call_id": format!("call_{}", self.digits),
            "name": work.tool,
            "arguments": work.arguments.to_string(),
            "status": "completed",
        })
    }

    /// What came of it.
    #[must_use]
    pub fn result(&self, output: &str, status: &str) -> Value {
        json!({
            "id": format!("fco_{}", self.digits),
            "type": "function_call_output",
            "call_id": format!("call_{}", self.digits),
            "output": output,
            "status": status,
        })
    }

    /// The id of the message.
    #[must_use]
    pub fn message_id(&self) -> String {
        format!("msg_{}", self.digits)
    }

    /// The message before it has a part.
    #[must_use]
    pub fn message_shell(&self) -> Value {
        json!({
            "id": self.message_id(), "type": "message", "role": "assistant",
            "status": "in_progress", "content": [],
        })
    }

    /// The message with its text and the files it cites.
    #[must_use]
    pub fn message(&self, text: &str, annotations: &[Value], status: &str) -> Value {
        json!({
            "id": self.message_id(), "type": "message", "role": "assistant", "status": status,
            "content": [{ "type": "output_text", "text": text, "annotations": annotations }],
        })
    }
}

/// The three items of a response whose work had begun.
#[must_use]
pub fn items(response: &Value) -> Option<[&Value; 3]> {
    match response["output"].as_array()?.as_slice() {
        [call, result, message] => Some([call, result, message]),
        _ => None,
    }
}

/// Which model ran, and why another one than was asked for.
fn name_model(model: &str, request: &TaskRequest, metadata: &mut Map<String, Value>) {
    let Some(asked) = request.model.as_deref().filter(|asked| *asked != model) else { return };
    let why = "the shell base runs the text as a script; no model takes part";
    metadata.insert("requested_model".to_owned(), json!(asked));
    metadata.insert("model_fallback".to_owned(), json!(true));
    metadata.insert("model_fallback_reason".to_owned(), json!(why));
}

/// Fields of the metadata that only the server writes.
const OWN: &[&str] = &[
    "session_id",
    "harness_id",
    "environment",
    "environment_version",
    "ignored_fields",
    "requested_model",
    "model_fallback",
    "model_fallback_reason",
    "exit_code",
    "signal",
    "artifacts_incomplete",
];

/// The response of a task that begins.
#[must_use]
pub fn initial(
    id: &str,
    created_ms: i64,
    request: &TaskRequest,
    session: &SessionRow,
    model: &str,
) -> Value {
    let mut metadata = request.metadata.clone();
    metadata.retain(|name, _| !OWN.contains(&name.as_str()));
    metadata.insert("session_id".to_owned(), json!(session.id));
    metadata.insert("harness_id".to_owned(), json!(session.harness));
    if let Some((environment, version, _)) = &session.environment {
        metadata.insert("environment".to_owned(), json!(environment));
        metadata.insert("environment_version".to_owned(), json!(version));
    }
    if !request.ignored.is_empty() {
        metadata.insert("ignored_fields".to_owned(), json!(request.ignored));
    }
    name_model(model, request, &mut metadata);
    json!({
        "id": id,
        "object": "response",
        "created_at": created_ms / 1000,
        "status": "in_progress",
        "background": request.delivery == super::request::Delivery::AtOnce,
        "error": null,
        "incomplete_details": null,
        "previous_response_id": request.previous,
        "model": model,
        "output": [],
        "store": request.store,
        "usage": null,
        "metadata": metadata,
    })
}

/// How a task ended.
#[derive(Debug, Clone)]
pub enum Ending {
    /// Its work was done, however well.
    Completed,
    /// A budget stopped it.
    Incomplete(Spent),
    /// Its client did.
    Cancelled,
    /// It could not be done.
    Failed {
        /// Stable.
        code: &'static str,
        /// One sentence.
        message: String,
    },
}

impl Ending {
    /// As the protocol names it.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Cancelled => "cancelled",
            Self::Failed { .. } => "failed",
        }
    }

    /// What an item is that was open when the task ended.
    #[must_use]
    pub fn item_status(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            _ => "incomplete",
        }
    }
}

/// The response of a task that has ended.
#[must_use]
pub fn ended(
    initial: &Value,
    ending: &Ending,
    output: Vec<Value>,
    noted: Map<String, Value>,
) -> Value {
    let mut last = initial.clone();
    last["status"] = json!(ending.status());
    last["output"] = Value::Array(output);
    match ending {
        Ending::Incomplete(spent) => {
            last["incomplete_details"] = json!({ "reason": spent.reason() });
        }
        Ending::Failed { code, message } => {
            let kind = if code.starts_with("hangar_") { "server_error" } else { "harness_error" };
            last["error"] = json!({
                "type": kind, "code": code, "message": message, "param": null, "detail": null,
            });
        }
        Ending::Completed | Ending::Cancelled => {}
    }
    if let Some(metadata) = last["metadata"].as_object_mut() {
        metadata.extend(noted);
    }
    last
}
