//! The variables every command gets, so that tools work beside a project they cannot write.

use crate::store::Parts;
use hangar_runtime::ids::Slug;
use hangar_runtime::plan::{EGRESS_PORT, ENVIRONMENTS_DIR, HOME_DIR, Network, WORKSPACE_DIR};
use std::collections::BTreeMap;

/// Where every session finds the certificates the host trusts.
const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A command of a session.
    Session,
    /// An installer of a build. The project is not on its import paths: a file of the project
    /// named like a module of the installer would be run instead of it.
    Installer,
    /// `setup.sh` and what else of a project a build runs.
    Setup,
}

/// What the variables of a command depend on.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The environment it is beside.
    pub slug: Option<&'a Slug>,
    /// What the version has.
    pub parts: Parts,
    /// What it can reach.
    pub network: Network,
    /// Certificates instead of those of the host.
    pub ca_bundle: Option<&'a str>,
}

/// The variables of a command, by name.
#[must_use]
pub fn variables(setting: Setting<'_>, purpose: Purpose) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut set = |name: &str, value: &str| {
        all.insert(name.to_owned(), value.to_owned());
    };
    set("HOME", HOME_DIR);
    // A command can run anywhere; this names the one place whose files are its results.
    set("WORKSPACE", WORKSPACE_DIR);
    set("USER", "agent");
    set("LOGNAME", "agent");
    set("SHELL", "/bin/bash");
    set("LANG", "C.UTF-8");
    set("TERM", "xterm-256color");
    set("TMPDIR", "/tmp");
    set("PATH", SYSTEM_PATH);
    for (name, below_home) in CACHES {
        set(name, &format!("{HOME_DIR}/{below_home}"));
    }
    for (name, value) in SETTINGS {
        set(name, value);
    }
    for name in CERTIFICATES {
        set(name, setting.ca_bundle.unwrap_or(CA_BUNDLE));
    }
    if setting.network == Network::Egress {
        let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
        for name in PROXIES {
            set(name, &proxy);
        }
        set("NODE_USE_ENV_PROXY", "1");
        set("NO_PROXY", "localhost,127.0.0.1,::1");
        set("no_proxy", "localhost,127.0.0.1,::1");
    }
    let only = if purpose == Purpose::Session { SESSION_SETTINGS } else { BUILD_SETTINGS };
    for (name, value) in only {
        set(name, value);
    }
    if let Some(slug) = setting.slug {
        of_the_version(&format!("{ENVIRONMENTS_DIR}/{slug}"), setting.parts, purpose, &mut set);
    }
    all
}

/// Directories of a version with programs, in front of those of the system.
fn path(mount: &str, parts: Parts) -> String {
    let mut path = format!("{mount}/.venv/bin:{mount}/node_modules/.bin:");
    if parts.apt {
        for below in ["usr/local/bin", "usr/bin", "usr/sbin", "usr/games", "bin", "sbin"] {
            path.push_str(&format!("{mount}/apt/{below}:"));
        }
    }
    path + SYSTEM_PATH
}

/// Directories of unpacked Debian packages with libraries.
fn library_path(mount: &str) -> String {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let below =
        [format!("usr/lib/{triplet}"), "usr/lib".into(), format!("lib/{triplet}"), "lib".into()];
    below.map(|below| format!("{mount}/apt/{below}")).join(":")
}

fn of_the_version(mount: &str, parts: Parts, purpose: Purpose, set: &mut impl FnMut(&str, &str)) {
    set("PROJECT_ROOT", mount);
    set("PATH", &path(mount, parts));
    if parts.venv {
        set("VIRTUAL_ENV", &format!("{mount}/.venv"));
    }
    if parts.venv && purpose == Purpose::Session {
        // `uv run` in the project or in a copy of it runs what the version installed.
        set("UV_PROJECT_ENVIRONMENT", &format!("{mount}/.venv"));
    }
    if parts.apt {
        set("LD_LIBRARY_PATH", &library_path(mount));
    }
    if parts.go_modules {
        set("GOMODCACHE", &format!("{mount}/.go-modules"));
    }
    if parts.gems {
        set("BUNDLE_PATH", &format!("{mount}/.gems"));
        set("BUNDLE_FROZEN", "true");
    }
    if purpose != Purpose::Installer {
        set("PYTHONPATH", mount);
        set("NODE_PATH", &format!("{mount}/node_modules"));
    }
}

