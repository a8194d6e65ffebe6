//! Controls on the host, for barriers that no launch can leave out: there the probe has what it
//! looks for, and says so.

use hangar_probe::catalogue::probe;
use hangar_runtime::ids::Range;
use hangar_tests::probing::{Owner, Results, parse, prepare};
use hangar_tests::{peel, program, scratch};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

/// A probe run by root of the host, in a mount namespace that a script has furnished.
struct Ground {
    id: &'static str,
    /// Runs before; `$PROBE_ENV` and `$PROBE_WORKSPACE` are as in a session.
    furnish: &'static str,
    /// What the probe is started by and told.
    run: &'static str,
    succeed: &'static [&'static str],
}

const PLAIN: &str = r#"exec "$PROBE" "$ID""#;
const AT_BYSTANDER: &str = r#"exec "$PROBE" "$ID" --pid "$BYSTANDER""#;
/// Where everything is what a session must not have.
const DEVICES: &str = "mount -t tmpfs none /dev; mkdir /dev/net /dev/mapper /dev/pts; \
     for name in userfaultfd kvm fuse net/tun loop-control mapper/control vhost-net dri snd sda \
     console; do mknod /dev/$name c 1 3; done; touch /dev/ptmx /dev/pts/7; chown 65534 /dev/pts/7";
/// The attack itself has no control on a kernel that is mended; noticing it has.
const CHANGED: &str = r#"printf x > "$PROBE_ENV/file""#;

const GROUNDS: &[Ground] = &[
    Ground {
        id: "P009",
        furnish: CHANGED,
        run: PLAIN,
        succeed: &["file changed through /proc/self/mem"],
    },
    Ground { id: "P010", furnish: CHANGED, run: PLAIN, succeed: &["file changed"] },
    Ground { id: "P011", furnish: CHANGED, run: PLAIN, succeed: &["file changed through a pipe"] },
    Ground {
        id: "P021b",
        furnish: "",
        run: PLAIN,
        succeed: &["name_to_handle_at", "open_by_handle_at of inode 2"],
    },
    Ground {
        id: "P026",
        furnish: "",
        run: r#"exec unshare --user --keep-caps "$PROBE" "$ID""#,
        succeed: &["write own uid_map"],
    },
    Ground {
        id: "P031",
        furnish: "",
        run: PLAIN,
        succeed: &[
            "/proc/timer_list",
            "addresses in /proc/kallsyms",
            "addresses in /proc/iomem",
            "frame numbers in /proc/self/pagemap",
        ],
    },
    Ground { id: "P032", furnish: "", run: PLAIN, succeed: &["syslog read", "/dev/kmsg"] },
    Ground { id: "P041", furnish: DEVICES, run: PLAIN, succeed: &["open /dev/userfaultfd"] },
    Ground {
        id: "P045",
        furnish: DEVICES,
        run: PLAIN,
        succeed: &[
            "open /dev/kvm",
            "open /dev/fuse",
            "open /dev/net/tun",
            "open /dev/loop-control",
            "open /dev/mapper/control",
            "open /dev/vhost-net",
            "open /dev/dri",
            "open /dev/snd",
            "open /dev/sda",
            "open /dev/console",
        ],
    },
    Ground {
        id: "P053",
        furnish: "",
        run: AT_BYSTANDER,
        succeed: &[
            "signal the given process",
            "trace it",
            "open it by pidfd",
            "change its limits",
            "change its priority",
        ],
    },
    Ground {
        id: "P056",
        furnish: "mount -t tmpfs none /tmp; echo > /tmp/hangar-probe-planted",
        run: PLAIN,
        succeed: &["find in /tmp"],
    },
    Ground {
        id: "P064",
        furnish: "mount -t ramfs none /tmp",
        run: PLAIN,
        succeed: &["/tmp is something else", "directories of the host"],
    },
    Ground {
        id: "P067",
        furnish: r#"mkdir "$PROBE_WORKSPACE/gone"; cd "$PROBE_WORKSPACE/gone"; rmdir ../gone"#,
        run: PLAIN,
        succeed: &["working directory outside of the root"],
    },
    Ground {
        id: "P069",
        furnish: "",
        run: PLAIN,
        succeed: &["write to a masked name", "a masked name that tells something"],
    },
    Ground {
        id: "P071",
        furnish: DEVICES,
        run: PLAIN,
        succeed: &["open /dev/console", "terminals of others", "/dev/ptmx is something else"],
    },
];

/// The probe whose control needs a session with a socket of the host in it.
const SOCKETS: &str = "P061";

pub fn has(id: &str) -> bool {
    id == SOCKETS || GROUNDS.iter().any(|ground| ground.id == id)
}

pub fn holds(id: &str) {
    if id == SOCKETS {
        a_socket_that_is_there_is_found();
    }
    for ground in GROUNDS.iter().filter(|ground| ground.id == id) {
        let results = run(ground);
        for attempt in ground.succeed {
            assert!(probe(id).expect("known").expected(attempt).is_some(), "{id}: {attempt}");
            let got = results.get(*attempt).map_or("not tried", String::as_str);
            assert_eq!(got, "ok", "{id} on the host: {attempt}");
        }
    }
}

/// A process that is attacked, and ended with the value.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

fn run(ground: &Ground) -> Results {
    let place = scratch();
    let environment = place.path().join("env");
    prepare(&environment, Owner::Store);
    let workspace = place.path().join("workspace");
    std::fs::create_dir(&workspace).expect("mkdir");
    let target =
        Target(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("sleep"));
    let furnish = ground.furnish;
    let separator = if furnish.is_empty() { "" } else { " || exit 1; " };
    let script = format!("set -e; {furnish}{separator}{}", ground.run);
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .env("PROBE", program("hangar-probe"))
        .env("ID", ground.id)
        .env("BYSTANDER", target.0.id().to_string())
        .env("PROBE_ENV", &environment)
        .env("PROBE_WORKSPACE", &workspace)
        .stdin(Stdio::null())
        .output()
        .expect("unshare is there");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", ground.id);
    parse(ground.id, &String::from_utf8_lossy(&output.stdout))
}

/// P061: had anybody mounted a socket into the session, the probe would reach it.
fn a_socket_that_is_there_is_found() {
    use hangar_peel::spec::{Command, Session, Spec};
    let place = scratch();
    let environment = place.path().join("env");
    prepare(&environment, Owner::Store);
    let workdir = place.path().join("session-0/workdir");
    std::fs::create_dir_all(&workdir).expect("mkdir");
    let path = workdir.join("socket");
    let _listener = UnixListener::bind(&path).expect("bind");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let store = Range::default().store();
    std::os::unix::fs::chown(&path, Some(store), Some(store)).expect("chown");
    let outcome = peel(&Spec {
        directory: place.path().to_owned(),
        first_block: Some(hangar_tests::probing::first_block()),
        sessions: vec![Session { environment: Some(environment), ..Session::default() }],
        commands: vec![Command {
            arguments: vec![hangar_tests::probing::PROGRAM.into(), SOCKETS.into()],
            ..Command::default()
        }],
        ..Spec::default()
    });
    assert_eq!(outcome.error, None);
    let results = parse(SOCKETS, &outcome.commands[0].stdout);
    for attempt in ["sockets with a name", "sockets that answer"] {
        assert_eq!(results.get(attempt).map(String::as_str), Some("ok"), "{attempt}");
    }
}
