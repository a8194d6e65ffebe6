//! Failures of requests, in the shape and with the codes of the protocol.

use serde_json::Value;
use std::fmt::Display;

/// The stable codes a caller can meet. Those of the protocol come first; ours carry `hangar_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// No bearer token was sent.
    MissingCredential,
    /// The token is malformed or unknown.
    InvalidCredential,
    /// The body could not be parsed or a field has the wrong type.
    InvalidInput,
    /// `UHP-Version` names a version this server does not speak.
    UnsupportedProtocolVersion,
    /// No such environment in the caller's scope.
    EnvironmentNotFound,
    /// Nothing was built, or that version never finished.
    EnvironmentNotReady,
    /// A build or an import runs.
    EnvironmentBusy,
    /// The slug belongs to another environment.
    EnvironmentExists,
    /// A name without a slug, a path out of the root, an import that is no archive.
    EnvironmentInvalid,
    /// What is asked about is no package of a manager.
    PackageInvalid,
    /// The warden or its worker did not answer.
    EnvironmentUnavailable,
    /// The upload is over the limit.
    FileTooLarge,
    /// Too many requests in a short time.
    RateLimited,
    /// Something that is granted in a bounded amount is used up.
    QuotaExhausted,
    /// The token may read and nothing else, or may not do this at all.
    InsufficientScope,
    /// No such harness in the caller's scope.
    HarnessNotFound,
    /// The harness has no plugin of that name.
    PluginNotFound,
    /// The task names another harness than the session it continues.
    HarnessMismatch,
    /// The harness cannot be run now.
    HarnessUnavailable,
    /// No such response in the caller's scope.
    ResponseNotFound,
    /// A harness of that base is not known here.
    UnsupportedBase,
    /// What the caller has seen is not what is there.
    PreconditionFailed,
    /// The range lies behind the end of the file.
    RangeNotSatisfiable,
    /// The version is active, or a session reads it.
    VersionInUse,
    /// No such token.
    TokenNotFound,
    /// No such session in the caller's scope.
    SessionNotFound,
    /// The session is being changed by another request.
    SessionBusy,
    /// The session is not shared, or the link leads nowhere.
    ShareNotFound,
    /// This server renders no previews.
    PreviewUnavailable,
    /// No such file in the caller's scope.
    FileNotFound,
    /// No such version of the environment.
    VersionNotFound,
    /// No such command of the session.
    CommandNotFound,
    /// The path and method name nothing here.
    RouteNotFound,
    /// The kernel or the host lacks what a session needs.
    Unsupported,
    /// A barrier could not be proven, so the session was not started.
    Unproven,
    /// The warden is not there.
    WardenUnavailable,
    /// The request took longer than the server waits.
    RequestTimeout,
    /// Something failed here; the log says what.
    Internal,
}

impl Code {
    /// The code on the wire and the HTTP status it comes with.
    #[must_use]
    pub fn wire(self) -> (&'static str, u16) {
        match self {
            Self::MissingCredential => ("missing_credential", 401),
            Self::InvalidCredential => ("invalid_credential", 401),
            Self::InvalidInput => ("invalid_input", 400),
            Self::UnsupportedProtocolVersion => ("unsupported_protocol_version", 400),
            Self::EnvironmentNotFound => ("environment_not_found", 404),
            Self::EnvironmentNotReady => ("environment_not_ready", 409),
            Self::EnvironmentBusy => ("environment_busy", 409),
            Self::EnvironmentExists => ("environment_exists", 409),
            Self::EnvironmentInvalid => ("environment_invalid", 422),
            Self::PackageInvalid => ("environment_invalid", 400),
            Self::EnvironmentUnavailable => ("environment_unavailable", 503),
            Self::FileTooLarge => ("file_too_large", 413),
            Self::RateLimited => ("rate_limited", 429),
            Self::QuotaExhausted => ("quota_exhausted", 429),
            Self::InsufficientScope => ("insufficient_scope", 403),
            Self::HarnessNotFound => ("harness_not_found", 404),
            Self::PluginNotFound => ("plugin_not_found", 404),
            Self::HarnessMismatch => ("harness_mismatch", 409),
            Self::HarnessUnavailable => ("harness_unavailable", 503),
            Self::ResponseNotFound => ("response_not_found", 404),
            Self::UnsupportedBase => ("unsupported_base", 422),
            Self::PreconditionFailed => ("hangar_precondition_failed", 412),
            Self::RangeNotSatisfiable => ("hangar_range_not_satisfiable", 416),
            Self::VersionInUse => ("hangar_version_in_use", 409),
            Self::TokenNotFound => ("hangar_token_not_found", 404),
            Self::SessionNotFound => ("session_not_found", 404),
            Self::SessionBusy => ("session_busy", 409),
            Self::ShareNotFound => ("hangar_share_not_found", 404),
            Self::PreviewUnavailable => ("preview_unavailable", 501),
            Self::FileNotFound => ("file_not_found", 404),
            Self::VersionNotFound => ("hangar_version_not_found", 404),
            Self::CommandNotFound => ("hangar_command_not_found", 404),
            Self::RouteNotFound => ("hangar_route_not_found", 404),
            Self::Unsupported => ("hangar_unsupported", 503),
            Self::Unproven => ("hangar_unproven", 500),
            Self::WardenUnavailable => ("hangar_warden_unavailable", 503),
            Self::RequestTimeout => ("hangar_request_timeout", 504),
            Self::Internal => ("hangar_internal", 500),
        }
    }

