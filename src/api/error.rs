//! A failure as an answer: the envelope for the caller, the cause for the log.

use crate::failure::{Code, Failure};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (code, status) = self.code.wire();
        if let Some(cause) = &self.cause {
            if status >= 500 {
                tracing::error!("{code}: {}: {cause}", self.message);
            } else {
                tracing::info!("{code}: {}: {cause}", self.message);
            }
        }
        let status = StatusCode::from_u16(status).expect("the table has valid statuses");
        let mut response = (status, Json(self.body())).into_response();
        if self.code == Code::WardenUnavailable {
            response.headers_mut().insert("retry-after", "1".parse().expect("a number"));
        }
        let wait = self.detail.as_ref().and_then(|detail| detail["retry_after_ms"].as_u64());
        if let Some(milliseconds) = wait {
            response.headers_mut().insert("retry-after", milliseconds.div_ceil(1000).into());
        }
        response.extensions_mut().insert(self.code);
        response
    }
}
