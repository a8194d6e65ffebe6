//! Ten projects of different shapes: each is built, fails or is refused as it should.

use super::{Server, built, installed, lock, says};
use serde_json::json;

#[test]
fn a_django_site() {
    let server = Server::new();
    let settings = "SECRET_KEY = 'x'\nROOT_URLCONF = 'site_urls'\nALLOWED_HOSTS = ['*']\nINSTALLED_APPS = []\n\
        DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}\n";
    let files = [
        ("requirements.txt", "Django==5.1.7\n"),
        ("site_settings.py", settings),
        (
            "site_urls.py",
            "from django.http import HttpResponse\nfrom django.urls import path\nurlpatterns = [path('', lambda request: HttpResponse('hello from django'))]\n",
        ),
    ];
    let (id, _) = server.ready("django", &files);
    let script = "export DJANGO_SETTINGS_MODULE=site_settings; django-admin check
        python -c 'import django; django.setup(); from django.test import Client; print(Client().get(\"/\").content.decode())'";
    let said = says(&server.session(&id), script);
    assert!(said.contains("no issues") && said.ends_with("hello from django\n"), "{said}");
}

#[test]
fn a_fastapi_service_locked_by_uv() {
    let server = Server::new();
    let project = "[project]\nname = 'service'\nversion = '1.0'\nrequires-python = '>=3.9'\n\
        dependencies = ['fastapi==0.115.12', 'httpx==0.28.1']\n";
    let app = "from fastapi import FastAPI\n\napp = FastAPI()\n\n\n@app.get('/')\ndef root():\n    return {'says': 'hello from fastapi'}\n";
    let made = ["/usr/local/bin/uv", "lock", "--quiet", "--python", "/usr/bin/python3"];
    let lock = lock(&[("pyproject.toml", project)], &made, "uv.lock");
    let files = [("pyproject.toml", project), ("uv.lock", &lock), ("main.py", app)];
    let (id, log) = server.ready("fastapi", &files);
    assert!(log.contains("$ uv sync --frozen"), "{log}");
    let script = "python -c 'from fastapi.testclient import TestClient; import main; print(TestClient(main.app).get(\"/\").json()[\"says\"])'";
    assert_eq!(says(&server.session(&id), script), "hello from fastapi\n");
}

#[test]
fn scientific_python_with_native_wheels() {
    let server = Server::new();
    let (id, _) = server.ready("science", &[("requirements.txt", "numpy==2.2.4\n")]);
    let script = "python -c 'import numpy as n; print(n.linalg.det(n.array([[2.0, 0.0], [0.0, 21.0]])).round(3))'";
    assert_eq!(says(&server.session(&id), script), "42.0\n");
}

#[test]
fn a_package_with_an_extension_in_c() {
    let server = Server::new();
    let files = [
        (
            "pyproject.toml",
            "[project]\nname = 'native'\nversion = '1.0'\n[build-system]\nrequires = ['setuptools==77.0.3']\nbuild-backend = 'setuptools.build_meta'\n",
        ),
        (
            "setup.py",
            "from setuptools import Extension, setup\nsetup(packages=[], ext_modules=[Extension('native', ['native.c'])])\n",
        ),
        (
            "native.c",
            "#include <Python.h>\nstatic PyObject *answer(PyObject *self, PyObject *none) { return PyLong_FromLong(42); }\nstatic PyMethodDef methods[] = {{\"answer\", answer, METH_NOARGS, NULL}, {NULL}};\nstatic struct PyModuleDef module = {PyModuleDef_HEAD_INIT, \"native\", NULL, -1, methods};\nPyMODINIT_FUNC PyInit_native(void) { return PyModule_Create(&module); }\n",
        ),
    ];
    let (id, _) = server.ready("native", &files);
    let script = "cd /tmp; python -I -c 'import native; print(native.answer())'";
    assert_eq!(says(&server.session(&id), script), "42\n");
}

