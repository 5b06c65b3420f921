//! What systemd is told of a service (sd_notify(3)): datagrams to a socket that it names.
//!
//! It learns when requests are answered, that the process stops, and every half of its watchdog's
//! time that the process lives: that tasks are run, and that none of the loops has ended. Whether the
//! database answers is no part of that: a restart would not bring it back.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use gpuaas_engine::Supervisor;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// A service manager that waits for words; none where nobody named one.
#[derive(Clone, Default)]
pub(crate) struct ServiceManager(Option<Arc<(UnixDatagram, SocketAddr)>>);

impl ServiceManager {
    /// The one behind `NOTIFY_SOCKET`: a path, or `@` and a name in the abstract namespace.
    ///
    /// # Errors
    /// The system's: it gives no socket, or the name is none.
    pub(crate) fn connect(socket: Option<&OsStr>) -> io::Result<Self> {
        let Some(socket) = socket.filter(|name| !name.is_empty()) else { return Ok(Self(None)) };
        let address = match socket.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(socket)?,
        };
        let own = UnixDatagram::unbound()?;
        // A manager that reads nothing must not stop the service.
        own.set_nonblocking(true)?;
        Ok(Self(Some(Arc::new((own, address)))))
    }

    /// Requests are answered from now on.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The process is about to end.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing work in progress");
    }

    /// Says twice in each `period` that the process lives, until a loop of it has ended.
    pub(crate) fn spawn_watchdog(
        &self,
        period: Option<Duration>,
        supervisor: Supervisor,
    ) -> Option<JoinHandle<()>> {
        let period = period.filter(|period| self.0.is_some() && !period.is_zero())?;
        let manager = self.clone();
        Some(tokio::spawn(async move {
            let mut ticks = interval(period / 2);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                if supervisor.ended_loop().is_some() {
                    return;
                }
                manager.send("WATCHDOG=1");
            }
        }))
    }

    fn send(&self, words: &str) {
        let Some((own, address)) = self.0.as_deref() else { return };
        if let Err(error) = own.send_to_addr(words.as_bytes(), address) {
            tracing::warn!(%error, "cannot notify the service manager: {words:?}");
        }
    }
}

/// The time of the watchdog, where it is meant for this process (sd_watchdog_enabled(3)).
pub(crate) fn watchdog_period(
    microseconds: Option<u64>,
    meant_for: Option<u32>,
) -> Option<Duration> {
    let is_ours = meant_for.is_none_or(|pid| pid == std::process::id());
    microseconds.filter(|_| is_ours).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 200];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[tokio::test]
    async fn a_manager_is_told_by_path_and_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::connect(Some(path.as_os_str())).unwrap();
        manager.ready("listening");
        assert_eq!(receive(&socket), "READY=1\nSTATUS=listening");
        manager.stopping();
        assert!(receive(&socket).starts_with("STOPPING=1\n"));

        let name = format!("gpuaas-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let name = format!("@{name}");
        ServiceManager::connect(Some(OsStr::new(&name))).unwrap().ready("x");
        assert_eq!(receive(&socket), "READY=1\nSTATUS=x");
    }

    #[tokio::test]
    async fn the_watchdog_is_fed_until_a_loop_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::connect(Some(path.as_os_str())).unwrap();
        let supervisor = Supervisor::default();
        let period = watchdog_period(Some(10_000), None);
        let watchdog = manager.spawn_watchdog(period, supervisor.clone()).unwrap();
        // Three words, for which this thread waits while the runtime's own goes on.
        let said = tokio::task::spawn_blocking(move || [(); 3].map(|()| receive(&socket)));
        assert_eq!(said.await.unwrap(), ["WATCHDOG=1"; 3]);
        supervisor.spawn("a loop", async {});
        watchdog.await.unwrap();
        assert_eq!(supervisor.ended_loop().unwrap().name, "a loop");
    }

    #[test]
    fn nobody_is_told_where_nobody_asked() {
        let nobody = ServiceManager::connect(None).unwrap();
        nobody.ready("x");
        assert!(ServiceManager::connect(Some(OsStr::new(""))).unwrap().0.is_none());
        assert_eq!(watchdog_period(None, None), None);
        assert_eq!(watchdog_period(Some(9), Some(0)), None, "it is meant for another process");
        let own = Some(std::process::id());
        assert_eq!(watchdog_period(Some(9), own), Some(Duration::from_micros(9)));
    }
}
