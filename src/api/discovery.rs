//! What this server can do. A capability is only told when all of it is there.

use super::{PROTOCOL_VERSION, PROTOCOL_VERSIONS};
use axum::Json;
use serde_json::{Value, json};

pub(super) async fn show() -> Json<Value> {
    Json(json!({
        "object": "uhp.discovery",
        "protocol": "uhp",
        "versions": PROTOCOL_VERSIONS,
        "default_version": PROTOCOL_VERSION,
        "conformance_class": "full",
        "capabilities": {
            "streaming": true,
            "sessions": true,
            "cancellation": true,
            "files_input": true,
            "files_output": true,
            "session_listing": true,
            "harness_management": true,
            "session_sharing": true,
            "idempotency": true,
            "plugins": false,
            "environments": true,
        },
        "plugin_schemas": [],
        "implementation": { "name": "hangar", "version": env!("CARGO_PKG_VERSION") },
    }))
}