    /// The broad class of the code, as the protocol names it.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self.wire().1 {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        }
    }
}

/// Why a request was not carried out: a public sentence, and a cause for the log only.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// For programs.
    pub code: Code,
    /// One sentence without host paths, host names or credentials.
    pub message: String,
    /// The field or parameter that is at fault.
    pub param: Option<String>,
    /// More for programs.
    pub detail: Option<Value>,
    /// The chain of causes, which callers do not get.
    pub cause: Option<String>,
}

impl Failure {
    /// A failure the caller can understand from the sentence alone.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), param: None, detail: None, cause: None }
    }

    /// A failure of ours: the caller learns what was tried, the log learns why it failed.
    pub fn internal(what: &str, cause: impl Display) -> Self {
        Self {
            cause: Some(cause.to_string()),
            ..Self::new(Code::Internal, format!("{what} failed"))
        }
    }

    /// A file that could not be written. Want of room is told; it is no fault of the server.
    pub fn not_stored(what: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded => {
                let message = format!("the disk is full; {what} could not be stored");
                Self::new(Code::EnvironmentUnavailable, message).with_cause(error)
            }
            _ => Self::internal(&format!("storing {what}"), error),
        }
    }

    /// Names the field at fault.
    #[must_use]
    pub fn with_param(mut self, param: &str) -> Self {
        self.param = Some(param.to_owned());
        self
    }

    /// Adds details for programs.
    #[must_use]
    pub fn with_detail(mut self, detail: Value) -> Self {
        self.detail = Some(detail);
        self
    }

    /// Adds the cause for the log.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Value {
        serde_json::json!({ "error": {
            "type": self.code.class(),
            "code": self.code.wire().0,
            "message": self.message,
            "param": self.param,
            "detail": self.detail,
        }})
    }
}

/// Turns an error of ours into an internal failure that names what was tried.
pub trait Tried<T> {
    /// Names what was tried.
    ///
    /// # Errors
    /// The error of `self` as [`Code::Internal`].
    fn tried(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: Display> Tried<T> for Result<T, E> {
    fn tried(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::internal(what, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_every_field_of_the_envelope() {
        let failure = Failure::new(Code::FileTooLarge, "the file is too large")
            .with_param("body")
            .with_detail(serde_json::json!({ "max_bytes": 7 }))
            .with_cause("open(/secret/path) failed");
        let body = failure.body();
        assert_eq!(
            body,
            serde_json::json!({"error": {
                "type": "invalid_request_error", "code": "file_too_large",
                "message": "the file is too large", "param": "body", "detail": {"max_bytes": 7},
            }})
        );
        let plain = Failure::new(Code::Internal, "x").body();
        assert!(plain["error"]["param"].is_null() && plain["error"]["detail"].is_null());
        assert_eq!(plain["error"]["type"], "server_error");
    }

    #[test]
    fn the_cause_stays_out_of_the_body() {
        let failure = Failure::internal("reading the source", "openat2(/var/lib/x): EACCES");
        assert!(!failure.body().to_string().contains("/var/lib"));
    }
}
