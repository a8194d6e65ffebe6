//! The HTTP interface: routes, and what all of them have in common.

mod artifacts;
pub mod auth;
mod body;
mod builds;
mod conditions;
mod discovery;
mod disposition;
mod environments;
mod error;
mod exec;
mod extract;
mod files;
mod harnesses;
mod import;
mod log_events;
pub mod media;
mod multipart;
pub mod objects;
mod operation;
mod pace;
mod packages;
mod ranges;
mod responses;
mod sessions;
mod shares;
mod stream;
#[cfg(test)]
mod tests;
mod tokens;
mod turns;
mod uploads;
mod versions;

use crate::app::App;
use crate::failure::{Code, Failure};
use crate::observe::observe;
use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;

/// The version of the protocol this server speaks to whoever names none.
pub const PROTOCOL_VERSION: &str = "2026-09-28";
/// All versions it speaks, the newest first. Each adds to the one before and changes nothing of it,
/// so what is answered is right in all of them.
pub const PROTOCOL_VERSIONS: &[&str] = &[PROTOCOL_VERSION, "2026-09-12", "2026-08-11"];
const VERSION_HEADER: &str = "uhp-version";

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    let environments = Router::new()
        .route("/", post(environments::create).get(environments::list))
        // Before `/{id}`: no id is called so.
        .route("/runtimes", get(packages::runtimes))
        .route("/packages/check", get(packages::check))
        .route(
            "/{id}",
            get(environments::show).put(environments::update).delete(environments::delete),
        )
        .route("/{id}/files", get(files::tree))
        .route("/{id}/files/{*path}", get(files::read).put(files::write).delete(files::remove))
        .route("/{id}/directories", post(files::make_directory))
        .route("/{id}/import", post(import::import_project))
        .route("/{id}/build", post(builds::start))
        .route("/{id}/builds/{number}", get(builds::show))
        .route("/{id}/harnesses", get(harnesses::of_environment))
        .route("/{id}/versions", get(builds::versions))
        .route("/{id}/versions/{number}/activate", post(builds::activate));
    let vendor = Router::new()
        .route("/environments/{id}/builds/{number}/log", get(builds::log))
        .route("/environments/{id}/builds/{number}/cancel", post(builds::cancel))
        .route("/environments/{id}/versions/{number}/sbom", get(builds::sbom))
        .route("/environments/{id}/versions/{number}/verify", post(builds::verify))
        .route("/environments/{id}/versions/{number}", delete(versions::remove))
        .route("/environments/{id}/diff", get(versions::diff))
        .route("/environments/{id}/usage", get(versions::usage))
        .route(
            "/environments/{id}/retention",
            get(versions::show_retention).put(versions::set_retention),
        )
        .route("/metrics", get(operation::metrics))
        .route("/ready", get(operation::ready))
        .route("/tokens", post(tokens::create).get(tokens::list))
        .route("/tokens/{id}", delete(tokens::revoke))
        .route("/sessions", post(sessions::create).get(sessions::list))
        .route("/sessions/{id}/isolation", get(sessions::isolation))
        .route("/sessions/{id}/exec", post(exec::start))
        .route("/sessions/{id}/exec/{number}", get(exec::show))
        .route("/sessions/{id}/exec/{number}/output", get(exec::output))
        .route("/sessions/{id}/exec/{number}/cancel", post(exec::cancel));
    Router::new()
        .nest("/v1/environments", environments)
        .nest("/v1/hangar", vendor)
        .route("/v1/harnesses", post(harnesses::create).get(harnesses::list))
        .route(
            "/v1/harnesses/{id}",
            get(harnesses::show).put(harnesses::update).delete(harnesses::delete),
        )
        .route("/v1/harnesses/{id}/models", get(harnesses::models))
        .route("/v1/harnesses/{id}/skills/{name}/files", get(harnesses::skill_files))
        .route("/v1/harnesses/{id}/plugins/{name}/files", get(harnesses::plugin_files))
        .route("/v1/models", get(harnesses::all_models))
        .route("/v1/files", post(uploads::create).get(uploads::list))
        .route("/v1/files/{id}", get(uploads::show).delete(uploads::delete))
        .route("/v1/files/{id}/content", get(uploads::content))
        .route("/v1/harnesses/{id}/events", get(stream::of_harness))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{id}", get(responses::show).delete(responses::delete))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route("/v1/sessions", get(turns::sessions))
        .route("/v1/sessions/{id}/turns", get(turns::list))
        .route("/v1/sessions/{id}/cancel", post(turns::cancel))
        .route("/v1/sessions/{id}", get(sessions::show).delete(sessions::delete))
        .route("/v1/traces/{id}", delete(sessions::delete))
        .route(
            "/v1/sessions/{id}/share",
            post(shares::create).get(shares::show).delete(shares::revoke),
        )
        .route("/v1/sessions/{id}/files", get(artifacts::list))
        .route("/v1/sessions/{id}/files/archive", get(artifacts::archive))
        .route("/v1/containers/{container}/files/{file}/content", get(artifacts::content))
        .route("/v1/containers/{container}/files/{file}/pdf", get(artifacts::preview))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), auth::authenticate))
        .route("/v1/uhp", get(discovery::show))
        // Whoever has such a link may open it; there is no other way to know one.
        .route("/v1/shared/{secret}", get(shares::view))
        .route("/v1/shared/{secret}/files/{file}/content", get(shares::content))
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), pace::pace))
        .layer(middleware::from_fn(negotiate_version))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), observe))
        .layer(middleware::from_fn(name_version))
        // Bodies are bounded where they are read.
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(app)
}

async fn no_route() -> Failure {
    Failure::new(Code::RouteNotFound, "there is no such endpoint")
}

fn panicked(_payload: Box<dyn std::any::Any + Send>) -> Response {
    // The panic hook has printed where; the payload can hold anything.
    Failure::new(Code::Internal, "the request failed").into_response()
}

/// The version an answer is in.
#[derive(Debug, Clone, Copy)]
struct Spoken(&'static str);

/// Refuses a version of the protocol that is not spoken here.
async fn negotiate_version(request: Request, next: Next) -> Response {
    let wanted = request.headers().get(VERSION_HEADER);
    let spoken = match wanted {
        None => Some(&PROTOCOL_VERSION),
        Some(wanted) => PROTOCOL_VERSIONS.iter().find(|known| wanted == **known),
    };
    let Some(spoken) = spoken else {
        return Failure::new(
            Code::UnsupportedProtocolVersion,
            "this server does not speak that version of the protocol",
        )
        .with_detail(serde_json::json!({ "supported": PROTOCOL_VERSIONS }))
        .into_response();
    };
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Spoken(spoken));
    response
}

/// Every answer says which version of the protocol it is in.
async fn name_version(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let spoken = response.extensions().get::<Spoken>().map_or(PROTOCOL_VERSION, |spoken| spoken.0);
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(spoken));
    response
}
