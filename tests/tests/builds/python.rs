//! Faults and twins of Python projects.

use super::{Server, borrowed, built, demo_of_uv, failed, installed, says};
use hangar_tests::repositories::Repositories;
use hangar_tests::session::Session;
use serde_json::json;

const COMPILED: &str = "import os, sys, importlib\n\
    for name in sys.argv[1:]:\n    cached = importlib.import_module(name).__cached__\n    \
    print(name, os.path.exists(cached), os.path.realpath(cached).split(os.sep)[1])";

fn compiled(session: &Session<'_>, names: &str) -> String {
    says(session, &format!("cd /workspace; python -c '{COMPILED}' {names}"))
}

pub fn modules_are_compiled_by_the_build() {
    let server = Server::new();
    let files = demo_of_uv();
    let (id, _) = server.ready("demo", &borrowed(&files));
    let session = server.session(&id);
    assert_eq!(compiled(&session, "six demo"), "six True env\ndemo True env\n");
}

pub fn modules_of_a_session_are_compiled_beside_them() {
    let server = Server::new();
    let (id, _) = server.ready("plain", &[("a.py", "")]);
    let session = server.session(&id);
    let script = "echo > own.py; export PYTHONPATH=.; python3 -c 'import own, os; print(os.path.exists(own.__cached__))'";
    assert_eq!(says(&session, script), "True\n");
}

pub fn programs_of_a_venv_run_where_they_were_installed() {
    let server = Server::new();
    let (id, _) = server.ready("venv", &[("requirements.txt", "wheel==0.45.1\n")]);
    let session = server.session(&id);
    let said = says(
        &session,
        "wheel version; /env/venv/.venv/bin/wheel version; command -v wheel
         source /env/venv/.venv/bin/activate; command -v python
         head -1 /env/venv/.venv/bin/wheel
         cd /env/venv/.venv; grep -rIl -e /run/hangar -e staging bin pyvenv.cfg | wc -l",
    );
    assert_eq!(
        said,
        "wheel 0.45.1\nwheel 0.45.1\n/env/venv/.venv/bin/wheel\n/env/venv/.venv/bin/python\n\
         #!/env/venv/.venv/bin/python3\n0\n"
    );
}

pub fn a_session_makes_a_venv_of_its_own() {
    let server = Server::new();
    let (id, _) = server.ready("plain", &[("a.py", "")]);
    let session = server.session(&id);
    let script =
        "python3 -m venv --without-pip own; own/bin/python -c 'import sys; print(sys.prefix)'";
    assert_eq!(says(&session, script), "/workspace/own\n");
}

pub fn uv_links_nothing_across_mounts() {
    let server = Server::new();
    let files = demo_of_uv();
    let (_, log) = server.ready("demo", &borrowed(&files));
    assert!(log.contains("$ uv sync --frozen"), "{log}");
    assert!(!log.contains("hardlink") && !log.contains("warning"), "{log}");
}

pub fn uv_has_a_cache_of_its_own() {
    let server = Server::new();
    let (id, _) = server.ready("plain", &[("a.py", "")]);
    let session = server.session(&id);
    let script = "uv cache dir; uv venv -q own; own/bin/python -c 'print(1)'";
    assert_eq!(says(&session, script), "/home/agent/.cache/uv\n1\n");
}

fn wide(text: &str) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(u16::to_le_bytes).collect()
}

fn encoded(bytes: &[u8]) {
    let server = Server::new();
    let id = server.declaring("encoded", &[], json!({}));
    server.put(&id, "requirements.txt", bytes);
    let build = server.build(&id);
    built(&build);
    assert!(installed(&build, "pip").contains(&"six".to_owned()), "{build}");
    let log = built(&server.build(&id));
    assert!(log.contains("taking the installed packages of an earlier build"), "{log}");
}

pub fn requirements_in_utf_16_are_installed() {
    encoded(&wide("six==1.17.0\r\n"));
}

pub fn requirements_with_a_byte_order_mark_are_installed() {
    encoded(b"\xef\xbb\xbfsix==1.17.0\r\n");
}

