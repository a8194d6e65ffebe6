//! C and D: users, capabilities, /proc, keys, core dumps.

use super::{Control, Expected, control, owned};
use hangar_tests::probing::Owner;

const COMMAND_FILTER: &str = "install-command-filter";
const INIT_FILTER: &str = "install-init-filter";
const AGENT: &str = "become-agent";
const BOUNDING: &str = "drop-bounding-set";
const BITS: &str = "lock-securebits";
const LANDLOCK: &str = "enforce-landlock";
const MASKS: &str = "mask-proc";
const UNDUMPABLE: &str = "become-undumpable";

const PERSONALITIES_EPERM: Expected =
    &[("ADDR_NO_RANDOMIZE", "EPERM"), ("READ_IMPLIES_EXEC", "EPERM"), ("PER_LINUX32", "EPERM")];
const KEYS_EPERM: Expected = &[("*", "EPERM"), ("keys listed in /proc/keys", "none")];
const INIT_HIDDEN: Expected = &[("*", "ENOENT|EACCES"), ("processes of others", "none")];
const NO_CGROUPS: Expected = &[("mount cgroup", "EPERM"), ("mount cgroup2", "EPERM")];

pub const CONTROLS: &[Control] = &[
    control(
        "P022",
        &[],
        &[
            ("drop-bounding-set", &[("*", "none")]),
            ("drop-command-capabilities+drop-bounding-set", &[("*", "none")]),
        ],
    ),
    control(
        "P023",
        &[("clear no_new_privs", "EINVAL"), ("PR_SET_SECUREBITS", "EPERM")],
        &[
            ("set-no-new-privs", &[("no_new_privs is off", "none")]),
            (LANDLOCK, &[("no_new_privs is off", "none")]),
            (BITS, &[("securebits are open", "none"), ("PR_SET_KEEPCAPS", "EPERM")]),
        ],
    ),
    control(
        "P024",
        &[("supplementary groups", "none")],
        &[
            (AGENT, &[("*", "EPERM"), ("supplementary groups", "none"), ("setfsuid", "none")]),
            (COMMAND_FILTER, &[("setgroups", "EPERM")]),
            (BITS, &[("setgroups", "EPERM")]),
            (BOUNDING, &[("setgroups", "EPERM")]),
        ],
    ),
    owned(
        Owner::Root,
        control(
            "P027",
            &[("give a file a capability", "EPERM"), ("run it", "none")],
            &[
                ("deny-setuid-on-views", &[("file capability in the environment", "none")]),
                ("map-owners", &[("file capability in the environment", "none|EOVERFLOW|EPERM")]),
                // A capability that is asked for and cannot be had: the program does not run.
                (BOUNDING, &[("file capability in the environment", "EPERM")]),
            ],
        ),
    ),
    control(
        "P028",
        &[],
        &[(COMMAND_FILTER, PERSONALITIES_EPERM), (INIT_FILTER, PERSONALITIES_EPERM)],
    ),
    control(
        "P029",
        // These belong to the host, not to one of the session's namespaces.
        &[
            ("kernel/core_pattern", "EACCES"),
            ("kernel/modprobe", "EACCES|ENOENT"),
            ("vm/overcommit_memory", "EACCES"),
            ("net/ipv4/ping_group_range", "ok|EINVAL"),
            ("fs/binfmt_misc/register", "EACCES|ENOENT|ok"),
            ("kernel/ns_last_pid", "ok|ENOENT"),
        ],
        &[
            (
                MASKS,
                &[
                    ("net/ipv4/ip_forward", "EROFS"),
                    ("user/max_user_namespaces", "EROFS"),
                    ("anything that opens for writing", "none"),
                ],
            ),
            (AGENT, &[("net/ipv4/ip_forward", "EACCES"), ("user/max_user_namespaces", "EACCES")]),
            (
                BOUNDING,
                &[("net/ipv4/ip_forward", "EACCES"), ("user/max_user_namespaces", "EACCES")],
            ),
            ("lock-mounts", &[("net/ipv4/ip_forward", "EACCES")]),
        ],
    ),
    control(
        "P030",
        &[
            // It is in the keyring of the launcher's session, no user's.
            ("canary key in the user keyring", "ENOKEY"),
            ("canary key in the user session keyring", "ENOKEY"),
            // The kernel lists keys of ids that the user namespace has.
            ("keys listed in /proc/keys", "none"),
        ],
        &[
            (COMMAND_FILTER, KEYS_EPERM),
            (INIT_FILTER, KEYS_EPERM),
            (
                "join-new-keyring",
                &[
                    ("canary key in the session keyring", "ENOKEY"),
                    ("request_key", "ENOENT|ENOKEY"),
                ],
            ),
        ],
    ),
    control(
        "P033",
        &[
            ("mounted cgroup file systems", "none"),
            ("mount cgroup", "EPERM"),
            // The cgroup namespace is the host's then, and so is the right to mount it.
            ("mount cgroup2", "EPERM"),
            ("write to a cgroup", "ENOENT"),
        ],
        &[
            (
                "new-cgroup-namespace",
                // It hides the host's names; in it the session's root could mount.
                &[("path of the own cgroup on the host", "none"), ("mount cgroup2", "ok")],
            ),
            ("new-cgroup-namespace+install-command-filter", NO_CGROUPS),
            ("new-cgroup-namespace+install-init-filter", NO_CGROUPS),
            ("new-cgroup-namespace+become-agent", NO_CGROUPS),
            ("new-cgroup-namespace+enforce-landlock", NO_CGROUPS),
            ("new-cgroup-namespace+lock-mounts", NO_CGROUPS),
        ],
    ),
    control(
        "P034",
        &[
            ("processes of others", "none"),
            // Nothing is mapped at address 0.
            ("read mem of init", "EIO"),
            ("read stat of the given process", "ENOENT"),
        ],
        &[(UNDUMPABLE, INIT_HIDDEN), (AGENT, INIT_HIDDEN), (BOUNDING, INIT_HIDDEN)],
    ),
    control(
        "P035",
        &[],
        &[(
            "lower-resource-limits",
            &[("raise the limit of core files", "EPERM"), ("a crash dumps core", "none")],
        )],
    ),
];
