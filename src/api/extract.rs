//! Parts of a request as types.

use crate::environments::source_path::SourcePath;
use crate::failure::{Code, Failure};
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use hangar_runtime::ids::{CommandId, EnvironmentId, SessionId, VersionNumber};
use serde::de::DeserializeOwned;

/// What the path names. A name that cannot exist is as good as one that does not.
#[derive(Debug)]
pub struct Named<T>(pub T);

/// The query of a request. One that does not fit is refused in the protocol's shape.
#[derive(Debug)]
pub struct QueryOf<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryOf<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Failure> {
        let asked = Query::<T>::try_from_uri(&parts.uri);
        let Query(asked) = asked.map_err(|error| {
            Failure::new(Code::InvalidInput, "the query has a value of the wrong kind")
                .with_param("query")
                .with_cause(error)
        })?;
        Ok(Self(asked))
    }
}

/// A kind of thing a path can name.
pub trait FromPath: Sized {
    /// What the router found in the path.
    type Raw: DeserializeOwned + Send;

    /// The thing it names.
    ///
    /// # Errors
    /// A failure that says it is not there.
    fn from_path(raw: Self::Raw) -> Result<Self, Failure>;
}

impl<S: Send + Sync, T: FromPath> FromRequestParts<S> for Named<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<T::Raw>::from_request_parts(parts, state).await;
        let Path(raw) = path
            .map_err(|_| Failure::new(Code::RouteNotFound, "the path is not one of this server"))?;
        T::from_path(raw).map(Self)
    }
}

impl FromPath for String {
    type Raw = Self;

    fn from_path(raw: Self) -> Result<Self, Failure> {
        Ok(raw)
    }
}

impl FromPath for (String, String) {
    type Raw = Self;

    fn from_path(raw: Self) -> Result<Self, Failure> {
        Ok(raw)
    }
}

impl FromPath for EnvironmentId {
    type Raw = String;

    fn from_path(raw: String) -> Result<Self, Failure> {
        Self::parse(&raw)
            .map_err(|_| Failure::new(Code::EnvironmentNotFound, "there is no such environment"))
    }
}

impl FromPath for SessionId {
    type Raw = String;

    fn from_path(raw: String) -> Result<Self, Failure> {
        Self::parse(&raw)
            .map_err(|_| Failure::new(Code::SessionNotFound, "there is no such session"))
    }
}

impl FromPath for (EnvironmentId, VersionNumber) {
    type Raw = (String, String);

    fn from_path((id, number): (String, String)) -> Result<Self, Failure> {
        let id = EnvironmentId::from_path(id)?;
        let number = number.parse().ok().and_then(VersionNumber::new);
        let none = || Failure::new(Code::VersionNotFound, "there is no such version");
        Ok((id, number.ok_or_else(none)?))
    }
}

impl FromPath for (SessionId, CommandId) {
    type Raw = (String, String);

    fn from_path((id, number): (String, String)) -> Result<Self, Failure> {
        let id = SessionId::from_path(id)?;
        let none = |_| Failure::new(Code::CommandNotFound, "there is no such command");
        Ok((id, CommandId(number.parse().map_err(none)?)))
    }
}

impl FromPath for (EnvironmentId, String) {
    type Raw = (String, String);

    fn from_path((id, path): (String, String)) -> Result<Self, Failure> {
        Ok((EnvironmentId::from_path(id)?, path))
    }
}

/// A file of a source. Its path is decoded here, once and byte for byte: the router knows names of
/// UTF-8 only.
#[derive(Debug)]
pub struct InSource {
    /// The environment.
    pub id: EnvironmentId,
    /// The path in its source.
    pub path: SourcePath,
}

impl<S: Send + Sync> FromRequestParts<S> for InSource {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Failure> {
        let no_route = || Failure::new(Code::RouteNotFound, "the path is not one of this server");
        // No id has a slash in it, so the first `/files/` is the one of the route.
        let (before, path) = parts.uri.path().split_once("/files/").ok_or_else(no_route)?;
        let id = before.rsplit('/').next().unwrap_or_default();
        Ok(Self { id: EnvironmentId::from_path(id.to_owned())?, path: SourcePath::from_url(path)? })
    }
}
