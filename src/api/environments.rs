//! Environments as objects: create, list, show, change, delete.

use super::auth::Scope;
use super::body;
use super::extract::Named;
use super::objects;
use crate::app::{App, blocking, now_ms, random_hex};
use crate::environments::spec::{Manager, Spec};
use crate::environments::{find, slug::slug_of};
use crate::failure::{Code, Failure, Tried};
use crate::store::{Declared, EnvironmentRow, NewEnvironment};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use hangar_runtime::ids::EnvironmentId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

/// The longest text of each field.
const NAME_BYTES_MAX: usize = 200;
const TEXT_BYTES_MAX: usize = 16 << 10;
/// The most packages that can be declared for each manager.
const DECLARED_MAX: usize = 200;

/// What a client writes; a field that is absent stays as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Written {
    name: Option<String>,
    description: Option<String>,
    entry: Option<String>,
    packages: Option<Packages>,
    runtime: Option<Runtime>,
}

/// Packages to declare; a manager that is absent keeps its own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Packages {
    pip: Option<Vec<String>>,
    npm: Option<Vec<String>>,
    apt: Option<Vec<String>>,
}

impl Packages {
    fn over(self, base: Declared) -> Declared {
        Declared {
            pip: self.pip.unwrap_or(base.pip),
            npm: self.npm.unwrap_or(base.npm),
            apt: self.apt.unwrap_or(base.apt),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Runtime {
    python: Option<String>,
}

impl Runtime {
    /// The minor version of Python; an empty one stands for the server's own.
    fn python(self) -> Option<String> {
        self.python.filter(|minor| !minor.is_empty())
    }
}

impl Written {
    fn check(&self) -> Result<(), Failure> {
        let invalid = |param: &str, why: &str| {
            Err(Failure::new(Code::EnvironmentInvalid, why.to_owned()).with_param(param))
        };
        if self.name.as_ref().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            return invalid("name", "the name is too long");
        }
        for (param, text) in [("description", &self.description), ("entry", &self.entry)] {
            if text.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
                return invalid(param, "the text is too long");
            }
        }
        let packages = self.packages.iter().flat_map(|all| {
            [(Manager::Pip, &all.pip), (Manager::Npm, &all.npm), (Manager::Apt, &all.apt)]
        });
        for (manager, list) in packages {
            let Some(list) = list else { continue };
            let odd = list.iter().any(|spec| Spec::parse(manager, spec).is_none());
            if odd || list.len() > DECLARED_MAX {
                let param = format!("packages.{}", manager.as_str());
                return invalid(&param, "a declared package is not a package specification");
            }
        }
        let python = self.runtime.as_ref().and_then(|runtime| runtime.python.as_ref());
        if python.is_some_and(|minor| !minor.is_empty() && !is_python_minor(minor)) {
            return invalid(
                "runtime.python",
                "the Python version is not a minor version like 3.11",
            );
        }
        Ok(())
    }
}

fn is_python_minor(text: &str) -> bool {
    let minor = text.strip_prefix("3.");
    minor.is_some_and(|minor| {
        (1..=2).contains(&minor.len()) && minor.bytes().all(|b| b.is_ascii_digit())
    })
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    body: Body,
) -> Result<Json<Value>, Failure> {
    let written: Written = body::json(&app, body).await?;
    written.check()?;
    let no_segment = || {
        Failure::new(Code::EnvironmentInvalid, "the name yields no path segment").with_param("name")
    };
    let name = written.name.unwrap_or_default();
    let slug = slug_of(&name).ok_or_else(no_segment)?;
    let id = EnvironmentId::parse(&format!("henv_{}", random_hex())).expect("32 digits");
    let new = NewEnvironment {
        id: id.clone(),
        scope: scope.clone(),
        name,
        slug,
        description: written.description.unwrap_or_default(),
        entry: written.entry.unwrap_or_default(),
        declared: written.packages.unwrap_or_default().over(Declared::default()),
        python: written.runtime.and_then(Runtime::python),
        now_ms: now_ms(),
    };
    // The directory comes first: an environment without one could not be used.
    let source = app.sources.path(&id);
    let made = source.clone();
    blocking(move || std::fs::DirBuilder::new().mode(0o755).create(&made))
        .await
        .tried("making the source")?;
    let created = app.store.create_environment(new).await;
    if !matches!(created, Ok(true)) {
        blocking(move || std::fs::remove_dir(&source)).await.tried("removing the source")?;
    }
    if !created.tried("storing the environment")? {
        let message = "another environment has that mount path already";
        return Err(Failure::new(Code::EnvironmentExists, message).with_param("name"));
    }
    object(&app, &find(&app, &scope, &id).await?).await
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
) -> Result<Json<Value>, Failure> {
    let mut all = Vec::new();
    for row in app.store.environments(&scope).await.tried("reading the environments")? {
        all.push(object(&app, &row).await?.0);
    }
    Ok(Json(json!({ "environments": all })))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
) -> Result<Json<Value>, Failure> {
    object(&app, &find(&app, &scope, &id).await?).await
}

pub(super) async fn update(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
    body: Body,
) -> Result<Json<Value>, Failure> {
    let mut row = find(&app, &scope, &id).await?;
    let written: Written = body::json(&app, body).await?;
    written.check()?;
    if written.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
        return Err(Failure::new(Code::EnvironmentInvalid, "the name is empty").with_param("name"));
    }
    row.name = written.name.unwrap_or(row.name);
    row.description = written.description.unwrap_or(row.description);
    row.entry = written.entry.unwrap_or(row.entry);
    row.declared = written.packages.unwrap_or_default().over(row.declared);
    row.python = written.runtime.map_or(row.python, Runtime::python);
    row.updated_ms = now_ms();
    app.store.update_environment(row).await.tried("storing the environment")?;
    object(&app, &find(&app, &scope, &id).await?).await
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    if !app.store.delete_environment(&id).await.tried("removing the environment")? {
        return Err(Failure::new(Code::EnvironmentBusy, "a build of this environment runs"));
    }
    // What a session still reads goes away with the session.
    crate::sessions::sweep::remove_garbage(&app).await;
    Ok(Json(json!({ "id": id, "deleted": true })))
}

/// The environment as the protocol shows it; counts the source where that is not known.
pub(super) async fn object(app: &App, row: &EnvironmentRow) -> Result<Json<Value>, Failure> {
    let versions = app.store.versions(&row.id).await.tried("reading the versions")?;
    let source = match row.source {
        Some(size) => size,
        None => {
            let (sources, id) = (app.sources.clone(), row.id.clone());
            let size = blocking(move || sources.open(&id)?.size()).await?;
            let stored = app.store.set_source_size(&row.id, Some(size), now_ms()).await;
            stored.tried("storing the environment")?;
            size
        }
    };
    Ok(Json(objects::environment(row, &versions, source)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_no_package() {
        for (text, good) in [
            (r#"{"packages": {"pip": ["numpy==2", "a[b]>=1"]}}"#, true),
            (r#"{"packages": {"pip": ["--index-url=https://example.org"]}}"#, false),
            (r#"{"packages": {"npm": ["-g"]}}"#, false),
            (r#"{"packages": {"npm": [""]}}"#, false),
            (r#"{"runtime": {"python": "3.11"}}"#, true),
            (r#"{"runtime": {"python": ""}}"#, true),
            (r#"{"runtime": {"python": "3.11; rm"}}"#, false),
            (r#"{"runtime": {"python": "/bin/sh"}}"#, false),
        ] {
            let written: Written = serde_json::from_str(text).unwrap();
            assert_eq!(written.check().is_ok(), good, "{text}");
        }
    }
}
