//! A: writing to the environment.

use super::{Control, Expected, control, owned};
use hangar_tests::probing::Owner;

const READ_ONLY: &str = "make-views-read-only";
const OVERLAY: &str = "overlay-views";
const LANDLOCK: &str = "enforce-landlock";
const OWNERS: &str = "map-owners";
const COMMAND_FILTER: &str = "install-command-filter";
const INIT_FILTER: &str = "install-init-filter";

/// Renames into and out of a mount are between two mounts, whoever asks.
const DELETE_EROFS: Expected = &[
    ("*", "EROFS"),
    ("rename out", "EXDEV"),
    ("rename in", "EXDEV"),
    ("exchange in and out", "EXDEV"),
];
const CREATE_EROFS: Expected = &[("*", "EROFS"), ("mknod of a device", "EPERM")];
const LINK_EROFS: Expected = &[("link inside", "EROFS"), ("link count changed", "none")];
const METADATA_EROFS: Expected = &[
    ("chmod file", "EROFS"),
    ("lchown directory", "EROFS"),
    ("utimensat root", "EROFS"),
    ("lchown link", "EROFS"),
    ("utimensat link", "EROFS"),
    ("fchmod by descriptor", "EROFS"),
    ("futimens to now by descriptor", "EROFS"),
    ("metadata changed", "none"),
];
const ATTRIBUTES_EROFS: Expected =
    &[("user attribute", "EROFS"), ("access list", "EROFS"), ("removexattr", "EROFS")];
const FLAGS_EROFS: Expected = &[("FS_IOC_SETFLAGS", "EROFS"), ("FS_IOC_FSSETXATTR", "EROFS")];
const REOPEN_EROFS: Expected = &[
    ("open through proc", "EROFS"),
    ("openat2 through proc", "EROFS"),
    ("reopen O_PATH", "EROFS"),
];

