//! E and F: system calls and Landlock.

use super::{Control, Expected, control};

const COMMAND_FILTER: &str = "install-command-filter";
const INIT_FILTER: &str = "install-init-filter";
const NAMESPACES: &str = "limit-namespaces";
const LANDLOCK: &str = "enforce-landlock";

const SWEPT: Expected =
    &[("call 165", "EPERM"), ("call 425", "ENOSYS"), ("call 442", "ENOSYS"), ("call 0", "ok")];
const IA32_KILLED: Expected = &[("int 0x80 getpid", "SIGSYS"), ("run it", "SIGSYS|ENOEXEC")];
const TRUNCATED: Expected = &[
    ("TIOCSTI into the own terminal", "EPERM"),
    ("TIOCSTI with garbage above", "EPERM"),
    ("clone with garbage above", "EPERM"),
    ("AF_VSOCK with garbage above", "EAFNOSUPPORT"),
];
const NO_SURFACE: Expected = &[
    ("io_uring_setup", "ENOSYS"),
    ("userfaultfd", "EPERM"),
    ("perf_event_open", "EPERM"),
    ("kcmp", "EPERM"),
    ("modify_ldt", "ENOSYS"),
    ("fanotify_init", "EPERM"),
    ("pidfd_getfd", "EPERM"),
    ("move_pages", "ENOSYS"),
];
const STILL_FILTERED: Expected = &[
    ("no filter is in force", "none"),
    ("refused calls stay refused below an allowing filter", "EPERM"),
];

pub const CONTROLS: &[Control] = &[
    control(
        "P036",
        &[("call 165", "ok"), ("call 425", "ok"), ("call 442", "ok"), ("call 0", "ok")],
        &[(COMMAND_FILTER, SWEPT), (INIT_FILTER, SWEPT)],
    ),
    control(
        "P038",
        &[("int 0x80 getpid", "ok|SIGSEGV"), ("run it", "ok|ENOEXEC")],
        &[(COMMAND_FILTER, IA32_KILLED), (INIT_FILTER, IA32_KILLED)],
    ),
    control(
        "P039",
        &[
            ("TIOCSTI into the own terminal", "ok|EIO"),
            ("TIOCSTI with garbage above", "ok|EIO"),
            ("AF_ALG with garbage above", "ok|EAFNOSUPPORT"),
            ("AF_VSOCK with garbage above", "ok|EAFNOSUPPORT"),
        ],
        &[
            (COMMAND_FILTER, TRUNCATED),
            (INIT_FILTER, TRUNCATED),
            (NAMESPACES, &[("clone with garbage above", "ENOSPC")]),
        ],
    ),
    control(
        "P040",
        // Most are refused to everybody but the root of the host, or not built.
        &[
            ("*", "ok|EPERM|EACCES|ENOSYS|EINVAL|EBADF|ENODEV"),
            ("kcmp", "ok"),
            ("fanotify_init", "ok"),
            ("pidfd_getfd", "ok"),
        ],
        &[(COMMAND_FILTER, NO_SURFACE), (INIT_FILTER, NO_SURFACE)],
    ),
    control("P041b", &[("raw clone3", "EINVAL")], &[]),
    control(
        "P041c",
        &[("switch filtering off", "EINVAL")],
        &[
            (COMMAND_FILTER, STILL_FILTERED),
            (INIT_FILTER, STILL_FILTERED),
            (NAMESPACES, &[("refused calls stay refused below an allowing filter", "ENOSPC")]),
        ],
    ),
    control(
        "P042",
        &[],
        &[
            ("make-views-read-only", &[("*", "EROFS")]),
            ("overlay-views", &[("*", "EROFS")]),
            (LANDLOCK, &[("*", "EACCES")]),
        ],
    ),
    control(
        "P045c",
        &[],
        &[
            (
                "become-agent",
                &[
                    ("trace another command", "ok"),
                    ("signal another command", "ok"),
                    ("signal init", "EPERM"),
                    ("kill init", "EPERM"),
                    ("trace init", "EPERM"),
                    ("open init by pidfd and signal it", "EPERM"),
                ],
            ),
            ("become-undumpable", &[("trace init", "EPERM")]),
            ("drop-bounding-set", &[("trace init", "EPERM")]),
        ],
    ),
];
