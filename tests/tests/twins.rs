//! The legitimate twins of what is refused: tools that a strict session must not break, each by
//! comparing what it prints.

use hangar_tests::daemon::Daemon;
use hangar_tests::run::Place;
use hangar_tests::session::Session;
use serde_json::json;

/// What a tool is asked, and what it has to answer.
struct Twin {
    name: &'static str,
    script: &'static str,
    prints: &'static str,
}

/// Runs every script by bash in one session; each has a directory of its own in the workspace.
fn check(session: &Session<'_>, twins: &[Twin]) {
    let mut wrong = Vec::new();
    for Twin { name, script, prints } in twins {
        let directory = format!("/workspace/{}", name.replace(' ', "-"));
        let text = format!("set -e; mkdir {directory}; cd {directory}\n{script}");
        let ended = session.run(&json!({
            "command": ["bash", "-c", text], "timeout_ms": 120_000,
        }));
        if (ended.status().as_str(), ended.out().as_str()) != ("0", *prints) {
            let (status, cause) = (ended.status(), ended.cause());
            let (out, err) = (ended.out(), ended.err());
            wrong.push(format!("{name}: {status} {cause}\n{out}-- expected --\n{prints}-- {err}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The environment the tools run beside: a project that is a repository and has a venv.
fn with_environment(test: impl Fn(&Session<'_>)) {
    let place = Place::default();
    let daemon = Daemon::start(&place.state());
    let id = daemon.environment(
        "bench",
        &[
            ("requirements.txt", ""),
            ("bench.py", "def answer():\n    return 42\n"),
            ("setup.sh", REPOSITORY),
        ],
    );
    let build = daemon.build(&id, &json!({ "network": "none" }));
    assert_eq!(build["status"], "ready", "{build}");
    let session = daemon.session(&json!({ "environment": id, "network": "loopback" }));
    test(&session);
    session.delete();
    daemon.stop();
}

const REPOSITORY: &str = "set -e
git init -q -b main .
printf '.venv/\\n__pycache__/\\n' > .gitignore
git add .gitignore bench.py
git -c user.name=B -c user.email=b@example.org commit -q -m 'the bench'
";

/// A wheel is a zip archive with a few fixed names; its metadata needs no hashes.
const WHEEL: &str = "python3 - <<'END'
import zipfile
info = 'greeter-1.5.dist-info/'
with zipfile.ZipFile('greeter-1.5-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('greeter.py', 'def main():\\n    print(\"hello from the wheel\")\\n')
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: greeter\\nVersion: 1.5\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'entry_points.txt', '[console_scripts]\\ngreet = greeter:main\\n')
    wheel.writestr(info + 'RECORD', '')
END
";

#[test]
fn pip_and_python() {
    with_environment(|session| {
        let wheel = format!(
            "{WHEEL}python3 -m venv v\n{}",
            "
v/bin/pip install -q --no-index ./greeter-1.5-py3-none-any.whl
v/bin/pip list --format=freeze | grep -v -e ^pip= -e ^setuptools=
v/bin/greet
v/bin/pip uninstall -q -y greeter
v/bin/python -c 'import greeter' 2>&1 | tail -1
"
        );
        check(
            session,
            &[
                Twin {
                    name: "a venv and a wheel",
                    script: wheel.leak(),
                    prints: "greeter==1.5\nhello from the wheel\n\
                             ModuleNotFoundError: No module named 'greeter'\n",
                },
                Twin {
                    name: "pip of the environment",
                    script: "pip list --format=freeze | sed 's/=.*//'
python -c 'import bench; print(bench.answer(), bench.__cached__)'
pip install --no-index ./nothing 2>&1 | grep -c ERROR",
                    prints: "pip\nsetuptools\n\
                             42 /env/bench/__pycache__/bench.cpython-311.pyc\n1\n",
                },
                Twin {
                    name: "an sdist",
                    script: "mkdir s && cd s
printf '[build-system]\\nrequires=[]\\nbuild-backend=\"b\"\\nbackend-path=[\".\"]\\n' > pyproject.toml
cat > b.py <<'END'
import os, zipfile
def build_wheel(out, config_settings=None, metadata_directory=None):
    name = 'made-2.0-py3-none-any.whl'
    with zipfile.ZipFile(os.path.join(out, name), 'w') as wheel:
        wheel.write('made.py')
        wheel.writestr('made-2.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: made\\nVersion: 2.0\\n')
        wheel.writestr('made-2.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr('made-2.0.dist-info/RECORD', '')
    return name
END
echo 'print(\"made from source\")' > made.py
cd .. && tar -czf made-2.0.tar.gz s
pip install -q --no-index --target t ./made-2.0.tar.gz
PYTHONPATH=t python -m made",
                    prints: "made from source\n",
                },
                Twin {
                    name: "multiprocessing",
                    script: "cat > squares.py <<'END'
import multiprocessing as m

def square(n):
    return n * n

if __name__ == '__main__':
    for how in 'fork', 'spawn', 'forkserver':
        with m.get_context(how).Pool(3) as pool:
            print(how, sum(pool.map(square, range(100))))
    queue, event = m.Queue(), m.Event()
    process = m.Process(target=lambda: (event.wait(), queue.put('sent')))
    process.start(); event.set(); print(queue.get()); process.join(); print(process.exitcode)
    from multiprocessing import shared_memory
    block = shared_memory.SharedMemory(create=True, size=16)
    other = shared_memory.SharedMemory(block.name)
    block.buf[:5] = b'share'; print(bytes(other.buf[:5])); other.close(); block.close(); block.unlink()
END
python squares.py 2>&1",
                    prints: "fork 328350\nspawn 328350\nforkserver 328350\nsent\n0\nb'share'\n",
                },
                Twin {
                    name: "threads and subprocesses",
                    script: "python - <<'END'
import asyncio, concurrent.futures, subprocess, sys
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda n: n + 1, range(1000))))
async def main():
    child = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)
    out, _ = await child.communicate(b'through cat')
    print(out.decode(), child.returncode)
asyncio.run(main())
print(subprocess.run([sys.executable, '-c', 'raise SystemExit(7)']).returncode)
END",
                    prints: "500500\nthrough cat 0\n7\n",
                },
                Twin {
                    name: "sqlite",
                    script: "python - <<'END'
import sqlite3
for path in 'file.db', '/tmp/file.db', '/dev/shm/file.db', ':memory:':
    base = sqlite3.connect(path)
    mode = base.execute('pragma journal_mode=wal').fetchone()[0]
    base.execute('create table t (n integer)')
    base.executemany('insert into t values (?)', ((n,) for n in range(1000)))
    base.commit()
    print(mode, base.execute('select sum(n) from t').fetchone()[0])
END",
                    prints: "wal 499500\nwal 499500\nwal 499500\nmemory 499500\n",
                },
                Twin {
                    name: "ssl on loopback",
                    script: "openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -days 2 \
-subj /CN=localhost -addext subjectAltName=DNS:localhost 2> /dev/null
python - <<'END'
import http.server, ssl, threading, urllib.request
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'over tls')
    def log_message(self, *a): pass
server = http.server.HTTPServer(('localhost', 0), Hello)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('c.pem', 'k.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
trusting = ssl.create_default_context(cafile='c.pem')
url = f'https://localhost:{server.server_port}/'
print(urllib.request.urlopen(url, context=trusting).read().decode())
try:
    urllib.request.urlopen(url)
except urllib.error.URLError as error:
    print(type(error.reason).__name__)
print(len(ssl.create_default_context().get_ca_certs()) > 10)
END",
                    prints: "over tls\nSSLCertVerificationError\nTrue\n",
                },
            ],
        );
    });
}

#[test]
fn npm_and_node() {
    with_environment(|session| {
        check(
            session,
            &[
                Twin {
                    name: "npm",
                    script: "mkdir lib app
echo '{\"name\": \"lib\", \"version\": \"3.1.0\", \"bin\": \"cli.js\", \"main\": \"index.js\"}' > lib/package.json
echo 'module.exports = () => \"from the library\"' > lib/index.js
printf '#!/usr/bin/env node\\nconsole.log(require(\"./index.js\")() + \" as a program\")\\n' > lib/cli.js
tarball=$(npm pack --silent ./lib)
cd app
echo '{\"name\": \"app\", \"version\": \"1.0.0\", \"scripts\": {\"greet\": \"lib && node -p \\\"require(`lib`)()\\\"\", \"fails\": \"exit 3\"}}' | tr '`' \"'\" > package.json
npm install --silent --offline --no-audit --no-fund ../$tarball
npm ls --parseable | sed \"s|$PWD||\"
npm run --silent greet
npm run --silent fails || echo $?
npm ci --silent --offline --no-audit --no-fund
npx --no-install lib",
                    prints: "\n/node_modules/lib\nfrom the library as a program\n\
                             from the library\n3\nfrom the library as a program\n",
                },
                Twin {
                    name: "worker threads",
                    script: "cat > w.mjs <<'END'
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { fileURLToPath } from 'node:url';
if (isMainThread) {
  const sums = await Promise.all([1, 2, 3, 4].map((n) => new Promise((resolve) =>
    new Worker(fileURLToPath(import.meta.url), { workerData: n }).on('message', resolve))));
  console.log(sums.join(' '));
} else {
  let sum = 0;
  for (let i = 0; i < 1000; i++) sum += i * workerData;
  parentPort.postMessage(sum);
}
END
node w.mjs",
                    prints: "499500 999000 1498500 1998000\n",
                },
                Twin {
                    name: "child processes",
                    script: "cat > c.mjs <<'END'
import { execFileSync, spawn, fork } from 'node:child_process';
console.log(execFileSync('tr', ['a-z', 'A-Z'], { input: 'upper' }).toString());
const killed = spawn('sleep', ['1000']);
killed.on('exit', (code, signal) => {
  console.log(code, signal);
  const echo = fork('./echo.mjs');
  echo.on('message', (m) => { console.log(m); echo.disconnect(); });
  echo.send('over ipc');
});
killed.kill('SIGTERM');
END
echo 'process.on(\"message\", (m) => process.send(m + \" and back\"));' > echo.mjs
node c.mjs",
                    prints: "UPPER\nnull SIGTERM\nover ipc and back\n",
                },
                Twin {
                    name: "http and files",
                    script: "cat > h.mjs <<'END'
import http from 'node:http';
import fs from 'node:fs';
const server = http.createServer((request, response) => response.end('you asked for ' + request.url));
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const answer = await fetch(`http://127.0.0.1:${server.address().port}/page`);
console.log(answer.status, await answer.text());
server.close();
let watcher;
const seen = new Promise((resolve) => { watcher = fs.watch('.', (_, name) => resolve(name)); });
fs.writeFileSync('watched', 'x');
console.log(await seen);
watcher.close();
const unix = http.createServer((_, response) => response.end('over a socket file'));
await new Promise((resolve) => unix.listen('./sock', resolve));
http.get({ socketPath: './sock', path: '/' }, (r) => r.on('data', (d) => { console.log(`${d}`); unix.close(); }));
END
node h.mjs",
                    prints: "200 you asked for /page\nwatched\nover a socket file\n",
                },
                Twin {
                    name: "wasm and the jit",
                    script: "node -e '
const bytes = Uint8Array.from([0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11]);
WebAssembly.instantiate(bytes).then(({instance}) => console.log(instance.exports.add(40, 2)));
let sum = 0; for (let i = 0; i < 3e6; i++) sum = (sum + i * i) % 1000003; console.log(sum);
'",
                    prints: "999718\n42\n",
                },
            ],
        );
    });
}

#[test]
fn git_gcc_bash_and_tmux() {
    with_environment(|session| {
        check(
            session,
            &[
                Twin {
                    name: "git in the workdir",
                    script: "export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
git init -q -b main one; cd one
seq 1000 > numbers; git add numbers; git commit -q -m first
git checkout -q -b side; echo more >> numbers; git commit -q -a -m 'on the side'
git checkout -q main; echo other > other; git add other; git commit -q -m second
git merge -q --no-edit side; git log --format=%s --topo-order
echo changed > other; touch new; git status --porcelain
git stash -q; git status --porcelain
git gc -q; git fsck 2> /dev/null; git worktree add -q ../tree side; git -C ../tree log -1 --format=%s
cd ..; git clone -q one two; git -C two log --oneline | wc -l
git clone -q --bare one three; git -C two push -q ../three main:pushed; git -C three branch",
                    prints: "Merge branch 'side'\non the side\nsecond\nfirst\n M other\n?? new\n\
                             ?? new\non the side\n4\n* main\n  pushed\n  side\n",
                },
                Twin {
                    name: "git in the environment",
                    script: "cd /env/bench
git log --format='%an %s'; git status --porcelain; git ls-files
git diff --stat HEAD; git grep -n return
git clone -q /env/bench $OLDPWD/copy; cd $OLDPWD/copy; echo '# mine' >> bench.py
git status --porcelain; git -C /env/bench status --porcelain
touch /env/bench/x 2>&1 | sed 's/.*: //'",
                    prints: "B the bench\n?? requirements.txt\n?? setup.sh\n.gitignore\nbench.py\n\
                             bench.py:2:    return 42\n M bench.py\n?? requirements.txt\n\
                             ?? setup.sh\nRead-only file system\n",
                },
                Twin {
                    name: "gcc",
                    script: "cat > p.c <<'END'
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static void *add(void *n) {
    for (long i = 0; i < 10000; i++) { pthread_mutex_lock(&lock); sum += (long)n; pthread_mutex_unlock(&lock); }
    return NULL;
}
int main(void) {
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) if (pthread_create(&threads[i], NULL, add, (void *)i)) abort();
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    int fd = memfd_create(\"m\", 0);
    if (ftruncate(fd, 4096)) abort();
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fork() == 0) { shared[0] = 7; _exit(0); }
    sleep(1);
    while (shared[0] != 7) usleep(1000);
    printf(\"%ld %d\\n\", sum, shared[0]);
}
END
gcc -Wall -Werror -O2 -pthread p.c -o p && ./p
echo 'int twice(int n) { return 2 * n; }' > l.c && gcc -shared -fPIC l.c -o libl.so
python3 -c 'import ctypes; print(ctypes.CDLL(\"./libl.so\").twice(21))'
echo 'int main(void) { return x; }' | gcc -x c - 2>&1 | grep -o 'error: .*'",
                    prints: "280000 7\n42\nerror: \u{2018}x\u{2019} undeclared (first use in this function)\n",
                },
                Twin {
                    name: "bash",
                    script: "diff <(seq 3) <(seq 2) | head -1
cat <<END
here: $((1 << 10))
END
tr a-z A-Z <<< 'a string'
set -m; sleep 1000 & jobs | sed 's/  */ /g'; kill %1; wait %1 || echo \"status $?\"
coproc cat; echo round >&\"${COPROC[1]}\"; read -r line <&\"${COPROC[0]}\"; echo \"$line trip\"
kill $COPROC_PID; trap 'echo trapped' USR1; kill -USR1 $$
mkfifo f; (echo through a pipe > f &) ; cat f
exec 9> lock; flock -n 9 && echo locked; (flock -n lock true || echo held)
printf '%s\\n' /dev/fd/* > /dev/null; echo x | tee >(cat > t) > /dev/null; until [ -s t ]; do sleep 0.1; done; cat t
ulimit -c; nproc > /dev/null; id -un; umask",
                    prints: "3d2\nhere: 1024\nA STRING\n[1]+ Running sleep 1000 &\nstatus 143\n\
                             round trip\ntrapped\nthrough a pipe\nlocked\nheld\nx\n0\nagent\n0022\n",
                },
                Twin {
                    name: "tmux",
                    script: "tmux -f /dev/null new-session -d -s work -x 80 -y 24 'env PS1=\"> \" bash --norc --noprofile'
tmux send-keys -t work 'echo $((6 * 7)) | sed s/^/answer/; tty' Enter
for i in $(seq 600); do tmux capture-pane -p -t work | grep -q /dev/pts && break; sleep 0.1; done
tmux capture-pane -p -t work | grep -e ^answer -e ^/dev/pts/
tmux split-window -t work sleep 1000; tmux list-panes -t work | wc -l
tmux kill-server",
                    prints: "answer42\n/dev/pts/0\n2\n",
                },
                Twin {
                    name: "strace",
                    script: "echo content > file
strace -f -e trace=openat -o trace sh -c 'cat file'
grep -c '\"file\", O_RDONLY) *= 3' trace",
                    prints: "content\n1\n",
                },
                Twin {
                    name: "gdb",
                    script: "printf 'int inner(int n) { return n + 1; }\\nint main(void) { return inner(41); }\\n' > d.c
gcc -g -O0 d.c -o d
gdb -batch -nx -ex 'break inner' -ex run -ex 'print n' -ex backtrace -ex continue d 2>&1 |
grep -o -e '^$1 = .*' -e 'inner (n=41)' -e 'main ()' -e 'exited with code [0-9]*' | sort -u",
                    prints: "$1 = 41\nexited with code 052\ninner (n=41)\nmain ()\n",
                },
            ],
        );
    });
}