#[test]
fn a_typescript_monorepo_with_workspaces() {
    let server = Server::new();
    let root = r#"{"name": "mono", "version": "1.0.0", "private": true, "workspaces": ["packages/*"],
        "devDependencies": {"typescript": "5.8.2"}}"#;
    let files = [
        ("package.json", root),
        (
            "packages/lib/package.json",
            r#"{"name": "@mono/lib", "version": "1.0.0", "main": "index.js", "types": "index.d.ts"}"#,
        ),
        ("packages/lib/index.js", "exports.word = () => 'from the library';\n"),
        ("packages/lib/index.d.ts", "export function word(): string;\n"),
        (
            "packages/app/package.json",
            r#"{"name": "@mono/app", "version": "1.0.0", "dependencies": {"@mono/lib": "1.0.0"}}"#,
        ),
        (
            "packages/app/main.ts",
            "import { word } from '@mono/lib';\nconst said: string = word();\nconsole.log(said);\n",
        ),
        (
            "tsconfig.json",
            r#"{"compilerOptions": {"module": "commonjs", "moduleResolution": "node10", "target": "es2022", "strict": true, "types": []}, "include": ["packages/app"]}"#,
        ),
        ("setup.sh", "tsc -p . --outDir built\n"),
    ];
    let (id, log) = server.ready("mono", &files);
    assert!(log.contains("not kept for later builds: package.json has workspaces"), "{log}");
    let script = "cd /env/mono; node built/main.js; tsc -p . --noEmit; echo checked";
    assert_eq!(says(&server.session(&id), script), "from the library\nchecked\n");
}

#[test]
fn a_mixed_project() {
    let server = Server::new();
    let files = [
        ("requirements.txt", "six==1.17.0\n"),
        (
            "package.json",
            r#"{"name": "mixed", "version": "1.0.0", "dependencies": {"ms": "2.1.3"}}"#,
        ),
        ("Cargo.toml", "[package]\nname = \"mixed\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
        (
            "Cargo.lock",
            "# This file is automatically @generated by Cargo.\n# It is not intended for manual editing.\nversion = 3\n\n[[package]]\nname = \"mixed\"\nversion = \"0.1.0\"\n",
        ),
        ("src/main.rs", "fn main() { println!(\"rust\"); }\n"),
        ("go.mod", "module example.org/mixed\n\ngo 1.19\n"),
        ("go/main.go", "package main\n\nfunc main() { println(\"go\") }\n"),
        (
            "setup.sh",
            "cargo build -q --offline --target-dir $HOME/t && cp $HOME/t/debug/mixed . && go build -o mixed-go ./go\n",
        ),
    ];
    let id = server.declaring("mixed", &files, json!({}));
    let build = server.build(&id);
    built(&build);
    assert!(installed(&build, "pip").contains(&"six".to_owned()), "{build}");
    assert_eq!(installed(&build, "npm"), ["ms"]);
    let script = "python -c 'import six; print(\"python\")'; node -p 'require(\"ms\") && \"node\"'
        /env/mixed/mixed; /env/mixed/mixed-go 2>&1";
    assert_eq!(says(&server.session(&id), script), "python\nnode\nrust\ngo\n");
    let again = built(&server.build(&id));
    assert!(again.contains("taking the installed packages of an earlier build"), "{again}");
}

#[test]
fn a_broken_lock_file() {
    let server = Server::new();
    let package = r#"{"name": "broken", "version": "1.0.0", "dependencies": {"ms": "2.1.3"}}"#;
    let lock = r#"{"name": "broken", "version": "1.0.0", "lockfileVersion": 3, "packages": {"": {"dependencies": {"ms": "1.0.0"}}}}"#;
    let files = [("package.json", package), ("package-lock.json", lock)];
    let (reason, log) = server.refused("broken", &files);
    assert_eq!(reason, "`npm ci` ended with status 1");
    assert!(log.contains("package.json and package-lock.json"), "{log}");
}

#[test]
fn a_setup_that_hangs() {
    let server = Server::with("[build]\nsilence_timeout_s = 3\n");
    let (reason, _) = server.refused("hangs", &[("setup.sh", "echo begins; sleep 1000\n")]);
    assert_eq!(reason, "the build printed nothing for 3 s");
}

// A page bundled by Vite is in `node`, a tool in Rust in `others`: with them there are ten.
