//! B: mounts, namespaces, special files.

use super::{Control, Expected, control, owned};
use hangar_tests::probing::Owner;

const COMMAND_FILTER: &str = "install-command-filter";
const INIT_FILTER: &str = "install-init-filter";
const AGENT: &str = "become-agent";
const BOUNDING: &str = "drop-bounding-set";
const CAPABILITIES: &str = "drop-capabilities";
const BITS: &str = "lock-securebits";
const LANDLOCK: &str = "enforce-landlock";
const LOCKED: &str = "lock-mounts";
const OVERLAY: &str = "overlay-views";
const NAMESPACES: &str = "limit-namespaces";

const REMOUNT_FILTERED: Expected =
    &[("remount the bind", "EPERM"), ("mount_setattr", "ENOSYS"), ("write afterwards", "EROFS")];
const REMOUNT_EPERM: Expected =
    &[("remount the bind", "EPERM"), ("mount_setattr", "EPERM"), ("write afterwards", "EROFS")];
const OVER_EPERM: Expected = &[("*", "EPERM")];
const TREE_EPERM: Expected = &[("*", "EPERM"), ("open_tree_attr", "EPERM|ENOSYS")];
const FSOPEN_EPERM: Expected = &[
    ("*", "EPERM"),
    ("fsopen ext4", "EPERM|ENODEV"),
    ("fsconfig with a long value", "EINVAL|EBADF"),
];
const NODES_EPERM: Expected = &[
    ("mknod null in workspace", "EPERM"),
    ("mknod disk in workspace", "EPERM"),
    ("mknod null in /tmp", "EPERM"),
    ("mknod disk in /tmp", "EPERM"),
    ("mknod null in /dev", "EPERM|EROFS"),
    ("mknod disk in /dev", "EPERM|EROFS"),
    ("mknod null in /dev/shm", "EPERM"),
    ("mknod disk in /dev/shm", "EPERM"),
];

