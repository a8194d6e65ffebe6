//! Computes the build id that the warden and its callers compare.

use std::hash::{DefaultHasher, Hash, Hasher};

fn main() {
    let mut hasher = DefaultHasher::new();
    hash_tree(std::path::Path::new("src"), &mut hasher);
    println!(
        "cargo::rustc-env=HANGAR_BUILD_ID={}-{:016x}",
        std::env::var("CARGO_PKG_VERSION").expect("cargo sets the version"),
        hasher.finish()
    );
    println!("cargo::rerun-if-changed=src");
}

fn hash_tree(dir: &std::path::Path, hasher: &mut DefaultHasher) {
    let mut entries: Vec<_> = std::fs::read_dir(dir)
        .expect("src is readable")
        .map(|e| e.expect("entry").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            hash_tree(&path, hasher);
        } else {
            path.hash(hasher);
            std::fs::read(&path).expect("source file is readable").hash(hasher);
        }
    }
}
