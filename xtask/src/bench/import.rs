//! Importing archives beside the tools that unpack them: the same bytes, the same file system.

use super::api::Api;
use super::sample::{median_ms, timed};
use super::warden::Warden;
use super::{Row, freeze, tree};
use crate::failure::{Failure, Step};
use crate::program::{read, run};
use crate::test_fs::TestFs;
use hangar_runtime::ids::Range;
use hangar_runtime::wire::warden::Job;
use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ROUNDS: usize = 3;

/// How large the compressed archive is at least.
const ARCHIVE_BYTES: u64 = 200 << 20;

/// Files and directories of an archive; a project of such a size has many.
const OPTIONS: &str = r#"{"limits": {"entries_max": 1000000}}"#;

/// Imports archives of real packages, in turn with the tools.
///
/// # Errors
/// When the warden refuses, or a program fails.
pub fn rows(fs: &TestFs) -> Result<Vec<Row>, Failure> {
    let project = tree::installed(fs.path())?;
    let archives = Archives::make(fs.path(), &project)?;
    let mut bench = Bench { warden: Warden::start(&fs.path().join("import"))?, fs: fs.path() };
    bench.prepare()?;
    let (gzip, zip) = (&archives.large, &archives.zip);
    let [tar_own, tar_peer, tar_synced] = bench.beside(gzip, &["tar", "-I", "igzip", "-xf"])?;
    let [zip_own, zip_peer, zip_synced] = bench.beside(zip, &["bsdtar", "-xf"])?;
    let http = bench.over_http(gzip)?;
    let (small, large) = (bench.peak(&archives.small)?, bench.peak(gzip)?);
    let zip_peak = bench.peak(zip)?;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let memory = |name, bytes| Row::alone(name, mebibytes(bytes), "MiB");
    let (tool, synced) = ("tar -I igzip", "tar -I igzip; sync -f");
    Ok(vec![
        Row::beside("import a 200 MB tar.gz", tar_own, "ms", (tool, tar_peer)),
        Row::beside("import a 200 MB tar.gz, durable", tar_own, "ms", (synced, tar_synced)),
        Row::beside("the same over HTTP, sent and durable", http, "ms", (synced, tar_synced)),
        Row::beside("import the same files as zip", zip_own, "ms", ("bsdtar", zip_peer)),
        Row::beside(
            "import the same files as zip, durable",
            zip_own,
            "ms",
            ("bsdtar; sync -f", zip_synced),
        ),
        memory("peak memory of the worker, tar.gz of one project", small),
        memory("peak memory of the worker, tar.gz of 200 MB", large),
        memory("peak memory of the worker, the same as zip", zip_peak),
    ])
}

struct Archives {
    small: PathBuf,
    large: PathBuf,
    zip: PathBuf,
}

impl Archives {
    /// Packs the project once, and as often as it takes to reach the size.
    fn make(fs: &Path, project: &Path) -> Result<Self, Failure> {
        let directory = fs.join("archives");
        let tree = directory.join("tree");
        std::fs::create_dir_all(&tree).step(|| format!("making {}", tree.display()))?;
        let at = |name: &str| directory.join(name);
        let pack = |name: &str| -> Result<u64, Failure> {
            let mut tar = Command::new("tar");
            run(tar.arg("-C").arg(&directory).arg("-czf").arg(at(name)).arg("tree"))?;
            Ok(std::fs::metadata(at(name)).step(|| format!("packing {name}"))?.len())
        };
        let copy = |number: u64| {
            run(Command::new("cp").arg("-a").arg(project).arg(tree.join(number.to_string())))
        };
        copy(0)?;
        let each = pack("small.tar.gz")?;
        for number in 1..ARCHIVE_BYTES.div_ceil(each) {
            copy(number)?;
        }
        pack("large.tar.gz")?;
        let mut zip = Command::new("bsdtar");
        run(zip
            .arg("-C")
            .arg(&directory)
            .args(["--format", "zip", "-cf"])
            .arg(at("large.zip"))
            .arg("tree"))?;
        run(Command::new("rm").arg("-r").arg(&tree))?;
        Ok(Self { small: at("small.tar.gz"), large: at("large.tar.gz"), zip: at("large.zip") })
    }
}

struct Bench<'a> {
    warden: Warden,
    fs: &'a Path,
}