pub const CONTROLS: &[Control] = &[
    control(
        "P013",
        &[("remount the file system", "EPERM")],
        &[
            (COMMAND_FILTER, REMOUNT_FILTERED),
            (INIT_FILTER, REMOUNT_FILTERED),
            (AGENT, REMOUNT_EPERM),
            (BOUNDING, REMOUNT_EPERM),
            (CAPABILITIES, REMOUNT_EPERM),
            (BITS, REMOUNT_EPERM),
            (LOCKED, REMOUNT_EPERM),
            // It has no say about mount_setattr, but the content stays as it is.
            (LANDLOCK, &[("remount the bind", "EPERM"), ("write afterwards", "EACCES")]),
            (OVERLAY, &[("write afterwards", "EROFS")]),
        ],
    ),
    control(
        "P014",
        &[],
        &[
            (COMMAND_FILTER, &[("*", "EPERM")]),
            (INIT_FILTER, &[("*", "EPERM")]),
            (AGENT, &[("*", "EPERM")]),
            (BOUNDING, &[("*", "EPERM")]),
            (LANDLOCK, &[("*", "EPERM"), ("umount every mount", "EPERM|EINVAL")]),
            (LOCKED, &[("*", "EINVAL")]),
        ],
    ),
    control(
        "P015",
        &[("open_tree_attr", "ok|ENOSYS")],
        &[
            (COMMAND_FILTER, &[("*", "ENOSYS")]),
            (INIT_FILTER, &[("*", "ENOSYS")]),
            (AGENT, TREE_EPERM),
            (BOUNDING, TREE_EPERM),
            (LANDLOCK, &[("move_mount onto the working directory", "EPERM")]),
            (LOCKED, &[("open_tree_attr", "EPERM|ENOSYS"), ("mount_setattr of the copy", "EPERM")]),
        ],
    ),
    control(
        "P016",
        // The environment is read-only, so it is no upper layer.
        &[("overlay with the environment as upper", "EINVAL|EROFS|EPERM")],
        &[
            (COMMAND_FILTER, OVER_EPERM),
            (INIT_FILTER, OVER_EPERM),
            (AGENT, OVER_EPERM),
            (BOUNDING, OVER_EPERM),
            (LANDLOCK, OVER_EPERM),
        ],
    ),
    control(
        "P017",
        // The user of a session has no capability; in namespaces of his own he has all.
        &[("tmpfs in the working directory", "EPERM")],
        &[
            (COMMAND_FILTER, &[("the same in nested namespaces", "EPERM")]),
            (INIT_FILTER, &[("the same in nested namespaces", "EPERM")]),
            (NAMESPACES, &[("the same in nested namespaces", "ENOSPC")]),
            (LANDLOCK, &[("the same in nested namespaces", "EPERM")]),
        ],
    ),
    control(
        "P018",
        // One is in that namespace already.
        &[("setns to the own one", "EINVAL")],
        &[
            (COMMAND_FILTER, &[("unshare", "EPERM"), ("clone", "EPERM"), ("clone3", "ENOSYS")]),
            (INIT_FILTER, &[("unshare", "EPERM"), ("clone", "EPERM")]),
            (NAMESPACES, &[("unshare", "ENOSPC"), ("clone", "ENOSPC"), ("clone3", "ENOSPC")]),
        ],
    ),
    control(
        "P019",
        &[
            ("fsopen ext4", "ok|ENODEV|EPERM"),
            // The kernel has been mended: a value of that length is refused.
            ("fsconfig with a long value", "EINVAL"),
        ],
        &[
            (COMMAND_FILTER, &[("*", "ENOSYS")]),
            (INIT_FILTER, &[("*", "ENOSYS")]),
            (AGENT, FSOPEN_EPERM),
            (BOUNDING, FSOPEN_EPERM),
        ],
    ),
    owned(
        Owner::Root,
        control(
            "P020",
            // Its own setuid file gives a user his own uid.
            &[("run it", "none")],
            &[
                ("deny-setuid-on-views", &[("setuid program in the environment", "none")]),
                ("set-no-new-privs", &[("setuid program in the environment", "none")]),
                // Entering a domain sets no_new_privs.
                (LANDLOCK, &[("setuid program in the environment", "none")]),
            ],
        ),
    ),
    control(
        "P021",
        NODES_EPERM,
        &[
            (COMMAND_FILTER, NODES_EPERM),
            (INIT_FILTER, NODES_EPERM),
            (
                "deny-devices-on-views",
                &[("read a planted node", "EACCES"), ("write a planted node", "EACCES")],
            ),
            (
                LANDLOCK,
                &[
                    ("mknod null in workspace", "EACCES"),
                    ("mknod disk in /tmp", "EACCES"),
                    ("write a planted node", "EACCES"),
                ],
            ),
        ],
    ),
    control(
        "P021b",
        &[("open_by_handle_at of inode 2", "EPERM")],
        &[
            (COMMAND_FILTER, &[("*", "EPERM")]),
            (INIT_FILTER, &[("*", "EPERM")]),
            (OVERLAY, &[("name_to_handle_at", "EOPNOTSUPP")]),
        ],
    ),
    control(
        "P021c",
        &[
            ("listmount", "ok|ENOSYS|EINVAL"),
            // There is no mount with this number.
            ("statmount", "ENOENT|ENOSYS|EINVAL"),
            ("parent of the pid namespace", "EPERM"),
            ("parent of the user namespace", "EPERM"),
            ("owner of the network namespace", "EPERM"),
            ("next mount namespace", "EPERM|ENOENT|ENOTTY"),
            ("previous mount namespace", "EPERM|ENOENT|ENOTTY"),
        ],
        &[
            (COMMAND_FILTER, &[("listmount", "ENOSYS"), ("statmount", "ENOSYS")]),
            (INIT_FILTER, &[("listmount", "ENOSYS"), ("statmount", "ENOSYS")]),
        ],
    ),
];
