//! B: mounts, namespaces, special files.

use super::{Attempt, Probe, attempt};
use crate::mounts;

/// Steps that keep mounts as they are, even for the session's root.
const LOCKED: &[&str] = &[
    "install-command-filter",
    "install-init-filter",
    "drop-command-capabilities",
    "become-agent",
    "drop-bounding-set",
    "drop-capabilities",
    "lock-securebits",
    "enforce-landlock",
    "lock-mounts",
];

/// The same, and the overlay, which is read-only in itself.
const LOCKED_AND_OVERLAID: &[&str] = &[
    "install-command-filter",
    "install-init-filter",
    "drop-command-capabilities",
    "become-agent",
    "drop-bounding-set",
    "drop-capabilities",
    "lock-securebits",
    "enforce-landlock",
    "lock-mounts",
    "overlay-views",
];

/// B: mounts, namespaces, special files.
pub const MOUNTS: &[Probe] = &[
    Probe {
        id: "P013",
        title: "make the mount writable",
        attempts: &[
            attempt("remount the bind", "EPERM"),
            attempt("remount the file system", "EPERM"),
            attempt("mount_setattr", "ENOSYS"),
            attempt("write afterwards", "EROFS"),
        ],
        steps: LOCKED_AND_OVERLAID,
        needed: &[],
        beyond: "the file system as a whole: the kernel wants a capability of the host",
        run: mounts::remount,
    },
    Probe {
        id: "P014",
        title: "unmount to see what is below",
        attempts: &[
            attempt("umount the environment", "EPERM"),
            attempt("umount a mask", "EPERM"),
            attempt("umount every mount", "EPERM"),
        ],
        steps: LOCKED,
        needed: &[],
        beyond: "",
        run: mounts::unmount,
    },
    Probe {
        id: "P015",
        title: "copy the mount and make the copy writable",
        attempts: &[
            attempt("open_tree", "ENOSYS"),
            attempt("open_tree_attr", "ENOSYS"),
            attempt("mount_setattr of the copy", "ENOSYS"),
            attempt("move_mount onto the working directory", "ENOSYS"),
        ],
        steps: LOCKED,
        needed: &[],
        beyond: "",
        run: mounts::clone_tree,
    },
    Probe {
        id: "P016",
        title: "mount over what others trust",
        attempts: &[
            attempt("tmpfs over the environment", "EPERM"),
            attempt("bind over the environment", "EPERM"),
            attempt("tmpfs over /opt", "EPERM"),
            attempt("bind over /opt", "EPERM"),
            attempt("tmpfs over /usr", "EPERM"),
            attempt("bind over /usr", "EPERM"),
            attempt("bind over a file of /etc", "EPERM"),
            attempt("overlay with the environment as upper", "EPERM"),
        ],
        steps: LOCKED,
        needed: &[],
        beyond: "the environment as upper layer: it is read-only",
        run: mounts::mount_over,
    },
    Probe {
        id: "P017",
        title: "a mount that would show outside",
        attempts: &[
            attempt("tmpfs in the working directory", "EPERM"),
            attempt("the same in nested namespaces", "EPERM"),
        ],
        steps: &[
            "install-command-filter",
            "install-init-filter",
            "limit-namespaces",
            "enforce-landlock",
            "make-propagation-private",
        ],
        needed: &["new-mount-namespace"],
        beyond: "the host compares its mount table",
        run: mounts::propagate,
    },
    Probe {
        id: "P018",
        title: "a user namespace of one's own",
        attempts: &[
            attempt("unshare", "EPERM"),
            attempt("clone", "EPERM"),
            attempt("clone3", "ENOSYS"),
            attempt("setns to the own one", "EPERM"),
        ],
        steps: &["install-command-filter", "install-init-filter", "limit-namespaces"],
        needed: &[],
        beyond: "setns to the namespace one is in: the kernel says EINVAL",
        run: mounts::nested_user_namespace,
    },
    Probe {
        id: "P019",
        title: "new file systems through the new mount calls",
        attempts: &[
            attempt("fsopen ext4", "ENOSYS"),
            attempt("fsopen overlay", "ENOSYS"),
            attempt("fsopen proc", "ENOSYS"),
            attempt("fsopen cgroup2", "ENOSYS"),
            attempt("fsopen tmpfs", "ENOSYS"),
            attempt("fsconfig with a long value", "ENOSYS"),
            attempt("fspick", "ENOSYS"),
        ],
        steps: LOCKED,
        needed: &[],
        beyond: "ext4: the kernel wants a capability of the host",
        run: mounts::new_file_systems,
    },
    Probe {
        id: "P020",
        title: "setuid programs",
        attempts: &[
            attempt("setuid program in the environment", "none"),
            attempt("make one in the working directory", "ok"),
            attempt("run it", "none"),
        ],
        steps: &[
            "deny-setuid-on-views",
            "set-no-new-privs",
            "enforce-landlock",
            "install-command-filter",
            "install-init-filter",
        ],
        needed: &[],
        beyond: "to succeed: the tree belongs to a uid of the session; entering a Landlock domain sets \
                 no_new_privs too; an own setuid file gives one's own uid",
        run: mounts::setuid_programs,
    },
    Probe {
        id: "P021",
        title: "device nodes",
        attempts: DEVICE_NODES,
        steps: &[
            "install-command-filter",
            "install-init-filter",
            "deny-devices-on-views",
            "enforce-landlock",
        ],
        needed: &[],
        beyond: "mknod: the kernel wants a capability of the host; /dev is read-only",
        run: mounts::device_nodes,
    },
    Probe {
        id: "P021b",
        title: "files by handle (shocker)",
        attempts: &[
            attempt("name_to_handle_at", "EPERM"),
            attempt("open_by_handle_at of inode 2", "EPERM"),
        ],
        steps: &["install-command-filter", "install-init-filter", "overlay-views"],
        needed: &[],
        beyond: "opening: the kernel wants a capability of the host",
        run: mounts::file_handles,
    },
    Probe {
        id: "P021c",
        title: "namespaces that are not one's own",
        attempts: &[
            attempt("listmount", "ENOSYS"),
            attempt("statmount", "ENOSYS"),
            attempt("parent of the pid namespace", "EPERM"),
            attempt("parent of the user namespace", "EPERM"),
            attempt("owner of the network namespace", "EPERM"),
            attempt("next mount namespace", "EPERM|ENOENT|ENOTTY"),
            attempt("previous mount namespace", "EPERM|ENOENT|ENOTTY"),
        ],
        steps: &["install-command-filter", "install-init-filter"],
        needed: &[],
        beyond: "ioctls on namespaces: the kernel",
        run: mounts::foreign_namespaces,
    },
];

const DEVICE_NODES: &[Attempt] = &[
    attempt("mknod null in workspace", "EPERM"),
    attempt("mknod disk in workspace", "EPERM"),
    attempt("mknod null in /tmp", "EPERM"),
    attempt("mknod disk in /tmp", "EPERM"),
    attempt("mknod null in /dev", "EPERM"),
    attempt("mknod disk in /dev", "EPERM"),
    attempt("mknod null in /dev/shm", "EPERM"),
    attempt("mknod disk in /dev/shm", "EPERM"),
    attempt("read a planted node", "EACCES"),
    attempt("write a planted node", "EACCES"),
];
