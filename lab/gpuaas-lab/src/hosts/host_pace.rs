//! How time goes on a host whose scripts and agent are processes.
//!
//! What a server takes for its bootstrap is drawn from its hardware class, as for the stand-ins of a
//! fleet. What this machine takes to run the same scripts is something else: while a host computes,
//! the clock of the region stands still ([`gpuaas_engine::ClockPauser`]). So the buckets of a run are
//! the class's on any machine, under any load.
//!
//! A host computes from its boot to the end of its bootstrap scripts, and later while the program that
//! plays its kernel and daemons answers. Two named pipes in `run/pace` of the host say so: `events` has
//! a line `+PID` and `-PID` around each such program (`bundles/fixture/kernel`). A line that asks for time
//! is answered by one on `go`, once that time has gone by on a clock that runs:
//!
//! | line | from | time |
//! |---|---|---|
//! | `begin site_bootstrap` | `host_curl.sh`, when the control plane was told so | the fetching of archives, a tenth |
//! | `take PERCENT` | `host_program.sh`, for a program that takes long on hardware | that part |
//! | `end site_bootstrap` | `host_curl.sh`, before the control plane is told so | what is left |
//! | `begin node_bootstrap` | `host_curl.sh` | all of it |

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use gpuaas_engine::{ClockPause, ClockPauser};
use gpuaas_node_agent::clock::AgentClock as _;
use gpuaas_types::agent::BootstrapPhase;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;

use super::options::DrawnTimes;
use crate::clock::SharedClock;

/// Folder of the pipes, below the host's root.
const FOLDER: &str = "run/pace";
/// Share of the site bootstrap that goes by before its first phase.
const FETCHING: f64 = 0.1;
/// What computes when it is no process of its own: the boot.
const BOOT: u32 = 0;

/// How time goes on one host.
pub(super) struct HostPace {
    clock: SharedClock,
    pauser: Option<Arc<ClockPauser>>,
    drawn: DrawnTimes,
    /// Seconds of the site bootstrap that have not gone by.
    left: std::sync::Mutex<f64>,
    /// Who computes, by process id, and so keeps the clock still.
    computing: std::sync::Mutex<HashMap<u32, Option<ClockPause>>>,
}

/// A host that computes until this is dropped.
pub(super) struct Computing<'a>(&'a HostPace);

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.0.ended(BOOT);
    }
}

impl HostPace {
    pub(super) fn new(
        clock: SharedClock,
        pauser: Option<Arc<ClockPauser>>,
        drawn: DrawnTimes,
    ) -> Self {
        let (left, computing) = Default::default();
        Self { clock, pauser, drawn, left, computing }
    }