pub const CONTROLS: &[Control] = &[
    control(
        "P001",
        &[],
        &[
            (READ_ONLY, &[("*", "EROFS")]),
            (OVERLAY, &[("*", "EROFS")]),
            (LANDLOCK, &[("*", "EACCES")]),
        ],
    ),
    control(
        "P002",
        &[("mknod of a device", "EPERM")],
        &[
            (READ_ONLY, CREATE_EROFS),
            (OVERLAY, CREATE_EROFS),
            (LANDLOCK, &[("*", "EACCES"), ("mknod of a device", "EPERM")]),
        ],
    ),
    control(
        "P003",
        &[("rename out", "EXDEV"), ("rename in", "EXDEV"), ("exchange in and out", "EXDEV")],
        &[
            (READ_ONLY, DELETE_EROFS),
            (OVERLAY, DELETE_EROFS),
            (
                LANDLOCK,
                &[
                    ("*", "EACCES"),
                    ("rename out", "EXDEV|EACCES"),
                    ("rename in", "EXDEV|EACCES"),
                    ("exchange in and out", "EXDEV|EACCES"),
                ],
            ),
        ],
    ),
    control(
        "P004",
        &[
            ("link out", "EXDEV"),
            ("link out by descriptor", "EXDEV|ENOENT|EPERM"),
            ("link out through proc", "EXDEV"),
            ("link in", "EXDEV"),
        ],
        &[
            (READ_ONLY, LINK_EROFS),
            (OVERLAY, LINK_EROFS),
            (LANDLOCK, &[("link inside", "EACCES"), ("link count changed", "none")]),
        ],
    ),
    owned(
        Owner::Agent,
        control(
            "P005",
            &[
                ("fchmodat2 file", "ok|ENOSYS"),
                ("fchmodat2 directory", "ok|ENOSYS"),
                ("fchmodat2 root", "ok|ENOSYS"),
                // A link has no mode.
                ("fchmodat2 link", "EOPNOTSUPP|ENOSYS"),
            ],
            &[
                (READ_ONLY, METADATA_EROFS),
                (OVERLAY, METADATA_EROFS),
                (
                    OWNERS,
                    &[
                        ("chmod file", "EPERM|EOVERFLOW"),
                        ("lchown directory", "EPERM|EOVERFLOW"),
                        ("utimensat root", "EPERM|EOVERFLOW"),
                        ("lchown link", "EPERM|EOVERFLOW"),
                        ("fchmod by descriptor", "EPERM|EOVERFLOW"),
                        ("futimens to now by descriptor", "EACCES|EPERM|EOVERFLOW"),
                        ("metadata changed", "none"),
                    ],
                ),
            ],
        ),
    ),
    owned(
        Owner::Agent,
        control(
            "P006",
            &[
                ("security.capability", "EPERM"),
                ("trusted attribute", "EPERM"),
                ("setxattrat", "ok|ENOSYS"),
            ],
            &[
                (READ_ONLY, ATTRIBUTES_EROFS),
                (OVERLAY, ATTRIBUTES_EROFS),
                (
                    OWNERS,
                    &[
                        ("user attribute", "EPERM|EOVERFLOW"),
                        ("access list", "EPERM|EOVERFLOW"),
                        ("removexattr", "EPERM|EOVERFLOW"),
                    ],
                ),
                (COMMAND_FILTER, &[("setxattrat", "ENOSYS")]),
                (INIT_FILTER, &[("setxattrat", "ENOSYS")]),
            ],
        ),
    ),
    owned(
        Owner::Agent,
        control(
            "P007",
            &[
                ("FS_IOC_ENABLE_VERITY", "ok|EOPNOTSUPP|ENOTTY|EINVAL|EPERM"),
                ("FIFREEZE", "EPERM"),
                ("FITRIM", "EPERM"),
                ("EXT4_IOC_MIGRATE", "ok|ENOTTY"),
                ("EXT4_IOC_RESIZE_FS", "EPERM|ENOTTY"),
                ("FS_IOC_SETFSLABEL", "EPERM|ENOTTY"),
                ("file_setattr", "ok|ENOSYS"),
            ],
            &[
                (READ_ONLY, FLAGS_EROFS),
                (OVERLAY, FLAGS_EROFS),
                (OWNERS, &[("FS_IOC_SETFLAGS", "EPERM"), ("FS_IOC_FSSETXATTR", "EPERM")]),
                (COMMAND_FILTER, &[("file_setattr", "ENOSYS")]),
                (INIT_FILTER, &[("file_setattr", "ENOSYS")]),
            ],
        ),
    ),
    control(
        "P008",
        &[("write after F_SETFL", "EBADF")],
        &[
            (READ_ONLY, REOPEN_EROFS),
            (OVERLAY, REOPEN_EROFS),
            (
                LANDLOCK,
                &[
                    ("open through proc", "EACCES"),
                    ("openat2 through proc", "EACCES"),
                    ("reopen O_PATH", "EACCES"),
                ],
            ),
        ],
    ),
    control(
        "P009",
        &[
            ("map shared for writing", "EACCES"),
            ("mprotect a shared mapping", "EACCES"),
            ("file changed through /proc/self/mem", "none"),
        ],
        &[
            (COMMAND_FILTER, &[("process_madvise", "ENOSYS")]),
            (INIT_FILTER, &[("process_madvise", "ENOSYS")]),
        ],
    ),
    control(
        "P010",
        &[
            ("splice", "EBADF"),
            ("sendfile", "EBADF"),
            ("copy_file_range", "EBADF"),
            ("FICLONE", "EBADF"),
            ("FICLONERANGE", "EBADF"),
            // Not every file system can; the owner may on those that do.
            ("FIDEDUPERANGE", "ok|EOPNOTSUPP|EPERM|EINVAL|EBADF"),
            ("file changed", "none"),
        ],
        &[
            (COMMAND_FILTER, &[("vmsplice", "EPERM")]),
            (INIT_FILTER, &[("vmsplice", "EPERM")]),
            (OVERLAY, &[("FIDEDUPERANGE", "EROFS|EOPNOTSUPP|EPERM")]),
        ],
    ),
];