impl Bench<'_> {
    /// Where the worker writes; the API makes it before every import.
    fn target(&self) -> PathBuf {
        self.warden.state_dir().join(format!("api/sources/{}.import", freeze::environment()))
    }

    fn prepare(&self) -> Result<(), Failure> {
        let target = self.target();
        let sources = target.parent().expect("it has one");
        std::fs::create_dir_all(sources).step(|| format!("making {}", sources.display()))?;
        let api = Range::default().api();
        chown(sources, Some(api), Some(api)).step(|| format!("giving {} away", sources.display()))
    }

    /// An empty target. What was there is gone, and gone from the disk.
    fn empty(&self, directory: &Path) -> Result<(), Failure> {
        if directory.exists() {
            run(Command::new("rm").arg("-r").arg(directory))?;
        }
        std::fs::create_dir(directory).step(|| format!("making {}", directory.display()))?;
        run(Command::new("sync").arg("-f").arg(self.fs))
    }

    fn import(&mut self, archive: &Path) -> Result<Duration, Failure> {
        let target = self.target();
        self.empty(&target)?;
        let api = Range::default().api();
        chown(&target, Some(api), Some(api))
            .step(|| format!("giving {} away", target.display()))?;
        let upload = File::open(archive).step(|| format!("opening {}", archive.display()))?;
        let work = Job::Import { environment: freeze::environment() };
        timed(|| self.warden.run_job_on(work, OPTIONS, &upload))
    }

    /// Medians: the import, the tool, and the tool with what it wrote brought to disk.
    fn beside(&mut self, archive: &Path, tool: &[&str]) -> Result<[f64; 3], Failure> {
        let out = self.fs.join("unpacked");
        let (mut own, mut peer, mut synced) = (Vec::new(), Vec::new(), Vec::new());
        // One round warms the cache for both and does not count.
        for round in 0..=ROUNDS {
            let took = self.import(archive)?;
            self.empty(&out)?;
            let mut unpack = Command::new(tool[0]);
            unpack.current_dir(&out).args(&tool[1..]).arg(archive);
            let plain = timed(|| run(&mut unpack))?;
            let sync = timed(|| run(Command::new("sync").arg("-f").arg(&out)))?;
            if round > 0 {
                own.push(took);
                peer.push(plain);
                synced.push(plain + sync);
            }
        }
        Ok([median_ms(own), median_ms(peer), median_ms(synced)])
    }

    /// The median of whole requests to a server: sent, kept on disk, unpacked and put in place.
    fn over_http(&self, archive: &Path) -> Result<f64, Failure> {
        let state = self.fs.join("import-http");
        std::fs::create_dir_all(&state).step(|| "making a state directory".to_owned())?;
        let api = Api::start(&state)?;
        let mut samples = Vec::new();
        for round in 0..=ROUNDS {
            run(Command::new("sync").arg("-f").arg(self.fs))?;
            let took = api.import(&format!("import {round}"), archive)?;
            if round > 0 {
                samples.push(took);
            }
        }
        Ok(median_ms(samples))
    }

    /// The most memory of its own that the worker had at any time, as often as it was looked at.
    fn peak(&mut self, archive: &Path) -> Result<u64, Failure> {
        let (ended, warden) = (AtomicBool::new(false), self.warden.pid());
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut peak = 0;
                while !ended.load(Ordering::Relaxed) {
                    peak = peak
                        .max(workers(warden).into_iter().filter_map(resident).max().unwrap_or(0));
                    std::thread::sleep(Duration::from_millis(2));
                }
                peak
            });
            let imported = self.import(archive);
            ended.store(true, Ordering::Relaxed);
            let peak = watch.join().expect("it only reads");
            imported?;
            if peak == 0 {
                Err(Failure::new("no worker was seen while it worked"))
            } else {
                Ok(peak)
            }
        })
    }
}

/// The children of the warden that are workers by now. They are started from a sealed memory
/// file, whose name the kernel cuts to 15 bytes.
fn workers(warden: u32) -> Vec<String> {
    let children = read(Command::new("pgrep").args(["-P", &warden.to_string(), "memfd:hangar-wo"]));
    children.map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default()
}

/// The most that was ever resident of a process, without what it shares with the warden's image.
fn resident(pid: String) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}