const CORE: &str = "[project]\nname = 'core'\nversion = '1'\n\
    [build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n";
/// A backend without dependencies: wheels are archives with a few fixed names.
const BACKEND: &str = "import os, zipfile
def make(out, name, files):
    info = f'{name}-1.dist-info/'
    with zipfile.ZipFile(os.path.join(out, f'{name}-1-py3-none-any.whl'), 'w') as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(info + 'METADATA', f'Metadata-Version: 2.1\\nName: {name}\\nVersion: 1\\n')
        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr(info + 'RECORD', '')
    return f'{name}-1-py3-none-any.whl'
def build_wheel(out, config_settings=None, metadata_directory=None):
    return make(out, 'core', {'core.py': open('src/core.py').read()})
def build_editable(out, config_settings=None, metadata_directory=None):
    return make(out, 'core', {'core.pth': os.path.abspath('src') + '\\n'})
";

fn local(line: &str) -> (Server, String) {
    let server = Server::new();
    let files = [
        ("requirements.txt", line),
        ("libs/core/pyproject.toml", CORE),
        ("libs/core/backend.py", BACKEND),
        ("libs/core/src/core.py", "VALUE = 'core'\n"),
    ];
    let (id, log) = server.ready("local", &files);
    assert!(
        log.contains("not kept for later builds: a requirement refers to local files"),
        "{log}"
    );
    (server, id)
}

