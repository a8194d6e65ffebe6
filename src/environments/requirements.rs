//! Requirements files as pip reads them: encodings, the files they name, local references.

use super::manifests::Files;
use std::collections::BTreeMap;

/// The text of a requirements file as pip decodes it: by a byte order mark, by a coding comment in
/// the first two lines, else as UTF-8. `None` in other encodings; pip is asked all the same.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<String> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        String::from_utf16(&units).ok()
    };
    match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        _ if is_latin(bytes) => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        _ => String::from_utf8(bytes.to_vec()).ok(),
    }
}

/// Whether a comment in the first two lines says that the text is Latin-1.
fn is_latin(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte == b'\n').take(2).any(|line| {
        let line = String::from_utf8_lossy(line).to_ascii_lowercase();
        let coding =
            line.find("coding").map(|at| line[at + 6..].trim_start_matches([':', '=', ' ']));
        line.starts_with('#')
            && coding
                .is_some_and(|name| name.starts_with("latin-1") || name.starts_with("iso-8859-1"))
    })
}

/// How many files `-r` and `-c` may lead through.
const INCLUDES_MAX: usize = 16;

/// Collects a requirements file and all files it names with `-r` and `-c`.
pub(super) fn closure(
    path: &str,
    bytes: &[u8],
    files: Files<'_>,
    inputs: &mut BTreeMap<String, Vec<u8>>,
    depth: usize,
) -> Result<(), &'static str> {
    if inputs.insert(path.to_owned(), bytes.to_vec()).is_some() {
        return Ok(());
    }
    if depth > INCLUDES_MAX {
        return Err("requirements name each other too deeply");
    }
    let text = decode(bytes).ok_or("requirements.txt is not UTF-8")?;
    for line in text.replace("\\\n", " ").lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(named) = included(line) {
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            let named = resolve(directory, named).ok_or("requirements name a file outside")?;
            let bytes = files(&named).ok_or("requirements name a file that is not there")?;
            closure(&named, &bytes, files, inputs, depth + 1)?;
        } else {
            requirement(line)?;
        }
    }
    Ok(())
}

/// The file a line names with `-r` or `-c`.
fn included(line: &str) -> Option<&str> {
    let options = ["--requirement", "--constraint", "-r", "-c"];
    let option = options.into_iter().find(|option| line.starts_with(option))?;
    let rest = line[option.len()..].trim_start_matches(['=', ' ', '\t']);
    (!rest.is_empty()).then_some(rest)
}

/// A relative path without `..` above the root.
fn resolve(directory: &str, path: &str) -> Option<String> {
    let mut names: Vec<&str> = directory.split('/').filter(|name| !name.is_empty()).collect();
    if path.starts_with('/') || path.contains("://") {
        return None;
    }
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop()?;
            }
            name => names.push(name),
        }
    }
    Some(names.join("/"))
}

/// Refuses a requirement that reads files of the source: they can change while the line stays.
pub(super) fn requirement(line: &str) -> Result<(), &'static str> {
    let line = line.trim();
    let local = "a requirement refers to local files";
    if line.starts_with("-e") || line.starts_with("--editable") {
        return Err(local);
    }
    if line.starts_with("-f") || line.starts_with("--find-links") {
        return if line.contains("://") && !line.contains("file:") { Ok(()) } else { Err(local) };
    }
    if line.starts_with('-') {
        return Ok(());
    }
    // `name @ address` or an address or path by itself; markers come after `;`.
    let target = line.split(';').next().unwrap_or_default().trim();
    let address = target.split_once('@').map_or(target, |(_, address)| address.trim());
    let remote = address.contains("://") && !address.contains("file:");
    if address.contains("file:") {
        return Err(local);
    }
    let begins = |prefix: &str| target.starts_with(prefix) || address.starts_with(prefix);
    if begins("./") || begins("../") || begins("/") || begins("~") || target == "." {
        return Err(local);
    }
    let archive = [".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz"];
    if !remote && (target.contains('/') || archive.iter().any(|end| target.ends_with(end))) {
        return Err(local);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(files: &[(&str, &str)]) -> Option<BTreeMap<String, Vec<u8>>> {
        let read = |name: &str| {
            files.iter().find(|(path, _)| *path == name).map(|(_, text)| text.as_bytes().to_vec())
        };
        let mut inputs = BTreeMap::new();
        let bytes = read("requirements.txt").unwrap();
        closure("requirements.txt", &bytes, &read, &mut inputs, 0).ok().map(|()| inputs)
    }

    #[test]
    fn the_key_covers_every_file_the_requirements_name() {
        let files = [
            ("requirements.txt", "numpy==2.0\n-r more/dev.txt\n-c limits.txt # why\n"),
            ("more/dev.txt", "pytest\n--requirement=../base.txt\n"),
            ("base.txt", "click"),
            ("limits.txt", "click<9"),
            ("other.txt", "unused"),
        ];
        let names: Vec<_> = inputs(&files).unwrap().into_keys().collect();
        let expected = ["base.txt", "limits.txt", "more/dev.txt", "requirements.txt"];
        assert_eq!(names, expected);
    }

    #[test]
    fn local_references_are_never_kept() {
        for line in [
            "-e .",
            "--editable ./lib",
            "./lib",
            "../lib",
            "/opt/lib",
            "lib @ file:///opt/lib",
            "file:lib",
            "wheels/a.whl",
            "a-1.0.tar.gz",
            "-f ./wheels",
            "--find-links=wheels",
            "-r missing.txt",
            "-r ../outside.txt",
            ".",
            "name @ ./lib",
            "numpy\\\n@ file:x",
        ] {
            assert!(inputs(&[("requirements.txt", line)]).is_none(), "{line}");
        }
    }

    #[test]
    fn what_comes_from_an_index_or_an_address_is_kept() {
        for line in [
            "",
            "# nothing",
            "numpy",
            "numpy==2.0 ; python_version > '3'",
            "uvicorn[standard]>=0.3",
            "--index-url https://example.org/simple",
            "x @ git+https://example.org/x.git@v1",
            "https://example.org/x-1.0.whl",
            "--no-binary :all:",
            "-f https://example.org/links",
        ] {
            assert!(inputs(&[("requirements.txt", line)]).is_some(), "{line}");
        }
    }

    #[test]
    fn encodings_are_those_pip_knows() {
        let wide = |text: &str, order: fn(u16) -> [u8; 2]| {
            let units = std::iter::once('\u{feff}').chain(text.chars()).map(|c| c as u16);
            units.flat_map(order).collect::<Vec<u8>>()
        };
        for bytes in [
            b"six==1\r\n".to_vec(),
            b"\xef\xbb\xbfsix==1\r\n".to_vec(),
            wide("six==1\r\n", u16::to_le_bytes),
            wide("six==1\r\n", u16::to_be_bytes),
        ] {
            assert_eq!(decode(&bytes).as_deref(), Some("six==1\r\n"), "{bytes:?}");
        }
        assert_eq!(decode(b"# caf\xe9\nsix"), None);
        let latin = b"# -*- coding: latin-1 -*-\n# caf\xe9\nsix";
        assert!(decode(latin).unwrap().ends_with("# caf\u{e9}\nsix"));
    }
}
