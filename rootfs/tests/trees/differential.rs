//! The same archives, unpacked by hangar and by the tools everybody has: GNU tar, bsdtar, unzip.

use crate::hostile::{keep, run};
use crate::listing::{Node, Place, tree};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

type Nodes = BTreeMap<Vec<u8>, Node>;

fn shell(directory: &Path, script: &str) {
    let mut command = Command::new("bash");
    command.current_dir(directory).args(["-euo", "pipefail", "-c", script]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A project with what projects have: long paths, names of many scripts, links, empty directories,
/// large and small files; and a part of a real library.
fn project(at: &Path) {
    fs::create_dir(at).unwrap();
    let write = |path: &str, content: &[u8]| {
        let path = at.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    shell(at, &format!("cp -r --preserve=mode,timestamps {} .", examples.display()));
    let library = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let library = library.filter(|path| path.join("json/decoder.py").exists()).min().unwrap();
    shell(at, &format!("mkdir lib && cp -r {}/{{json,email}} lib", library.display()));
    write(&format!("{}/{}", ["deep"; 30].join("/"), "n".repeat(200)), b"long");
    write("\u{65e5}\u{672c}/\u{e9} name", b"unicode");
    write("bin/run", b"#!/bin/sh\n");
    fs::set_permissions(at.join("bin/run"), fs::Permissions::from_mode(0o755)).unwrap();
    write(
        "large",
        &(0..400_000u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect::<Vec<_>>(),
    );
    write("empty", b"");
    fs::create_dir(at.join("nothing")).unwrap();
    symlink("bin/run", at.join("link")).unwrap();
    symlink("missing", at.join("dangling")).unwrap();
    fs::hard_link(at.join("large"), at.join("same")).unwrap();
}

/// Trees are the same, but for the nanoseconds of times and, where a format has none, its seconds.
fn assert_same(what: &str, ours: &Nodes, theirs: &Nodes, tolerance_s: i64) {
    let paths = |nodes: &Nodes| nodes.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(ours), paths(theirs), "{what}");
    for ((path, ours), theirs) in ours.iter().zip(theirs.values()) {
        let path = path.escape_ascii();
        match (ours, theirs) {
            (
                Node::File { content, is_executable, mtime },
                Node::File { content: other, is_executable: executable, mtime: time },
            ) => {
                assert!(content == other, "{what}: {path} has other bytes");
                assert_eq!(is_executable, executable, "{what}: {path}");
                assert!((mtime - time).abs() <= tolerance_s, "{what}: {path}: {mtime} {time}");
            }
            (ours, theirs) => assert_eq!(ours, theirs, "{what}: {path}"),
        }
    }
}

struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        project(&directory.path().join("project"));
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Packs, unpacks by the tool and by hangar, and compares.
    fn compare(&self, pack: &str, unpack: &str, tolerance_s: i64) {
        let what = format!("{pack} | {unpack}");
        shell(self.directory.path(), &format!("rm -rf out archive; cd project; {pack}"));
        shell(self.directory.path(), &format!("mkdir out; cd out; {unpack}"));
        let place = Place::new();
        let archive = fs::read(self.path("archive")).unwrap();
        let outcome = run(&place, &archive, &keep()).unwrap_or_else(|r| panic!("{what}: {r}"));
        assert_eq!(outcome.skipped, 0, "{what}: {:?}", outcome.skipped_examples);
        let (ours, theirs) = (tree(&place.path()), tree(&self.path("out")));
        assert!(ours.len() > 50, "{what}");
        assert_same(&what, &ours, &theirs, tolerance_s);
    }
}

#[test]
fn tars_of_gnu_tar_are_read_as_gnu_tar_reads_them() {
    let bench = Bench::new();
    for format in ["gnu", "posix", "oldgnu"] {
        let pack = format!("tar --format={format} -cf ../archive .");
        bench.compare(&pack, "tar -xf ../archive", 0);
    }
    for packer in ["gzip", "zstd", "xz", "bzip2"] {
        let pack = format!("tar -I {packer} -cf ../archive .");
        bench.compare(&pack, "bsdtar -xf ../archive", 0);
    }
}

#[test]
fn tars_of_bsdtar_are_read_as_both_read_them() {
    let bench = Bench::new();
    for format in ["pax", "gnutar"] {
        let pack = format!("bsdtar --format {format} -cf ../archive *");
        bench.compare(&pack, "bsdtar -xf ../archive", 0);
        bench.compare(&pack, "tar -xf ../archive 2>/dev/null", 0);
    }
}

/// Files with holes in front, behind and between; with more parts than one header, and one block
/// behind it, have room for; of nothing but a hole.
const HOLES: &str = "mkdir holes; cd holes
    truncate -s 3M end; printf end >> end
    printf begin > begin; truncate -s 5000000 begin
    truncate -s 1M none
    for part in $(seq 60); do
        printf \"part %s\" $part | dd of=many bs=1 seek=$((part * 70000)) conv=notrunc status=none
    done
    truncate -s 1 tiny; sync";

#[test]
fn sparse_files_are_read_as_gnu_tar_and_bsdtar_read_them() {
    let bench = Bench::new();
    shell(&bench.path("project"), HOLES);
    for format in [
        "--format=gnu",
        "--format=oldgnu",
        "--format=posix --sparse-version=0.0",
        "--format=posix --sparse-version=0.1",
        "--format=posix --sparse-version=1.0",
    ] {
        let pack = format!(
            "tar {format} --sparse -cf ../archive . && test $(du -sm ../archive | cut -f1) -lt 8"
        );
        bench.compare(&pack, "tar -xf ../archive", 0);
        bench.compare(&pack, "bsdtar -xf ../archive", 0);
    }
    for format in ["pax", "gnutar"] {
        bench.compare(
            &format!("bsdtar --format {format} -cf ../archive *"),
            "tar -xf ../archive 2>/dev/null",
            0,
        );
    }
}

#[test]
fn zips_are_read_as_unzip_and_bsdtar_read_them() {
    let bench = Bench::new();
    for pack in [
        "zip -qry ../archive.zip . && mv ../archive.zip ../archive",
        // To a pipe: the sizes are behind the data.
        "zip -qry - . | cat > ../archive",
        "zip -qry -0 -fz - . > ../archive",
        "bsdtar --format zip -cf ../archive *",
    ] {
        // A zip has times of two seconds unless it says more.
        bench.compare(pack, "unzip -q ../archive", 2);
        bench.compare(pack, "bsdtar -xf ../archive", 2);
    }
}
