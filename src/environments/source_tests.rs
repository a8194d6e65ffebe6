use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

fn source() -> (tempfile::TempDir, Source) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("root")).unwrap();
    let source = Source::at(&dir.path().join("root")).unwrap();
    (dir, source)
}

fn path(text: &str) -> SourcePath {
    SourcePath::parse(text).unwrap()
}

fn put(dir: &tempfile::TempDir, source: &Source, at: &str, bytes: &[u8]) -> Result<(), Failure> {
    let upload = dir.path().join("upload");
    std::fs::write(&upload, bytes).unwrap();
    source.put(&upload, &path(at))
}

fn content(source: &Source, at: &str) -> Vec<u8> {
    source.read_small(at, 1 << 20).unwrap()
}

#[test]
fn bytes_come_back_as_they_were_sent() {
    let (dir, source) = source();
    put(&dir, &source, "probe/nested/blob.bin", b"a\0b\xff").unwrap();
    assert_eq!(content(&source, "probe/nested/blob.bin"), b"a\0b\xff");
    let entries = source.entries().unwrap();
    let shown: Vec<_> =
        entries.iter().map(|e| (e.path.to_str().unwrap(), e.directory, e.bytes)).collect();
    let expected =
        [("probe", true, 0), ("probe/nested", true, 0), ("probe/nested/blob.bin", false, 4)];
    assert_eq!(shown, expected);
    assert_eq!(source.size().unwrap(), (1, 4));
    source.remove(&path("probe")).unwrap();
    assert!(source.entries().unwrap().is_empty());
    assert_eq!(source.remove(&path("probe")).unwrap_err().code, Code::FileNotFound);
}

#[test]
fn links_in_a_source_lead_nowhere() {
    let (dir, source) = source();
    let secret = dir.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("file"), b"secret").unwrap();
    symlink(&secret, dir.path().join("root/link")).unwrap();
    symlink(secret.join("file"), dir.path().join("root/file-link")).unwrap();
    for at in ["link/file", "file-link", "link"] {
        assert_eq!(source.read(&path(at)).unwrap_err().code, Code::EnvironmentInvalid, "{at}");
    }
    assert_eq!(put(&dir, &source, "link/new", b"x").unwrap_err().code, Code::EnvironmentInvalid);
    assert_eq!(put(&dir, &source, "file-link", b"x").unwrap_err().code, Code::EnvironmentInvalid);
    assert!(source.remove(&path("link/file")).is_err());
    assert_eq!(std::fs::read(secret.join("file")).unwrap(), b"secret");
    // The link itself can be removed, and only it.
    source.remove(&path("link")).unwrap();
    assert!(secret.join("file").exists());
}

#[test]
fn a_file_is_no_directory_and_a_directory_no_file() {
    let (dir, source) = source();
    put(&dir, &source, "a/b", b"x").unwrap();
    assert_eq!(put(&dir, &source, "a/b/c", b"x").unwrap_err().code, Code::EnvironmentInvalid);
    assert_eq!(put(&dir, &source, "a", b"x").unwrap_err().code, Code::EnvironmentInvalid);
    assert_eq!(source.read(&path("a")).unwrap_err().code, Code::EnvironmentInvalid);
}

#[test]
fn the_digest_is_of_what_a_build_copies() {
    let (dir, source) = source();
    let root = dir.path().join("root");
    put(&dir, &source, "run.py", b"one").unwrap();
    let first = source.digest().unwrap();
    // Installed or cached things and times do not count.
    put(&dir, &source, "node_modules/x/index.js", b"x").unwrap();
    put(&dir, &source, "lib/__pycache__/x.pyc", b"x").unwrap();
    std::fs::remove_dir_all(root.join("lib")).unwrap();
    put(&dir, &source, "run.py", b"one").unwrap();
    assert_eq!(source.digest().unwrap(), first);
    // Content, names, executable bits, links and empty directories do.
    let mut seen = vec![first];
    let mut changed = |what: &str| {
        let digest = source.digest().unwrap();
        assert!(!seen.contains(&digest), "{what}");
        seen.push(digest);
    };
    put(&dir, &source, "run.py", b"two").unwrap();
    changed("content");
    std::fs::set_permissions(root.join("run.py"), PermissionsExt::from_mode(0o755)).unwrap();
    changed("executable");
    std::fs::create_dir(root.join("empty")).unwrap();
    changed("directory");
    symlink("run.py", root.join("link")).unwrap();
    changed("link");
}