pub fn editable_projects_are_found_from_anywhere() {
    let (server, id) = local("-e ./libs/core\n");
    let session = server.session(&id);
    let script = "cd /tmp; python -I -c 'import core; print(core.VALUE, core.__file__)'
        cat /env/local/.venv/lib/python3*/site-packages/*.pth | grep ^/";
    let expected = "core /env/local/libs/core/src/core.py\n/env/local/libs/core/src\n";
    assert_eq!(says(&session, script), expected);
}

pub fn local_projects_are_installed_whole() {
    let (server, id) = local("./libs/core\n");
    let session = server.session(&id);
    let script =
        "cd /tmp; python -I -c 'import core; print(core.__file__)' | grep -c site-packages";
    assert_eq!(says(&session, script), "1\n");
}

/// Asks git for its version, as setuptools-scm does, unless a variable has it.
fn from_git() -> (Server, String) {
    let server = Server::new();
    let backend = format!(
        "{BACKEND}import os, subprocess\n\
         version = os.environ.get('SETUPTOOLS_SCM_PRETEND_VERSION')\n\
         if not version:\n    subprocess.run(['git', 'describe'], check=True)\n"
    );
    let project = format!("{CORE}# setuptools-scm\n");
    let files = [
        ("pyproject.toml", project.as_str()),
        ("backend.py", &backend),
        ("src/core.py", "VALUE = 'core'\n"),
    ];
    let id = server.declaring("scm", &files, json!({}));
    (server, id)
}

pub fn a_version_from_git_is_told() {
    let (server, id) = from_git();
    let (reason, log) = failed(&server.build(&id));
    assert!(reason.starts_with("`pip install"), "{reason}");
    assert!(
        log.contains("give the build a variable such as SETUPTOOLS_SCM_PRETEND_VERSION"),
        "{log}"
    );
}

pub fn a_version_from_a_variable_is_taken() {
    let (server, id) = from_git();
    let variables = json!({ "variables": { "SETUPTOOLS_SCM_PRETEND_VERSION": "1" } });
    let build = server.daemon.build(&id, &variables);
    built(&build);
    assert!(installed(&build, "pip").contains(&"core".to_owned()), "{build}");
    let odd = json!({ "variables": { "A=B": "1" } });
    let answer = server.daemon.ask("POST", &format!("/v1/environments/{id}/build"), &odd);
    assert_eq!((answer.status, answer.json()["error"]["param"].clone()), (400, json!("variables")));
}

/// A package whose data setuptools-scm finds by asking git, imported by the address of its repository.
pub fn data_that_git_knows_is_installed() {
    let place = hangar_tests::run::Place::default();
    let repositories = Repositories::start(&place.path("repositories"));
    let project = "[project]\nname = 'scm'\ndynamic = ['version']\n\
        [build-system]\nrequires = ['setuptools==77.0.3', 'setuptools-scm==8.2.0']\n\
        build-backend = 'setuptools.build_meta'\n\
        [tool.setuptools]\npackages = ['scm']\n[tool.setuptools_scm]\n";
    let _commit = repositories.create("scm").commit(&[
        ("pyproject.toml", project.as_bytes()),
        ("scm/__init__.py", b""),
        ("scm/data.txt", b"chosen by git\n"),
    ]);
    let server = Server::new();
    let id = server.declaring("scm", &[], json!({}));
    let git = json!({ "git": { "url": repositories.url("scm.git") } });
    let told = server.daemon.post(&format!("/v1/environments/{id}/import"), &git);
    assert!(told["hints"][0].as_str().unwrap().contains("SETUPTOOLS_SCM_PRETEND_VERSION"));
    // Without the variable the reason is the project's own, and the log has the hint.
    let (_, log) = failed(&server.build(&id));
    assert!(log.contains("unable to detect version"), "{log}");
    assert!(log.contains("give the build a variable such as"), "{log}");
    let order = json!({ "variables": { "SETUPTOOLS_SCM_PRETEND_VERSION": "4.2" } });
    // The second time the packages are kept ones.
    for _ in 0..2 {
        built(&server.daemon.build(&id, &order));
        let script =
            "cd /tmp; python -I -c 'import importlib.metadata as m, importlib.resources as r
print(m.version(\"scm\"), r.files(\"scm\").joinpath(\"data.txt\").read_text().strip())'
            test -e /env/scm/.git || echo none";
        assert_eq!(says(&server.session(&id), script), "4.2 chosen by git\nnone\n");
    }
}

pub fn a_private_repository_fails_at_once() {
    let server = Server::with("[build]\nsilence_timeout_s = 60\n");
    let line = "git+https://git.invalid.example/p.git\ngit+ssh://git@git.invalid.example/q.git\n";
    for line in line.lines() {
        let id = server.declaring(&line[4..9], &[("requirements.txt", line)], json!({}));
        let (reason, log) = failed(&server.build(&id));
        assert!(
            reason.contains("`pip install -r requirements.txt` ended with status 1"),
            "{reason}"
        );
        assert!(log.contains("git.invalid.example"), "{log}");
    }
}

pub fn a_public_package_does_not() {
    let server = Server::new();
    let id = server.declaring("public", &[("requirements.txt", "six==1.17.0\n")], json!({}));
    let build = server.build(&id);
    built(&build);
    assert!(installed(&build, "pip").contains(&"six".to_owned()), "{build}");
}

pub fn an_interpreter_that_is_missing_is_told() {
    let server = Server::new();
    let mut files = demo_of_uv();
    files.push((".python-version", "3.99\n".to_owned()));
    let (reason, log) = server.refused("pinned", &borrowed(&files));
    assert!(reason.starts_with("`uv sync"), "{reason}");
    assert!(log.contains("3.99"), "{log}");
    let asked = json!({ "runtime": { "python": "3.99" } });
    let made = json!({ "name": "asked", "runtime": asked["runtime"] });
    let answer = server.daemon.ask("POST", "/v1/environments", &made);
    if answer.status == 200 {
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        server.put(&id, "requirements.txt", b"");
        let (reason, _) = failed(&server.build(&id));
        assert!(reason.contains("Python 3.99, which the toolchain"), "{reason}");
    }
}

pub fn the_interpreter_of_a_venv_is_readable() {
    let server = Server::new();
    let files = demo_of_uv();
    let (id, _) = server.ready("demo", &borrowed(&files));
    let session = server.session(&id);
    let script = "path=/env/demo/.venv/bin/python; while [ -L $path ]; do path=$(cd $(dirname $path); \
        realpath -s $(readlink $path)); test -r $path; done; echo $path | sed 's/[0-9.]*$//'";
    assert_eq!(says(&session, script), "/usr/bin/python\n");
}

pub fn uv_run_changes_nothing() {
    let server = Server::new();
    let files = demo_of_uv();
    let (id, _) = server.ready("demo", &borrowed(&files));
    let session = server.session(&id);
    let script = "cd /env/demo; uv run python -c 'import demo; print(demo.VALUE)'
        cp -a /env/demo $WORKSPACE/copy; cd $WORKSPACE/copy; uv run python -c 'import demo; print(demo.VALUE)'";
    assert_eq!(says(&session, script), "42\n42\n");
}

pub fn uv_runs_a_project_of_the_session() {
    let server = Server::new();
    let (id, _) = server.ready("plain", &[("a.py", "")]);
    let session = server.session(&id);
    let script =
        "mkdir own; cd own; printf '[project]\\nname=\"own\"\\nversion=\"1\"\\n' > pyproject.toml
        env -u UV_NO_SYNC uv run -q --offline python -c 'import sys; print(sys.prefix)'";
    assert_eq!(says(&session, script), "/workspace/own/.venv\n");
}

fn changed_six(server: &Server) -> String {
    let mut files = demo_of_uv();
    let change =
        "for f in .venv/lib/python3*/site-packages/six.py; do echo 'CHANGED = 1' >> $f; done\n";
    files.push(("setup.sh", change.to_owned()));
    server.ready("changed", &borrowed(&files)).0
}

