//! What this server can do. A capability is only told when all of it is there.

use super::PROTOCOL_VERSION;
use axum::Json;
use serde_json::{Value, json};

pub(super) async fn show() -> Json<Value> {
    Json(json!({
        "object": "uhp.discovery",
        "protocol": "uhp",
        "versions": [PROTOCOL_VERSION],
        "default_version": PROTOCOL_VERSION,
        "conformance_class": "none",
        "capabilities": {
            "streaming": false,
            "sessions": false,
            "cancellation": false,
            "files_input": false,
            "files_output": false,
            "session_listing": false,
            "harness_management": false,
            "session_sharing": false,
            "idempotency": false,
            "plugins": false,
            "environments": true,
        },
        "plugin_schemas": [],
        "implementation": { "name": "hangar", "version": env!("CARGO_PKG_VERSION") },
    }))
}
