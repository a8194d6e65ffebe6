//! The request of a task: every field is honoured, or named in `metadata.ignored_fields`.

use super::input::{self, Input};
use crate::failure::{Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How a client wants to learn of its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The whole response, once it is final.
    AtTheEnd,
    /// Every event as it happens.
    Stream,
    /// The response as it begins.
    AtOnce,
}

/// The bounds a request names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// Rounds of tool calls.
    pub steps: Option<u64>,
    /// Wall time.
    pub seconds: Option<u64>,
    /// Tokens of output.
    pub output_tokens: Option<u64>,
}

/// A request that makes sense by itself.
#[derive(Debug, Clone)]
pub struct TaskRequest {
    /// The items as they were sent; a string is one message.
    pub items: Vec<Value>,
    /// What they say.
    pub input: Input,
    /// The model that was asked for.
    pub model: Option<String>,
    /// The harness that was named.
    pub harness: Option<String>,
    /// The environment that was named, and the field that did.
    pub environment: Option<(String, &'static str)>,
    /// The response this one continues.
    pub previous: Option<String>,
    /// Bounds of this task.
    pub bounds: Bounds,
    /// Whether the response is kept.
    pub store: bool,
    /// How the client learns of it.
    pub delivery: Delivery,
    /// What the client noted for itself.
    pub metadata: Map<String, Value>,
    /// Fields that have no effect.
    pub ignored: Vec<String>,
}

/// Fields that a client can send and that have no effect in the shell base; those of the protocol
/// that nobody acts on, and guidance for a model where there is none.
const WITHOUT_EFFECT: &[&str] = &["tools", "include", "instructions"];

/// Fields that are read below.
const READ: &[&str] = &[
    "input",
    "model",
    "metadata",
    "stream",
    "previous_response_id",
    "store",
    "max_output_tokens",
    "max_step",
    "timeout_seconds",
    "background",
    "environment",
];

fn wrong(param: &str, why: &str) -> Failure {
    Failure::new(Code::InvalidInput, why).with_param(param)
}

impl TaskRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] with the field that has the wrong type or makes no sense.
    pub fn parse(asked: &Value) -> Result<Self, Failure> {
        let Some(fields) = asked.as_object() else {
            return Err(wrong("body", "the request is no object"));
        };
        // Null says as much as no field.
        let present = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let text = |name: &str| match present(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => Err(wrong(name, &format!("{name} is no text"))),
        };
        let flag = |name: &str, default: bool| match present(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(wrong(name, &format!("{name} is neither true nor false"))),
        };
        let bound = |name: &str, least: u64| match present(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|value| *value >= least) {
                Some(value) => Ok(Some(value)),
                None => Err(wrong(name, &format!("{name} is no whole number from {least} on"))),
            },
        };
        let metadata = match present("metadata") {
            None => Map::new(),
            Some(Value::Object(metadata)) => metadata.clone(),
            Some(_) => return Err(wrong("metadata", "metadata is no object")),
        };
        let (items, input) = input::read(present("input"))?;
        let mut ignored: Vec<String> = fields
            .keys()
            .filter(|name| !READ.contains(&name.as_str()))
            .filter(|name| !WITHOUT_EFFECT.contains(&name.as_str()) || present(name).is_some())
            .cloned()
            .collect();
        ignored.extend(input.ignored.iter().cloned());
        let delivery = match (flag("stream", false)?, flag("background", false)?) {
            (true, _) => Delivery::Stream,
            (false, true) => Delivery::AtOnce,
            (false, false) => Delivery::AtTheEnd,
        };
        Ok(Self {
            items,
            input,
            model: text("model")?,
            harness: of_metadata(&metadata, "harness_id", "metadata.harness_id")?,
            environment: environment(&metadata, text("environment")?)?,
            previous: text("previous_response_id")?,
            bounds: Bounds {
                steps: bound("max_step", 0)?,
                seconds: bound("timeout_seconds", 1)?,
                output_tokens: bound("max_output_tokens", 1)?,
            },
            store: flag("store", true)?,
            delivery,
            metadata,
            ignored,
        })
    }
}

fn of_metadata(
    metadata: &Map<String, Value>,
    name: &str,
    param: &str,
) -> Result<Option<String>, Failure> {
    match metadata.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(wrong(param, &format!("{param} is no text"))),
    }
}

/// The environment stands in the metadata; for one day the protocol had it at the top.
fn environment(
    metadata: &Map<String, Value>,
    at_the_top: Option<String>,
) -> Result<Option<(String, &'static str)>, Failure> {
    let field = "metadata.environment";
    match (of_metadata(metadata, "environment", field)?, at_the_top) {
        (Some(one), Some(other)) if one != other => {
            Err(wrong("environment", "environment and metadata.environment name two environments"))
        }
        (Some(id), _) => Ok(Some((id, field))),
        (None, Some(id)) => Ok(Some((id, "environment"))),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(mut fields: Value) -> Result<TaskRequest, Failure> {
        fields["input"] = json!("true");
        TaskRequest::parse(&fields)
    }

    #[test]
    fn what_has_no_effect_is_named() {
        let plain = parse(json!({ "model": "m", "store": false, "stream": true })).unwrap();
        assert_eq!(plain.ignored, [""; 0]);
        assert_eq!((plain.store, plain.delivery), (false, Delivery::Stream));
        let odd = parse(json!({
            "tools": [], "include": ["x"], "temperature": 1, "instructions": "be brief",
        }));
        assert_eq!(odd.unwrap().ignored, ["include", "instructions", "temperature", "tools"]);
        let null = parse(json!({ "tools": null, "instructions": null, "max_step": null }));
        assert_eq!(null.unwrap().ignored, [""; 0]);
    }

    #[test]
    fn fields_of_the_wrong_type_are_named() {
        for (fields, param) in [
            (json!({ "model": 1 }), "model"),
            (json!({ "metadata": [] }), "metadata"),
            (json!({ "metadata": { "harness_id": 7 } }), "metadata.harness_id"),
            (json!({ "stream": "yes" }), "stream"),
            (json!({ "background": 1 }), "background"),
            (json!({ "store": 0 }), "store"),
            (json!({ "max_step": -1 }), "max_step"),
            (json!({ "max_step": 1.5 }), "max_step"),
            (json!({ "timeout_seconds": 0 }), "timeout_seconds"),
            (json!({ "max_output_tokens": "9" }), "max_output_tokens"),
            (json!({ "previous_response_id": {} }), "previous_response_id"),
        ] {
            let failure = parse(fields.clone()).unwrap_err();
            assert_eq!(failure.code, Code::InvalidInput);
            assert_eq!(failure.param.as_deref(), Some(param), "{fields}");
        }
    }

    #[test]
    fn an_environment_can_be_named_twice_but_not_differently() {
        let named = |fields| parse(fields).map(|request| request.environment);
        let at = |id: &str, field| Some((id.to_owned(), field));
        let both = json!({ "environment": "a", "metadata": { "environment": "a" } });
        assert_eq!(named(both).unwrap(), at("a", "metadata.environment"));
        assert_eq!(named(json!({ "environment": "a" })).unwrap(), at("a", "environment"));
        assert_eq!(named(json!({ "environment": "" })).unwrap(), None);
        let two = json!({ "environment": "a", "metadata": { "environment": "b" } });
        assert_eq!(named(two).unwrap_err().param.as_deref(), Some("environment"));
    }
}
