//! Builds `hangar-init` and `hangar-worker` as static programs, for embedding.
//!
//! `crt-static` as a flag of a whole build breaks procedural macros; `cargo rustc` gives it to
//! the last crate alone. The build has a target directory of its own, because cargo locks the
//! one it is run in.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let manifest_dir = variable("CARGO_MANIFEST_DIR");
    let workspace = Path::new(&manifest_dir).join("../..");
    for watched in [
        "Cargo.lock",
        "Cargo.toml",
        "rootfs/src",
        "rootfs/Cargo.toml",
        "runtime/init",
        "runtime/src",
        "runtime/Cargo.toml",
        "runtime/build.rs",
        "runtime/sys",
        "seccomp/src",
        "seccomp/Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }
    let target = Path::new(&variable("OUT_DIR")).join("static");
    let init = build(&workspace, &target, "hangar-init", "hangar-init");
    let worker = build(&workspace, &target, "hangar-rootfs", "hangar-worker");
    println!("cargo::rustc-env=HANGAR_INIT_IMAGE={}", init.display());
    println!("cargo::rustc-env=HANGAR_WORKER_IMAGE={}", worker.display());
}

fn build(workspace: &Path, target: &Path, package: &str, program: &str) -> PathBuf {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(workspace)
        .args([
            "rustc",
            "--locked",
            "--profile",
            "embedded",
            "--package",
            package,
            "--bin",
            program,
        ])
        .arg("--target-dir")
        .arg(target)
        .args(["--", "-C", "target-feature=+crt-static"]);
    // What the outer build was told, by cargo or by clippy, is not meant for this one.
    for inherited in [
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "CLIPPY_ARGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_BUILD_TARGET",
    ] {
        cargo.env_remove(inherited);
    }
    let status = cargo.status().unwrap_or_else(|error| panic!("{cargo:?} did not start: {error}"));
    assert!(status.success(), "{cargo:?} ended with {status}");
    target.join("embedded").join(program)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
