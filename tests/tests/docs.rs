//! Documents that are printed from code are what the code prints.
//!
//! `HANGAR_WRITE_DOCS=1 cargo nextest run -p hangar-tests --test docs` writes them anew.

use hangar_probe::catalogue::probes;
use hangar_runtime::steps;
use hangar_seccomp::Profile;
use hangar_tests::program;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root").to_owned()
}

fn compare(name: &str, wanted: &str) {
    let path = root().join(name);
    if std::env::var_os("HANGAR_WRITE_DOCS").is_some() {
        fs::write(&path, wanted).expect("write");
    }
    let now = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(now == wanted, "{name} is not what the code prints: write it with HANGAR_WRITE_DOCS=1");
}

#[test]
fn the_launch_sequence() {
    compare("docs/launch-sequence.md", &steps::markdown());
}

#[test]
fn the_system_call_filters() {
    let mut text = String::from(
        "# The system call filters\n\nPrinted from the tables in `seccomp/src/tables/`; a test \
         compares the two.\n",
    );
    for profile in [Profile::Command, Profile::Init, Profile::Worker] {
        let _ = write!(text, "\n{}", hangar_seccomp::markdown(profile));
    }
    compare("docs/seccomp.md", &text);
}

#[test]
fn the_probes() {
    let mut text = String::from(
        "# The probes\n\nPrinted from `tests/probe/src/catalogue/`; a test compares the two. Each \
         probe runs in a strict session, where every attempt gives what is expected, and with its \
         barriers left out, where the attack succeeds; each barrier is also tried alone. Where no \
         launch can do without a barrier, or none is named, the probe shows on the host that it \
         finds what it looks for. Both are in `tests/tests/probes/`.\n\n\
         | probe | tries to | barriers, by the steps of the launch | beside them |\n|---|---|---|---|\n",
    );
    for probe in probes() {
        let steps =
            probe.steps.iter().map(|step| format!("`{step}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "| {} | {} | {steps} | {} |", probe.id, probe.title, probe.beyond);
    }
    compare("docs/probes.md", &text);
}

/// The routes of the server, from the source of its router: `METHOD path`.
fn routes() -> BTreeSet<String> {
    let source = fs::read_to_string(root().join("src/api/mod.rs")).expect("read");
    let begin = source.find("pub fn router").expect("the router is there");
    let end = source[begin..].find("\n}\n").expect("it ends") + begin;
    // Three routers: what is nested below environments, what is nested below hangar, the rest.
    let routers: Vec<&str> = source[begin..end].split("Router::new()").skip(1).collect();
    let prefixes = ["/v1/environments", "/v1/hangar", ""];
    assert_eq!(routers.len(), prefixes.len(), "the router has other parts than this knows");
    let mut found = BTreeSet::new();
    for (router, prefix) in routers.into_iter().zip(prefixes) {
        for route in router.split(".route(").skip(1) {
            let (path, handlers) = route.split_once("\",").expect("a path and handlers");
            let path = path.trim().trim_start_matches('"');
            let path = if path == "/" { "" } else { path };
            let handlers = handlers.split(".layer(").next().expect("the first part");
            for method in ["get", "post", "put", "delete"] {
                if [" ", "."].iter().any(|before| handlers.contains(&format!("{before}{method}(")))
                {
                    found.insert(format!("{} {prefix}{path}", method.to_uppercase()));
                }
            }
        }
    }
    found
}

#[test]
fn every_endpoint_is_documented_and_nothing_else() {
    let text = fs::read_to_string(root().join("docs/api.md")).expect("read");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<String> =
        rows.filter(|row| row.contains(" /v1/")).map(str::to_owned).collect();
    let routes = routes();
    assert!(routes.len() > 40, "the router was not read: {routes:#?}");
    assert_eq!(documented, routes);
}

#[test]
fn every_number_that_is_served_is_documented_and_nothing_else() {
    let source = fs::read_to_string(root().join("src/observe/metrics.rs")).expect("read");
    let served: BTreeSet<&str> = source
        .lines()
        .filter_map(|line| {
            line.strip_prefix("const ")?.split_once("&str = \"")?.1.split('"').next()
        })
        .collect();
    let text = fs::read_to_string(root().join("docs/operation.md")).expect("read");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `hangar_")?.split('`').next());
    let documented: BTreeSet<String> = rows.map(|name| format!("hangar_{name}")).collect();
    assert!(served.len() > 10, "{served:?}");
    assert_eq!(documented.iter().map(String::as_str).collect::<BTreeSet<_>>(), served);
}

/// What `hangar … --help` prints, for a command and all below it.
fn help(words: &[String], text: &mut String) {
    let output = Command::new(program("hangar")).args(words).arg("--help").output().expect("run");
    assert!(output.status.success(), "{words:?}");
    let printed = String::from_utf8(output.stdout).expect("text");
    let level = if words.len() < 2 { "##" } else { "###" };
    let title = [&["hangar".to_owned()], words].concat().join(" ");
    let _ = write!(text, "\n{level} `{title}`\n\n```text\n{}\n```\n", printed.trim_end());
    let commands = printed.split("Commands:\n").nth(1).unwrap_or_default();
    let names = commands.lines().take_while(|line| line.starts_with("  "));
    let names = names.filter(|line| !line.starts_with("   "));
    for name in names.filter_map(|line| line.split_whitespace().next()) {
        if name != "help" {
            help(&[words, &[name.to_owned()]].concat(), text);
        }
    }
}

#[test]
fn the_command_line() {
    let mut text = String::from(
        "# The command line\n\nPrinted from `hangar --help`; a test compares the two. Every command but \
         `serve` and `doctor` is a client of the [API](api.md).\n",
    );
    help(&[], &mut text);
    compare("docs/cli.md", &text);
}

/// The isolation layer in the order in which a reviewer reads it.
const READING: [(&str, &str); 33] = [
    ("runtime/src/plan.rs", "what a session gets"),
    ("runtime/src/ids.rs", "names, uid blocks"),
    ("runtime/src/steps.rs", "the launch as a table"),
    ("runtime/src/launch/mod.rs", "the warden's side: park, launch, finish"),
    ("runtime/src/launch/namespaces.rs", "the child, its cgroups, its id map"),
    ("runtime/src/launch/stage_one.rs", "the child until it becomes init"),
    ("runtime/src/launch/views.rs", "what of the host a session sees"),
    ("runtime/src/launch/toolchain.rs", "the toolchain `host` and its /etc"),
    ("runtime/src/init/mod.rs", "init: confine, prove, serve"),
    ("runtime/src/init/root.rs", "the session's own root"),
    ("runtime/src/init/devices.rs", "/dev"),
    ("runtime/src/init/proc.rs", "/proc and its masks"),
    ("runtime/src/init/network.rs", "loopback and the proxy's listener"),
    ("runtime/src/init/locks.rs", "the second user namespace"),
    ("runtime/src/init/privileges.rs", "capabilities, securebits, no_new_privs"),
    ("runtime/src/init/landlock.rs", "the Landlock domain"),
    ("runtime/src/init/seccomp.rs", "installing the filters"),
    ("runtime/src/init/command.rs", "from a fork of init to a command"),
    ("runtime/src/init/serve.rs", "orders, output, ends of processes"),
    ("runtime/src/init/running.rs", "one running command"),
    ("runtime/src/proof/mod.rs", "the proof record"),
    ("runtime/src/proof/observe.rs", "reading the facts of a process"),
    ("runtime/src/proof/check.rs", "the warden's check"),
    ("runtime/src/wire/init.rs", "what crosses into a session"),
    ("runtime/src/wire/warden.rs", "what the API can ask"),
    ("runtime/src/wire/socket.rs", "messages with descriptors"),
    ("runtime/src/warden/state.rs", "the state directory by descriptors"),
    ("runtime/src/warden/requests.rs", "the verbs"),
    ("runtime/src/warden/worker.rs", "the worker's confinement"),
    ("seccomp/src/lib.rs", "the filter profiles"),
    ("runtime/sys/src/process.rs", "unsafe: processes"),
    ("runtime/sys/src/security.rs", "unsafe: seccomp, keys, Landlock's version"),
    ("runtime/sys/src/mount.rs", "unsafe: mount attributes"),
];

#[test]
fn the_reading_order() {
    let mut table = String::from("| file | lines | what |\n|---|---|---|\n");
    let mut total = 0;
    for (file, what) in READING {
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        total += text.lines().count();
        table.push_str(&format!("| [{file}]({file}) | {} | {what} |\n", text.lines().count()));
    }
    table.push_str(&format!("| together | {total} | |\n"));
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("read");
    let begin = "<!-- reading order: printed by tests/tests/docs.rs -->\n";
    let (before, rest) = text.split_once(begin).expect("the mark is there");
    let (_, after) = rest.split_once("<!-- end -->").expect("the end mark is there");
    compare("ARCHITECTURE.md", &format!("{before}{begin}{table}<!-- end -->{after}"));
}
