//! The listing of a large source over HTTP, beside `find` and `ls -lR` on the same tree.

use super::Row;
use super::api::Api;
use super::sample::{median_ms, timed};
use crate::failure::{Failure, Step};
use crate::program::run;
use crate::test_fs::TestFs;
use std::path::Path;
use std::process::{Command, Stdio};

const DIRECTORIES: usize = 500;
const FILES_EACH: usize = 100;
const SAMPLES: usize = 15;

/// Lists 50,000 files in 500 directories.
///
/// # Errors
/// When the API refuses or a program fails.
pub fn rows(fs: &TestFs) -> Result<Vec<Row>, Failure> {
    let state = fs.path().join("listing");
    let api = Api::start(&state)?;
    let id = api.new_environment("listing")?;
    let source = state.join("api/sources").join(&id);
    fill(&source)?;
    let entries = api.listed(&id)?;
    if entries != DIRECTORIES * (FILES_EACH + 1) {
        return Err(Failure::new(format!("{entries} entries are listed")));
    }
    let (mut own, mut find, mut ls) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        own.push(timed(|| api.list(&id))?);
        find.push(timed(|| {
            quietly(Command::new("find").arg(&source).args(["-printf", "%p %s %T@\n"]))
        })?);
        ls.push(timed(|| quietly(Command::new("ls").arg("-lR").arg(&source)))?);
    }
    let own = median_ms(own);
    let name = "listing a source of 50,000 files";
    Ok(vec![
        Row::beside(name, own, "ms", ("find -printf", median_ms(find))),
        Row::beside(name, own, "ms", ("ls -lR", median_ms(ls))),
    ])
}

/// Small files in many directories, as a monorepo has them.
fn fill(source: &Path) -> Result<(), Failure> {
    for directory in 0..DIRECTORIES {
        let directory = source.join(format!("package-{directory:03}"));
        let what = || format!("filling {}", directory.display());
        std::fs::create_dir_all(&directory).step(what)?;
        for file in 0..FILES_EACH {
            std::fs::write(directory.join(format!("module-{file:02}.py")), b"x = 1\n")
                .step(what)?;
        }
    }
    Ok(())
}

fn quietly(command: &mut Command) -> Result<(), Failure> {
    run(command.stdout(Stdio::null()))
}
