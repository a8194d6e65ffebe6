//! A whole hangar of its own, spoken to over its unix socket.

use super::http::{Response, request, upload};
use super::sample::timed;
use crate::failure::{Failure, Step};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running `hangar serve`; ended when dropped.
pub struct Api {
    process: Child,
    socket: PathBuf,
}

impl Api {
    /// Starts hangar on a state directory.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(state_dir: &Path) -> Result<Self, Failure> {
        let binary = crate::tree::binary("hangar")?;
        let process = Command::new(&binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(state_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .step(|| format!("starting {}", binary.display()))?;
        let this = Self { process, socket: state_dir.join("run/api.sock") };
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match request(&this.socket, "GET", "/v1/uhp", None) {
                Err(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                answered => return answered.map(|_| this),
            }
        }
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Asks, and takes the answer as JSON.
    ///
    /// # Errors
    /// When the API refuses.
    pub fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<Value, Failure> {
        request(&self.socket, method, path, body)?.json()
    }

    /// Makes a session without an environment and returns its id.
    ///
    /// # Errors
    /// When the API refuses.
    pub fn new_session(&self) -> Result<String, Failure> {
        let body = json!({ "network": "loopback" }).to_string();
        let session = request(&self.socket, "POST", "/v1/hangar/sessions", Some(&body))?.json()?;
        text_of(&session, "id")
    }

    /// Makes an environment without files and returns its id.
    ///
    /// # Errors
    /// When the API refuses.
    pub fn new_environment(&self, name: &str) -> Result<String, Failure> {
        let body = json!({ "name": name }).to_string();
        let made = request(&self.socket, "POST", "/v1/environments", Some(&body))?.json()?;
        text_of(&made, "id")
    }

    /// Imports an archive into a new environment, which is deleted again; the answer is how long
    /// the import took.
    ///
    /// # Errors
    /// When the API refuses.
    pub fn import(&self, name: &str, archive: &Path) -> Result<Duration, Failure> {
        let id = self.new_environment(name)?;
        let mut file = File::open(archive).step(|| format!("opening {}", archive.display()))?;
        let path = format!("/v1/environments/{id}/import");
        let took = timed(|| upload(&self.socket, &path, &mut file)?.json().map(drop))?;
        self.ask("DELETE", &format!("/v1/environments/{id}"), None)?;
        Ok(took)
    }

    /// Takes the listing of an environment's source, to its last byte.
    ///
    /// # Errors
    /// When the API refuses.
    pub fn list(&self, environment: &str) -> Result<(), Failure> {
        self.listing(environment).map(drop)
    }

    /// How many files and directories an environment's source has.
    ///
    /// # Errors
    /// When the API refuses.
    pub fn listed(&self, environment: &str) -> Result<usize, Failure> {
        let listing: Value = serde_json::from_slice(&self.listing(environment)?)
            .step(|| "reading the listing".to_owned())?;
        Ok(listing["entries"].as_array().map_or(0, Vec::len))
    }

    fn listing(&self, environment: &str) -> Result<Vec<u8>, Failure> {
        let path = format!("/v1/environments/{environment}/files");
        let mut bytes = Vec::new();
        let mut answer = request(&self.socket, "GET", &path, None)?;
        answer.read_to_end(&mut bytes).step(|| "reading the listing".to_owned())?;
        Ok(bytes)
    }

    /// Deletes a session.
    ///
    /// # Errors
    /// When the API refuses.
    pub fn delete_session(&self, session: &str) -> Result<(), Failure> {
        request(&self.socket, "DELETE", &format!("/v1/sessions/{session}"), None).map(drop)
    }

    /// Starts a command that prints and waits for the first byte it printed.
    ///
    /// # Errors
    /// When the API refuses, or the command printed nothing.
    pub fn first_output(&self, session: &str) -> Result<(), Failure> {
        let path = format!("/v1/hangar/sessions/{session}/exec");
        let body = json!({ "command": ["/bin/echo", "first"] }).to_string();
        let exec = request(&self.socket, "POST", &path, Some(&body))?.json()?;
        let number = exec["id"].as_u64();
        let number = number.ok_or_else(|| Failure::new(format!("{exec} has no number as id")))?;
        let mut output = request(&self.socket, "GET", &format!("{path}/{number}/output"), None)?;
        let frame = read_frame(&mut output)?;
        match frame.as_slice() {
            b"first\n" => Ok(()),
            other => Err(Failure::new(format!(
                "the first output was {:?}",
                String::from_utf8_lossy(other)
            ))),
        }
    }
}

/// Reads one frame: stream and length as u32, sequence as u64, the bytes.
fn read_frame(output: &mut Response) -> Result<Vec<u8>, Failure> {
    let mut head = [0; 16];
    output.read_exact(&mut head).step(|| "reading the head of a frame".to_owned())?;
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let mut bytes = vec![0; length as usize];
    output.read_exact(&mut bytes).step(|| "reading the bytes of a frame".to_owned())?;
    Ok(bytes)
}

fn text_of(object: &Value, key: &str) -> Result<String, Failure> {
    let text = object[key].as_str().map(str::to_owned);
    text.ok_or_else(|| Failure::new(format!("{object} has no text {key}")))
}

impl Drop for Api {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let asked = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(15);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        if matches!(self.process.try_wait(), Ok(None)) {
            eprintln!("hangar serve did not end when asked ({asked:?}); killing it");
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
