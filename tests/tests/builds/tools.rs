//! Tools that people use, on a project they cannot write: each by its exit status and output.

use super::{Server, built, says};
use serde_json::json;

struct Tool {
    name: &'static str,
    script: &'static str,
    prints: &'static str,
}

fn check(server: &Server, id: &str, tools: &[Tool]) {
    let session = server.session(id);
    let mut wrong = Vec::new();
    for Tool { name, script, prints } in tools {
        let text = format!("set -e -o pipefail\ncd $PROJECT_ROOT\n{script}");
        let request = json!({ "command": ["bash", "-c", text], "timeout_ms": 120_000 });
        let ended = session.run(&request);
        if (ended.status().as_str(), ended.out().as_str()) != ("0", *prints) {
            wrong.push(format!("{name}: {} {}\n{}", ended.status(), ended.out(), ended.err()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn python_tools_work_on_a_read_only_project() {
    let server = Server::new();
    let files = [
        (
            "requirements.txt",
            "pytest==8.3.5\nmypy==1.15.0\nruff==0.11.2\nmatplotlib==3.10.1\nhuggingface_hub==0.29.3\n",
        ),
        (
            "app.py",
            "import os\n\n\ndef answer() -> int:\n    return 42\n\n\nwrong: int = os.getpid()\n",
        ),
        (
            "test_app.py",
            "import app\n\n\ndef test_answer(tmp_path) -> None:\n    (tmp_path / 'x').write_text('x')\n    assert app.answer() == 42\n",
        ),
    ];
    let id = server.declaring("tools", &files, json!({}));
    let log = built(&server.build(&id));
    assert!(log.contains("Successfully installed"), "{log}");
    check(
        &server,
        &id,
        &[
            Tool {
                name: "pytest",
                script: "pytest -q 2>&1 | grep -o -e '1 passed' -e [Ww]arning; ls $HOME/.cache/pytest/CACHEDIR.TAG",
                prints: "1 passed\n/home/agent/.cache/pytest/CACHEDIR.TAG\n",
            },
            Tool {
                name: "mypy",
                script: "mypy app.py; ls $HOME/.cache/mypy | head -1",
                prints: "Success: no issues found in 1 source file\n3.11\n",
            },
            Tool {
                name: "ruff",
                script: "ruff check app.py; test -d $HOME/.cache/ruff/0.11.2 && echo cached",
                prints: "All checks passed!\ncached\n",
            },
            Tool {
                name: "ruff format",
                script: "ruff format --check app.py",
                prints: "1 file already formatted\n",
            },
            Tool {
                name: "matplotlib",
                script: "python -c 'import matplotlib; matplotlib.use(\"Agg\"); import matplotlib.pyplot as p; p.plot([1, 2]); p.savefig(\"/workspace/p.png\"); print(matplotlib.get_cachedir())'; head -c 4 /workspace/p.png | tail -c 3; echo",
                prints: "/home/agent/.cache/matplotlib\nPNG\n",
            },
            Tool {
                name: "huggingface",
                script: "python -c 'from huggingface_hub import constants as c; import os; os.makedirs(c.HF_HUB_CACHE); print(c.HF_HUB_CACHE)'",
                prints: "/home/agent/.cache/huggingface/hub\n",
            },
            Tool {
                name: "python",
                script: "python -c 'import app; print(app.__cached__)'",
                prints: "/env/tools/__pycache__/app.cpython-311.pyc\n",
            },
        ],
    );
}

/// Vite is in `node`, vitest in `main_job`.
#[test]
fn node_tools_work_on_a_read_only_project() {
    let server = Server::new();
    let package = r#"{"name": "tools", "version": "1.0.0", "scripts": {"hello": "echo hello"},
        "devDependencies": {"jest": "29.7.0", "webpack": "5.98.0",
        "webpack-cli": "6.0.1"}}"#;
    let files = [
        ("package.json", package),
        ("sum.js", "module.exports = (a, b) => a + b;\n"),
        ("sum.test.js", "test('adds', () => { expect(require('./sum')(40, 2)).toBe(42); });\n"),
        (
            "webpack.config.js",
            "module.exports = { mode: 'production', entry: './sum.js', output: { path: process.env.WORKSPACE + '/packed' } };\n",
        ),
    ];
    let id = server.declaring("tools", &files, json!({}));
    built(&server.build(&id));
    check(
        &server,
        &id,
        &[
            Tool {
                name: "npm",
                script: "npm run --silent hello; npm ls --depth=0 | grep -c jest",
                prints: "hello\n1\n",
            },
            Tool {
                name: "jest",
                script: "jest sum.test.js 2>&1 | grep -o 'Tests: *1 passed'",
                prints: "Tests:       1 passed\n",
            },
            Tool {
                name: "webpack",
                script: "webpack 2>&1 | grep -o 'compiled successfully'; ls $WORKSPACE/packed",
                prints: "compiled successfully\nmain.js\n",
            },
        ],
    );
    // What cannot work says so: a copy can.
    let ended = server.session(&id).bash("cd /env/tools; npm install 2>&1; echo status $?");
    assert!(ended.out().contains("EROFS") && !ended.out().contains("status 0"), "{}", ended.out());
    let copied =
        "cp -a /env/tools copy; cd copy; npm pkg set description=mine; npm run --silent hello";
    assert_eq!(says(&server.session(&id), copied), "hello\n");
}
