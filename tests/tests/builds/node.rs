//! Faults and twins of Node projects.

use super::{Server, built, failed, lock, says};
use serde_json::json;

const PNPM: &str = "/usr/local/bin/pnpm";
const YARN: &str = "/usr/local/bin/yarn";
const PLAIN: &str = r#"{"name": "plain", "version": "1.0.0", "dependencies": {"ms": "2.1.3"}}"#;
const DAYS: &str = "node -e 'console.log(require(\"ms\")(\"2d\"))'";

/// A page that Vite bundles. Vite brings its bundler along as a package for this system.
const VITE: &str = r#"{"name": "page", "version": "1.0.0", "type": "module",
    "devDependencies": {"vite": "6.3.5"}}"#;

fn page(server: &Server) -> String {
    let files = [
        ("package.json", VITE),
        ("vite.config.js", "export default { base: './' };\n"),
        ("index.html", "<script type=module src=/main.js></script>\n"),
        ("main.js", "import { word } from './word.js';\ndocument.title = word;\n"),
        ("word.js", "export const word = 'bundled';\n"),
    ];
    server.ready("page", &files).0
}

pub fn a_bundler_builds_from_a_read_only_project() {
    let server = Server::new();
    let session = server.session(&page(&server));
    let script =
        "cd /env/page; vite build --configLoader runner --outDir $WORKSPACE/dist > /dev/null
        grep -c bundled $WORKSPACE/dist/assets/*.js";
    assert_eq!(says(&session, script), "1\n");
}

pub fn a_bundler_builds_from_a_copy() {
    let server = Server::new();
    let session = server.session(&page(&server));
    let script = "cp -a /env/page $WORKSPACE/copy; cd $WORKSPACE/copy; npx --no-install vite build > /dev/null
        grep -c bundled dist/assets/*.js; test -d node_modules -a ! -L node_modules; echo directory";
    assert_eq!(says(&session, script), "1\ndirectory\n");
}

#[test]
fn a_session_gets_node_modules_as_a_directory() {
    let server = Server::new();
    let (id, _) = server.ready("plain", &[("package.json", PLAIN)]);
    let session = server.session(&id);
    // What a bundler resolves lies below the root of the copy, and no link leads out of it.
    let script = "cp -a /env/plain copy; cd copy; find . -type l -lname '/*' | wc -l
        node -p 'require.resolve(\"ms\")'; rm -r node_modules/ms/license.md; echo changed";
    assert_eq!(says(&session, script), "0\n/workspace/copy/node_modules/ms/index.js\nchanged\n");
}

pub fn packages_are_found_from_a_workspace() {
    let server = Server::new();
    let (id, _) = server.ready("plain", &[("package.json", PLAIN)]);
    assert_eq!(says(&server.session(&id), DAYS), "172800000\n");
}

pub fn lifecycle_scripts_write_where_they_may() {
    let server = Server::new();
    let package = r#"{"name": "hooked", "version": "1.0.0", "scripts": {"postinstall":
        "npm ls && echo home > $HOME/a && echo tmp > $TMPDIR/b && cat $HOME/a $TMPDIR/b > made"}}"#;
    let (id, log) = server.ready("hooked", &[("package.json", package)]);
    assert!(log.contains("not kept for later builds: package.json has scripts"), "{log}");
    assert_eq!(says(&server.session(&id), "cat /env/hooked/made"), "home\ntmp\n");
}

pub fn lifecycle_scripts_write_nowhere_else() {
    let server = Server::new();
    let package = r#"{"name": "hooked", "version": "1.0.0",
        "scripts": {"postinstall": "echo x > /usr/share/x"}}"#;
    let (reason, log) = server.refused("hooked", &[("package.json", package)]);
    assert!(reason.starts_with("`npm install` ended with status"), "{reason}");
    assert!(log.contains("Read-only file system") || log.contains("Permission denied"), "{log}");
}

fn pnpm_lock(package: &str) -> String {
    lock(&[("package.json", package)], &[PNPM, "install", "--lockfile-only"], "pnpm-lock.yaml")
}

/// The pinned version runs, or its download is refused, as where a mirror has no signatures. What
/// must not happen is a question.
pub fn a_pinned_manager_is_not_asked_for() {
    let server = Server::with("[build]\nsilence_timeout_s = 60\n");
    let lock = pnpm_lock(PLAIN);
    let pinned =
        PLAIN.replace("\"dependencies\"", "\"packageManager\": \"pnpm@9.15.9\", \"dependencies\"");
    let files = [("package.json", pinned.as_str()), ("pnpm-lock.yaml", &lock)];
    let id = server.declaring("pinned", &files, json!({}));
    let build = server.build(&id);
    if build["status"] == "ready" {
        assert!(built(&build).contains("using pnpm v9.15.9"), "{build}");
        assert_eq!(says(&server.session(&id), DAYS), "172800000\n");
    } else {
        let (reason, log) = failed(&build);
        assert_eq!(reason, "`pnpm install --frozen-lockfile` ended with status 1");
        assert!(log.contains("pnpm@9.15.9"), "{log}");
    }
}

pub fn a_lock_of_pnpm_is_followed() {
    let server = Server::new();
    let files = [("package.json", PLAIN), ("pnpm-lock.yaml", &pnpm_lock(PLAIN))];
    let (id, log) = server.ready("plain", &files);
    assert!(log.contains("$ pnpm install --frozen-lockfile"), "{log}");
    assert_eq!(says(&server.session(&id), DAYS), "172800000\n");
    let build = server.build(&id);
    assert!(built(&build).contains("taking the installed packages of an earlier build"), "{build}");
    assert_eq!(super::installed(&build, "npm"), ["ms"]);
}

#[test]
fn a_lock_of_yarn_is_followed() {
    let server = Server::new();
    let made = [YARN, "install", "--ignore-scripts", "--non-interactive"];
    let lock = lock(&[("package.json", PLAIN)], &made, "yarn.lock");
    let (id, log) = server.ready("plain", &[("package.json", PLAIN), ("yarn.lock", &lock)]);
    assert!(log.contains("$ yarn install --frozen-lockfile"), "{log}");
    assert_eq!(says(&server.session(&id), DAYS), "172800000\n");
}

const BERRY: &str = "/usr/local/bin/yarn-berry";

/// A lock of Yarn 4, which makes one beside no other lock only when it is told to.
fn berry_lock() -> String {
    let made = [BERRY, "install", "--mode=update-lockfile"];
    lock(&[("package.json", PLAIN), ("yarn.lock", "")], &made, "yarn.lock")
}

#[test]
fn a_lock_of_yarn_4_is_followed_by_the_yarn_of_the_toolchain() {
    let server = Server::new();
    let lock = berry_lock();
    assert!(lock.contains("__metadata:"), "{lock}");
    let settings = (".yarnrc.yml", "nodeLinker: node-modules\n");
    let files = [("package.json", PLAIN), ("yarn.lock", lock.as_str()), settings];
    let id = server.declaring("plain", &files, json!({}));
    let build = server.build(&id);
    let log = built(&build);
    assert!(log.contains("$ yarn install --immutable\n"), "{log}");
    assert!(log.contains("Yarn 4."), "{log}");
    assert_eq!(super::installed(&build, "npm"), ["ms"]);
    assert_eq!(says(&server.session(&id), DAYS), "172800000\n");
    // A lock that does not fit the manifest is not mended.
    let other = PLAIN.replace("2.1.3", "2.1.2");
    let files = [("package.json", other.as_str()), ("yarn.lock", lock.as_str()), settings];
    let (reason, log) = server.refused("other", &files);
    assert!(reason.starts_with("`yarn install --immutable` ended with status"), "{reason}");
    assert!(log.contains("YN0028"), "{log}");
}

#[test]
fn a_lock_of_yarn_4_is_followed_by_the_yarn_of_the_project() {
    let server = Server::new();
    let release = "/usr/local/lib/yarn-berry/lib/node_modules/@yarnpkg/cli-dist/bin/yarn.js";
    let release = std::fs::read_to_string(release).expect("Yarn, as `xtask test` installs it");
    let files = [
        ("package.json", PLAIN),
        ("yarn.lock", &berry_lock()),
        // Without this setting Yarn unpacks nothing, and programs find packages by its own loader.
        (".yarnrc.yml", "yarnPath: .yarn/releases/yarn.cjs\n"),
        (".yarn/releases/yarn.cjs", &release),
    ];
    let id = server.declaring("plain", &files, json!({}));
    let build = server.build(&id);
    assert!(built(&build).contains("$ yarn install --immutable\n"), "{build}");
    assert_eq!(super::installed(&build, "npm"), ["ms"]);
    let script = "cd /env/plain; test ! -e node_modules; ls .yarn/cache | grep -c '^ms-npm-2.1.3'
        node -r ./.pnp.cjs -e 'console.log(require(\"ms\")(\"2d\"))'
        node .yarn/releases/yarn.cjs node -e 'console.log(require(\"ms\")(\"2d\"))'";
    assert_eq!(says(&server.session(&id), script), "1\n172800000\n172800000\n");
}

pub fn foreign_node_modules_are_left_out() {
    let server = Server::new();
    let files = [
        ("package.json", PLAIN),
        ("pnpm-lock.yaml", &pnpm_lock(PLAIN)),
        ("node_modules/.modules.yaml", "layoutVersion: 4\n"),
        ("node_modules/ms/index.js", "throw new Error('of another system');\n"),
        (".venv/bin/python", "of another system"),
    ];
    let (id, _) = server.ready("foreign", &files);
    let session = server.session(&id);
    assert_eq!(says(&session, DAYS), "172800000\n");
    assert_eq!(says(&session, "test -e /env/foreign/.venv || echo none"), "none\n");
}

pub fn the_source_keeps_what_was_uploaded() {
    let server = Server::new();
    let kept = "module.exports = 'of another system';\n";
    let files = [("package.json", PLAIN), ("node_modules/ms/index.js", kept)];
    let (id, _) = server.ready("foreign", &files);
    let path = format!("/v1/environments/{id}/files/node_modules/ms/index.js");
    let answer = server.daemon.ask("GET", &path, &json!({}));
    assert_eq!(String::from_utf8_lossy(&answer.body), kept);
    assert_eq!(says(&server.session(&id), DAYS), "172800000\n");
}

fn npm_lock() -> String {
    let made = ["/usr/bin/npm", "install", "--package-lock-only", "--silent"];
    lock(&[("package.json", PLAIN)], &made, "package-lock.json")
}

/// A lock that names parts of a package for other systems only.
pub fn a_lock_of_another_system_is_told() {
    let server = Server::new();
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let parts = format!(
        "\"optionalDependencies\": {{\"@ms/linux-{arch}\": \"1.0.0\"}}, \"version\": \"2.1.3\""
    );
    let lock = npm_lock().replace("\"version\": \"2.1.3\"", &parts);
    let files = [("package.json", PLAIN), ("package-lock.json", lock.as_str())];
    let id = server.declaring("native", &files, json!({}));
    let build = server.build(&id);
    let log = build["log"].as_str().unwrap();
    let hint = format!("package-lock.json lacks parts for this system (@ms/linux-{arch})");
    assert!(log.contains(&hint), "{log}");
    // Newer npm refuses such a lock. Whatever it does, the lock is as the owner wrote it.
    let path = format!("/v1/environments/{id}/files/package-lock.json");
    let answer = server.daemon.ask("GET", &path, &json!({}));
    assert_eq!(String::from_utf8_lossy(&answer.body), lock);
}

pub fn a_lock_of_this_system_is_not() {
    let server = Server::new();
    let lock = npm_lock();
    let (id, log) =
        server.ready("native", &[("package.json", PLAIN), ("package-lock.json", &lock)]);
    assert!(!log.contains("lacks parts"), "{log}");
    assert_eq!(says(&server.session(&id), "cat /env/native/package-lock.json"), lock);
}

#[test]
fn declared_packages_are_installed_beside_a_manifest() {
    let server = Server::new();
    let declared = json!({ "packages": { "npm": ["is-number@7.0.0"] } });
    let id = server.declaring("declared", &[("package.json", PLAIN)], declared);
    let build = server.build(&id);
    built(&build);
    assert_eq!(super::installed(&build, "npm"), ["is-number", "ms"]);
    let none = server.declaring(
        "none",
        &[],
        json!({ "packages": { "npm": ["no-such-package-at-all-7"] } }),
    );
    let (reason, _) = failed(&server.build(&none));
    assert!(reason.starts_with("`npm install --no-save"), "{reason}");
}
