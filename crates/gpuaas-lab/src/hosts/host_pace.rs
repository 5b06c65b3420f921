//! How time goes on a host whose scripts and agent are processes.
//!
//! What a server takes for its bootstrap is drawn from its hardware class, as for the stand-ins of a
//! fleet. What this machine takes to run the same scripts is something else: while a host computes,
//! the clock of the region stands still ([`gpuaas_engine::ClockPauser`]). So the buckets of a run are
//! the class's on any machine, under any load.
//!
//! A host computes from its boot to the end of its bootstrap scripts, and later while the program that
//! plays its kernel and daemons answers. Two named pipes in `run/pace` of the host say so: `events` has
//! a line `+PID` and `-PID` around each such program (`bundles/fixture/kernel`), and `wait PHASE`
//! when the control plane was told that a phase has begun (`host_curl.sh`). That phase then takes its
//! time, on a clock that runs, before `go` lets its script go on.

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
/// What computes when it is no process of its own: the boot.
const BOOT: u32 = 0;

/// How time goes on one host.
pub(super) struct HostPace {
    clock: SharedClock,
    pauser: Option<Arc<ClockPauser>>,
    drawn: DrawnTimes,
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
        Self { clock, pauser, drawn, computing: std::sync::Mutex::default() }
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
            if let Some(phase) = line.strip_prefix("wait ") {
                self.wait(phase).await;
                go.write_all(b"\n").await?;
            } else if let Some(pid) = line.strip_prefix('+').and_then(|pid| pid.parse().ok()) {
                self.began(pid);
            } else if let Some(pid) = line.strip_prefix('-').and_then(|pid| pid.parse().ok()) {
                self.ended(pid);
            }
        }
        Ok(())
    }

    /// A phase takes its time. It waits for hardware and mirrors, so the clock runs.
    async fn wait(&self, phase: &str) {
        let DrawnTimes { site_seconds, node_seconds } = self.drawn;
        let seconds = match serde_json::from_value(phase.into()) {
            Ok(BootstrapPhase::SiteBootstrap) => site_seconds,
            Ok(BootstrapPhase::NodeBootstrap) => node_seconds,
            Err(_) => return,
        };
        let computed = self.with(|computing| computing.remove(&BOOT).is_some());
        self.clock.sleep(seconds).await;
        if computed {
            self.began(BOOT);
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
    /// What a bootstrap script does: it says that it begins, computes for a second of the wall, and
    /// says that it is done.
    const SCRIPT: &str = r#"
report() {
    printf '{"phase": "site_bootstrap", "status": "%s", "message": ""}\n' "$1" >"$GPUAAS_HOST_ROOT/body"
    curl --silent --show-error --fail --data-binary "@$GPUAAS_HOST_ROOT/body" "$URL/progress"
}
report started
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
        let pauser = ClockPauser::new(pauses).unwrap();
        let drawn = DrawnTimes { site_seconds: 150.0, node_seconds: 30.0 };
        let pace = HostPace::new(SharedClock::choose(&choice), Some(pauser), drawn);
        let script = async {
            let _computing = pace.compute();
            let path = format!("{}:{PROGRAMS_PATH}", emulator.programs().display());
            let mut command = Command::new("bash");
            command.args(["-euc", SCRIPT]).env("PATH", path).env("URL", &url);
            command.env("GPUAAS_HOST_ROOT", &root).status().await.unwrap()
        };
        let ended = tokio::select! {
            biased;
            failed = pace.serve(&root) => panic!("{failed:?}"),
            ended = script => ended,
        };
        assert!(ended.success());
        let ((first, began), (last, finished)) =
            (heard.recv().await.unwrap(), heard.recv().await.unwrap());
        assert!(first.contains("started") && last.contains("succeeded"), "{first} {last}");
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