/// The variables as `execve` takes them.
#[must_use]
pub fn as_environment(variables: &BTreeMap<String, String>) -> Vec<Vec<u8>> {
    variables.iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect()
}

/// Directories that tools would else make beside the project or in places they cannot write.
/// `PYTHONPYCACHEPREFIX` is not among them: with it Python would not look at the compiled files
/// that lie in the version, and every session would compile all packages again.
const CACHES: &[(&str, &str)] = &[
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
    ("npm_config_cache", ".npm"),
    ("YARN_CACHE_FOLDER", ".cache/yarn"),
    ("PNPM_HOME", ".local/share/pnpm"),
    ("NODE_COMPILE_CACHE", ".cache/node-compile"),
    ("COREPACK_HOME", ".cache/corepack"),
    ("BABEL_CACHE_PATH", ".cache/babel.json"),
    ("UV_CACHE_DIR", ".cache/uv"),
    ("POETRY_CACHE_DIR", ".cache/pypoetry"),
    ("MYPY_CACHE_DIR", ".cache/mypy"),
    ("RUFF_CACHE_DIR", ".cache/ruff"),
    ("MPLCONFIGDIR", ".cache/matplotlib"),
    ("NUMBA_CACHE_DIR", ".cache/numba"),
    ("HF_HOME", ".cache/huggingface"),
    ("TORCH_HOME", ".cache/torch"),
    ("IPYTHONDIR", ".local/share/ipython"),
    ("HYPOTHESIS_STORAGE_DIRECTORY", ".cache/hypothesis"),
    ("CARGO_HOME", ".cargo"),
    ("CARGO_TARGET_DIR", ".cache/cargo-target"),
    ("GOPATH", "go"),
    ("GOCACHE", ".cache/go-build"),
    ("BUNDLE_USER_HOME", ".bundle"),
    ("BUNDLE_APP_CONFIG", ".bundle"),
];

const SETTINGS: &[(&str, &str)] = &[
    ("PYTEST_ADDOPTS", "-o cache_dir=/home/agent/.cache/pytest"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("npm_config_update_notifier", "false"),
    // Interpreters come from the toolchain; one that uv fetched would lie in a home that goes away.
    ("UV_PYTHON_DOWNLOADS", "never"),
    // Caches lie on another mount than the project: links between them fail, and each is reported.
    ("UV_LINK_MODE", "copy"),
    ("GOTOOLCHAIN", "local"),
    ("COREPACK_ENABLE_DOWNLOAD_PROMPT", "0"),
    ("NEXT_TELEMETRY_DISABLED", "1"),
    // The project belongs to nobody the session knows, and git would refuse to read it; the file
    // says otherwise. A git that was built elsewhere looks for it elsewhere. Settings in
    // variables would not do: git takes them away from what it starts to clone a repository.
    ("GIT_CONFIG_SYSTEM", "/etc/gitconfig"),
    ("GIT_OPTIONAL_LOCKS", "0"),
];

const CERTIFICATES: &[&str] = &[
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
];

const PROXIES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
    "ALL_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
    // Yarn 2 and newer look at no other variable.
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
];

/// What a session need not try: the version it reads is complete and does not change.
const SESSION_SETTINGS: &[(&str, &str)] = &[("UV_NO_SYNC", "1")];

