//! Git repositories and package registries behind an HTTP server that sessions can reach: in a network namespace of its
//! own, at an address that is neither this host's nor on the proxy's list.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Serves what `git http-backend` answers, some answers no git server would give, and the files of
/// registries as they are.
const SERVER: &str = r#"
import http.server, os, subprocess, sys, time, urllib.parse

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition('?')
        if path.startswith('/silent/'):
            time.sleep(600)
        if path.startswith('/to/'):
            self.send_response(302)
            self.send_header('Location', 'http://' + path[4:] + '?' + query)
            self.end_headers()
            return
        if path.startswith('/files/'):
            name = os.path.join(sys.argv[2], urllib.parse.unquote(path[1:]))
            name += 'index.html' if name.endswith('/') else ''
            data = open(name, 'rb').read() if os.path.isfile(name) else None
            self.send_response(404 if data is None else 200)
            self.send_header('Content-Type', 'text/html' if name.endswith('html') else 'application/octet-stream')
            self.send_header('Content-Length', str(len(data or b'')))
            self.end_headers()
            self.wfile.write(data or b'')
            return
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        environment = {
            'PATH': os.environ['PATH'], 'GIT_PROJECT_ROOT': sys.argv[2], 'GIT_HTTP_EXPORT_ALL': '1',
            'PATH_INFO': path, 'QUERY_STRING': query, 'REQUEST_METHOD': self.command,
            'CONTENT_TYPE': self.headers.get('Content-Type', ''),
            'CONTENT_LENGTH': str(len(body)), 'REMOTE_ADDR': self.client_address[0],
            'HTTP_CONTENT_ENCODING': self.headers.get('Content-Encoding', ''),
            'GIT_PROTOCOL': self.headers.get('Git-Protocol', ''),
        }
        answer = subprocess.run(['git', 'http-backend'], input=body, env=environment,
                                stdout=subprocess.PIPE).stdout
        head, _, data = answer.partition(b'\r\n\r\n')
        fields = dict(line.split(': ', 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop('Status', '200').split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    do_POST = do_GET

    def log_message(self, *arguments):
        pass

sys.stdin.readline()
server = http.server.ThreadingHTTPServer((sys.argv[1], 80), Handler)
print('ready', flush=True)
server.serve_forever()
"#;

/// A server and the directory of its repositories.
#[derive(Debug)]
pub struct Repositories {
    server: Child,
    root: PathBuf,
    address: String,
}

impl Repositories {
    /// Starts a server for the repositories that will be made in a directory.
    ///
    /// # Panics
    /// When the namespace or the server cannot be made.
    #[must_use]
    pub fn start(root: &Path) -> Self {
        fs::create_dir_all(root).expect("mkdir");
        // One network of four addresses for each process that tests, of those for benchmarks.
        let number = std::process::id() % 0x4000;
        let address = |host: u32| {
            format!(
                "198.{}.{}.{}",
                18 + (number >> 13),
                (number >> 6) & 127,
                ((number & 63) << 2) + host
            )
        };
        let (near, far) = (address(1), address(2));
        let mut server = Command::new("unshare")
            .args(["--net", "python3", "-c", SERVER, &far])
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let pid = server.id().to_string();
        let link = format!("hgit{number}");
        wait_for_namespace(&pid);
        for words in [
            vec!["ip", "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &pid],
            vec!["ip", "addr", "add", &format!("{near}/30"), "dev", &link],
            vec!["ip", "link", "set", &link, "up"],
            vec![
                "nsenter",
                "-t",
                &pid,
                "-n",
                "ip",
                "addr",
                "add",
                &format!("{far}/30"),
                "dev",
                "eth0",
            ],
            vec!["nsenter", "-t", &pid, "-n", "ip", "link", "set", "eth0", "up"],
        ] {
            let status = Command::new(words[0]).args(&words[1..]).status().expect("it starts");
            assert!(status.success(), "{words:?}: {status}");
        }
        server.stdin.as_mut().expect("piped").write_all(b"go\n").expect("write");
        let mut line = String::new();
        let stdout = server.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("read");
        assert_eq!(line, "ready\n");
        Self { server, root: root.to_owned(), address: far }
    }

    /// The address of a path on the server.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Puts a file on the server; it is `files/PATH` there.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join("files").join(path);
        fs::create_dir_all(path.parent().expect("it lies in a directory")).expect("mkdir");
        fs::write(&path, content).expect("write");
        path
    }

    /// Makes an empty repository, called `NAME.git` on the server.
    ///
    /// # Panics
    /// When git fails.
    #[must_use]
    pub fn create(&self, name: &str) -> Repository {
        let repository = Repository { path: self.root.join(format!("{name}.git")) };
        fs::create_dir_all(&repository.path).expect("mkdir");
        let _initialised = repository.git(&["init", "-q", "-b", "main", "."]);
        repository
    }
}

impl Drop for Repositories {
    fn drop(&mut self) {
        // The namespace goes with its last process, and the link with the namespace.
        let _gone = kill_process(Pid::from_child(&self.server), Signal::KILL);
        let _ended = self.server.wait();
    }
}

/// Waits until the child is in a namespace of its own; before, the link would go to ours.
fn wait_for_namespace(pid: &str) {
    let own = fs::read_link("/proc/self/ns/net").expect("it is there");
    crate::processes::wait_for("a network namespace", || {
        let its = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        (its != own).then_some(())
    });
}

/// A repository with a work tree, on the host; only these tests write it.
#[derive(Debug)]
pub struct Repository {
    path: PathBuf,
}

impl Repository {
    /// Runs git in it; its output without the last newline.
    ///
    /// # Panics
    /// When git fails.
    #[must_use]
    pub fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.current_dir(&self.path).args(arguments);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", "/nonexistent");
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "tester");
            command.env(format!("GIT_{role}_EMAIL"), "tester@invalid");
        }
        let output = command.output().expect("git starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Where a path of the work tree is.
    #[must_use]
    pub fn at(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    /// Writes files and commits everything; the commit's id.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn commit(&self, files: &[(&str, &[u8])]) -> String {
        for (path, content) in files {
            let path = self.at(path);
            fs::create_dir_all(path.parent().expect("it lies in the repository")).expect("mkdir");
            fs::write(path, content).expect("write");
        }
        let _staged = self.git(&["add", "-A"]);
        let _committed = self.git(&["commit", "-q", "--allow-empty", "-m", "a commit"]);
        self.git(&["rev-parse", "HEAD"])
    }
}