    /// The boot of the host.
    pub(super) fn compute(&self) -> Computing<'_> {
        self.began(BOOT);
        Computing(self)
    }

    /// Nothing of the host runs any more.
    pub(super) fn end(&self) {
        self.with(HashMap::clear);
    }

    /// Follows what the host's programs say, for as long as it is polled.
    ///
    /// # Errors
    /// The system's, for pipes that cannot be made or read.
    pub(super) async fn serve(&self, root: &Path) -> io::Result<()> {
        let folder = root.join(FOLDER);
        std::fs::create_dir_all(&folder)?;
        let [events, go] = ["events", "go"].map(|name| folder.join(name));
        for path in [&events, &go] {
            match mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Each for both ends: nobody who comes or goes is the last one.
        let mut both = pipe::OpenOptions::new();
        let mut events = BufReader::new(both.read_write(true).open_receiver(events)?).lines();
        let mut go = both.read_write(true).open_sender(go)?;
        while let Some(line) = events.next_line().await? {
            self.forget_ended();
            if let Some(seconds) = self.seconds_of(&line) {
                self.pass(seconds).await;
                go.write_all(b"\n").await?;
            } else if let Some(pid) = line.strip_prefix('+').and_then(|pid| pid.parse().ok()) {
                self.began(pid);
            } else if let Some(pid) = line.strip_prefix('-').and_then(|pid| pid.parse().ok()) {
                self.ended(pid);
            }
        }
        Ok(())
    }

    /// The seconds that a line asks for; none: it is another sort of line.
    fn seconds_of(&self, line: &str) -> Option<f64> {
        let mut left = self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let DrawnTimes { site_seconds, node_seconds } = self.drawn;
        let share = match line.split_once(' ')? {
            ("begin", phase) => match serde_json::from_value(phase.into()) {
                Ok(BootstrapPhase::SiteBootstrap) => {
                    *left = site_seconds;
                    site_seconds * FETCHING
                }
                Ok(BootstrapPhase::NodeBootstrap) => return Some(node_seconds),
                Err(_) => 0.0,
            },
            ("take", percent) => site_seconds * percent.parse::<f64>().ok()? / 100.0,
            ("end", _) => *left,
            _ => return None,
        };
        let seconds = share.min(*left);
        *left -= seconds;
        Some(seconds)
    }

    /// Lets time go by. The host waits for hardware and mirrors, so the clock runs, whoever computes.
    async fn pass(&self, seconds: f64) {
        let held: Vec<u32> = self.with(|computing| computing.drain().map(|(pid, _)| pid).collect());
        self.clock.sleep(seconds).await;
        for pid in held {
            self.began(pid);
        }
    }

    fn began(&self, pid: u32) {
        let pause = self.pauser.as_ref().map(ClockPauser::pause);
        self.with(|computing| computing.insert(pid, pause));
    }

    fn ended(&self, pid: u32) {
        self.with(|computing| computing.remove(&pid));
    }

    /// A program that was killed has not said that it ended.
    fn forget_ended(&self) {
        let lives = |pid: u32| pid == BOOT || Path::new("/proc").join(pid.to_string()).exists();
        self.with(|computing| computing.retain(|pid, _| lives(*pid)));
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<u32, Option<ClockPause>>) -> T) -> T {
        change(&mut self.computing.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::post;
    use gpuaas_engine::clock::wall_micros;
    use gpuaas_engine::{ClockChoice, Pauses};
    use gpuaas_types::Timestamp;
    use tokio::process::Command;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::hosts::host_emulator::{HostEmulator, PROGRAMS_PATH};

    /// Seconds of the clock in a second of the wall.
    const FACTOR: f64 = 200.0;
    /// What a bootstrap script does: it says that it begins, installs packages, computes for a second of
    /// the wall, and says that it is done.
    const SCRIPT: &str = r#"
report() {
    printf '{"phase": "site_bootstrap", "status": "%s", "message": ""}\n' "$1" >"$GPUAAS_HOST_ROOT/body"
    curl --silent --show-error --fail --data-binary "@$GPUAAS_HOST_ROOT/body" "$URL/progress"
}
report started
"$PROGRAM" run apt-get -y install nothing || true
report installed
now() { printf '%s' "${EPOCHREALTIME/./}"; }
until=$(($(now) + 1000000))
while (($(now) < until)); do :; done
report succeeded
"#;

    #[tokio::test]
    async fn a_phase_takes_what_was_drawn_however_long_this_machine_computes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("host");
        std::fs::create_dir_all(&root).unwrap();
        let pauses = Pauses::open(&dir.path().join("pauses")).unwrap();
        let epoch = Timestamp::from_micros(wall_micros());
        let choice = ClockChoice::Paced { factor: FACTOR, epoch, pauses: Some(pauses.clone()) };
        // The control plane's clock, which it reads when a report comes.
        let (control_plane, (said, mut heard)) = (choice.clock(), unbounded_channel());
        let report = move |body: String| async move {
            said.send((body, control_plane.now())).unwrap();
        };
        let router = Router::new().route("/progress", post(report));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

        let emulator = HostEmulator::new(dir.path());
        emulator.prepare_programs().await.unwrap();
        emulator.prepare_in_advance().await;
        let pauser = ClockPauser::new(pauses).unwrap();
        let drawn = DrawnTimes { site_seconds: 150.0, node_seconds: 30.0 };
        let pace = HostPace::new(SharedClock::choose(&choice), Some(pauser), drawn);
        let script = async {
            let _computing = pace.compute();
            let path = format!("{}:{PROGRAMS_PATH}", emulator.programs().display());
            let mut command = Command::new("bash");
            command.args(["-euc", SCRIPT]).env("PATH", path).env("URL", &url);
            command.env("PROGRAM", emulator.program());
            command.env("GPUAAS_HOST_ROOT", &root).status().await.unwrap()
        };
        let ended = tokio::select! {
            biased;
            failed = pace.serve(&root) => panic!("{failed:?}"),
            ended = script => ended,
        };
        assert!(ended.success());
        let ((first, began), (_, installed), (last, finished)) =
            (heard.recv().await.unwrap(), heard.recv().await.unwrap(), heard.recv().await.unwrap());
        assert!(first.contains("started") && last.contains("succeeded"), "{first} {last}");
        // A tenth before the first phase, and the packages' own part.
        let seconds = installed.seconds_since(began);
        assert!((75.0..75.0 + FACTOR / 2.0).contains(&seconds), "{seconds}");
        let seconds = finished.seconds_since(began);
        // A second of computing alone would be 200.
        assert!((150.0..150.0 + FACTOR / 2.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_program_that_was_killed_computes_no_more() {
        let drawn = DrawnTimes { site_seconds: 0.0, node_seconds: 0.0 };
        let pace = HostPace::new(SharedClock::real(), None, drawn);
        let _boot = pace.compute();
        pace.began(u32::MAX);
        pace.began(std::process::id());
        pace.forget_ended();
        let left = pace.with(|computing| {
            let mut left: Vec<u32> = computing.keys().copied().collect();
            left.sort_unstable();
            left
        });
        assert_eq!(left, [BOOT, std::process::id()]);
    }
}
