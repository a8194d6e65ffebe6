//! G and H: between sessions, and what the launch could have left open.

use super::{Control, Expected, control, owned};
use hangar_tests::probing::Owner;

const AGENT: &str = "become-agent";
const UNDUMPABLE: &str = "become-undumpable";
const BOUNDING: &str = "drop-bounding-set";
const NETWORK: &str = "new-network-namespace+configure-network";

const NO_DESCRIPTORS: Expected =
    &[("more than the three streams", "none"), ("a stream that is a directory or a path", "none")];
const NOT_CAUGHT: Expected =
    &[("processes reached", "ok"), ("a process caught before it was confined", "none")];
const NO_PROGRAM: Expected = &[
    ("read the program of init", "ENOENT|EACCES"),
    ("write the program of init", "ENOENT|EACCES"),
];

pub const CONTROLS: &[Control] = &[
    control(
        "P054",
        &[],
        &[(UNDUMPABLE, &[("*", "none")]), (AGENT, &[("*", "none")]), (BOUNDING, &[("*", "none")])],
    ),
    control(
        "P057",
        &[
            ("holder: shared memory", "ok"),
            ("holder: message queue", "ok"),
            // Its mode does not let another uid write.
            ("message queue", "EACCES"),
        ],
        &[
            (
                "new-ipc-namespace",
                &[
                    ("shared memory", "ENOENT"),
                    ("semaphores", "ENOENT"),
                    ("messages", "ENOENT"),
                    ("message queue", "ENOENT"),
                    ("segments of others are listed", "none"),
                ],
            ),
            (
                "enforce-landlock",
                &[("holder: message queue", "EACCES"), ("message queue", "EACCES")],
            ),
        ],
    ),
    control(
        "P059",
        &[("pipes with a name", "none")],
        &[(NETWORK, &[("sockets in the network namespace", "none")])],
    ),
    control(
        "P060",
        &[],
        &[(NETWORK, &[("connect", "ECONNREFUSED")]), ("enforce-landlock", &[("connect", "EPERM")])],
    ),
    control(
        "P062",
        // The holder's lock is seen, and in the way.
        &[("flock", "EAGAIN"), ("foreign locks in /proc/locks", "none")],
        &[],
    ),
    control("P063", &[], &[]),
    owned(
        Owner::Agent,
        control(
            "P063b",
            // The tree belongs to the holder's user, not to the taker's.
            &[
                ("holder: write lease", "ok"),
                ("holder: read lease", "ok"),
                ("write lease", "EACCES"),
                ("read lease", "EACCES"),
            ],
            &[(
                "map-owners",
                &[("holder: write lease", "EACCES"), ("holder: read lease", "EACCES")],
            )],
        ),
    ),
    control(
        "P066",
        &[("descriptors of others", "none")],
        &[("connect-streams", NO_DESCRIPTORS), ("close-inherited-descriptors", NO_DESCRIPTORS)],
    ),
    control("P068", &[], &[(UNDUMPABLE, NOT_CAUGHT), (AGENT, NOT_CAUGHT)]),
    control(
        "P070",
        &[
            // It is in memory, and sealed.
            ("write the program of init", "EACCES|ETXTBSY|EPERM"),
            ("init's program in this process", "none"),
        ],
        &[(UNDUMPABLE, NO_PROGRAM), (AGENT, NO_PROGRAM), (BOUNDING, NO_PROGRAM)],
    ),
];