pub fn builds_share_no_files() {
    let server = Server::new();
    changed_six(&server);
    let files = demo_of_uv();
    let (id, _) = server.ready("pristine", &borrowed(&files));
    let session = server.session(&id);
    let script = "python -c 'import six; print(hasattr(six, \"CHANGED\"))'";
    assert_eq!(says(&session, script), "False\n");
}

pub fn a_build_keeps_what_its_setup_changed() {
    let server = Server::new();
    let id = changed_six(&server);
    let script = "python -c 'import six; print(six.CHANGED)'";
    assert_eq!(says(&server.session(&id), script), "1\n");
    // What was kept for later builds is what the installer left, so it is changed once more.
    built(&server.build(&id));
    let script = "grep -c CHANGED /env/changed/.venv/lib/python3*/site-packages/six.py";
    assert_eq!(says(&server.session(&id), script), "1\n");
}

#[test]
fn a_lock_of_poetry_is_followed() {
    let project = "[tool.poetry]\nname = 'demo'\nversion = '1.0'\ndescription = ''\nauthors = []\n\
        packages = [{ include = 'demo', from = 'src' }]\n\
        [tool.poetry.dependencies]\npython = '^3.9'\n\
        [build-system]\nrequires = ['poetry-core']\nbuild-backend = 'poetry.core.masonry.api'\n";
    let files = [("pyproject.toml", project), ("src/demo/__init__.py", "VALUE = 42\n")];
    let lock = super::lock(&files, &["/usr/bin/poetry", "lock", "-n"], "poetry.lock");
    let server = Server::new();
    let (id, log) = server.ready("poems", &[files[0], files[1], ("poetry.lock", &lock)]);
    assert!(log.contains("$ poetry install --only-root"), "{log}");
    let script = "cd /tmp; python -I -c 'import demo; print(demo.VALUE)'";
    assert_eq!(says(&server.session(&id), script), "42\n");
    // An application need not say what builds it: its lock says that it is Poetry's.
    let project = "[tool.poetry]\nname = 'app'\nversion = '1.0'\ndescription = ''\nauthors = []\n\
        packages = [{ include = 'app.py' }]\n[tool.poetry.dependencies]\npython = '^3.9'\n";
    let files = [("pyproject.toml", project), ("app.py", "print('an application')\n")];
    let lock = super::lock(&files, &["/usr/bin/poetry", "lock", "-n"], "poetry.lock");
    let (id, log) = server.ready("app", &[files[0], files[1], ("poetry.lock", &lock)]);
    assert!(log.contains("$ poetry install --no-root"), "{log}");
    assert_eq!(
        says(&server.session(&id), "cd /tmp; python -I -c 'import app'"),
        "an application\n"
    );
}