/// Builds ask nothing and keep no cache: their home goes away with them.
const BUILD_SETTINGS: &[(&str, &str)] = &[
    ("CI", "1"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes -oConnectTimeout=20"),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_NO_CACHE_DIR", "1"),
    ("PIP_PROGRESS_BAR", "off"),
    ("PIP_ROOT_USER_ACTION", "ignore"),
    ("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring"),
    ("POETRY_NO_INTERACTION", "1"),
    // Compiled once here, because no session can.
    ("UV_COMPILE_BYTECODE", "1"),
    ("UV_NO_PROGRESS", "1"),
    ("npm_config_yes", "true"),
    ("npm_config_fund", "false"),
    ("npm_config_audit", "false"),
    ("npm_config_progress", "false"),
    ("npm_config_fetch_retry_mintimeout", "1000"),
    ("npm_config_fetch_retry_maxtimeout", "10000"),
    ("CARGO_TERM_PROGRESS_WHEN", "never"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn slug() -> Slug {
        Slug::parse("studio").unwrap()
    }

    fn beside(slug: &Slug, parts: Parts, network: Network) -> Setting<'_> {
        Setting { slug: Some(slug), parts, network, ca_bundle: None }
    }

    #[test]
    fn debian_packages_are_found_before_the_system_and_after_the_project() {
        let slug = slug();
        let parts = Parts { apt: true, ..Parts::default() };
        let all = variables(beside(&slug, parts, Network::None), Purpose::Session);
        let path: Vec<_> = all["PATH"].split(':').collect();
        let at = |wanted: &str| path.iter().position(|each| *each == wanted).unwrap();
        assert!(at("/env/studio/node_modules/.bin") < at("/env/studio/apt/usr/bin"));
        assert!(at("/env/studio/apt/usr/bin") < at("/usr/bin"));
        let triplet = format!("/env/studio/apt/usr/lib/{}-linux-gnu:", std::env::consts::ARCH);
        assert!(all["LD_LIBRARY_PATH"].starts_with(&triplet));
        let without = variables(beside(&slug, Parts::default(), Network::None), Purpose::Session);
        assert!(!without.contains_key("LD_LIBRARY_PATH"));
    }

    #[test]
    fn certificates_are_those_of_the_configuration() {
        let slug = slug();
        let own = Some("/usr/local/share/own.pem");
        let setting =
            Setting { ca_bundle: own, ..beside(&slug, Parts::default(), Network::Egress) };
        let all = variables(setting, Purpose::Session);
        for name in CERTIFICATES {
            assert_eq!(all[*name], "/usr/local/share/own.pem", "{name}");
        }
    }

    #[test]
    fn a_session_runs_what_the_version_installed() {
        let parts = Parts { venv: true, node_modules: true, ..Parts::default() };
        let slug = slug();
        let all = variables(beside(&slug, parts, Network::None), Purpose::Session);
        assert_eq!(
            all["PATH"],
            "/env/studio/.venv/bin:/env/studio/node_modules/.bin:/usr/local/bin:/usr/bin:/bin"
        );
        assert_eq!(all["PROJECT_ROOT"], "/env/studio");
        assert_eq!(all["VIRTUAL_ENV"], "/env/studio/.venv");
        assert!(all["PYTHONPATH"].starts_with("/env/studio"));
        assert!(all["NODE_PATH"].starts_with("/env/studio"));
    }

    #[test]
    fn nothing_is_cached_beside_the_project() {
        let slug = slug();
        let all = variables(beside(&slug, Parts::default(), Network::None), Purpose::Session);
        for (name, _) in CACHES {
            assert!(all[*name].starts_with("/home/agent/"), "{name}");
        }
        assert!(!all.contains_key("VIRTUAL_ENV"), "there is none");
    }

    #[test]
    fn only_egress_has_a_proxy() {
        let alone =
            |network| Setting { slug: None, parts: Parts::default(), network, ca_bundle: None };
        let none = variables(alone(Network::None), Purpose::Session);
        assert!(!none.contains_key("HTTPS_PROXY") && !none.contains_key("PROJECT_ROOT"));
        let egress = variables(alone(Network::Egress), Purpose::Session);
        assert_eq!(egress["HTTPS_PROXY"], "http://127.0.0.1:3128");
        assert_eq!(egress["npm_config_proxy"], "http://127.0.0.1:3128");
    }

    #[test]
    fn installers_do_not_import_the_project() {
        let slug = slug();
        let all = variables(beside(&slug, Parts::default(), Network::Egress), Purpose::Installer);
        assert!(!all.contains_key("PYTHONPATH") && !all.contains_key("NODE_PATH"));
        assert_eq!(all["PIP_NO_INPUT"], "1");
    }
}
