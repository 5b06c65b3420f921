//! What is taken away while the work is done.

use gpuaas_client::failure::Failure;
use gpuaas_engine::{Clock as _, RealClock};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::failure::not_met;
use super::replicas::Replicas;
use crate::private_server::PrivateServer;

/// Times that each server is taken away.
const RESTARTS: u32 = 2;
/// Seconds for which it is away.
const AWAY_SECONDS: f64 = 2.0;

/// Servers that may be taken away: those that are the benchmark's own.
pub(super) struct Servers {
    pub(super) database: Option<PrivateServer>,
    pub(super) nats: Option<PrivateServer>,
}

/// What was taken away, and came back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Disturbed {
    pub(super) kills: u32,
    pub(super) database_restarts: u32,
    pub(super) nats_restarts: u32,
}

type Ended = Result<(Disturbed, Replicas, Servers), Failure>;

/// A disturbance that goes on.
pub(super) struct Disturbance {
    task: JoinHandle<Ended>,
    stop: CancellationToken,
}

impl Disturbance {
    /// Kills a control plane every `kill_seconds`, and between two kills takes a server away.
    pub(super) fn begin(replicas: Replicas, servers: Servers, kill_seconds: f64) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(disturb(replicas, servers, kill_seconds, stop.clone()));
        Self { task, stop }
    }

    /// Ends it once each server was taken away as often as it is to be; everything is up then.
    ///
    /// # Errors
    /// What did not start again.
    pub(super) async fn end(self) -> Ended {
        self.stop.cancel();
        self.task.await.map_err(|error| not_met(&error.to_string()))?
    }
}

async fn disturb(
    mut replicas: Replicas,
    mut servers: Servers,
    kill_seconds: f64,
    stop: CancellationToken,
) -> Ended {
    let mut done = Disturbed::default();
    let mut turn: usize = 0;
    while !(stop.is_cancelled() && is_complete(&done, &servers)) {
        pause(kill_seconds, &stop).await;
        replicas.kill(turn);
        done.kills += 1;
        // After every second kill, while that control plane is away: the database, then NATS.
        let (database, nats) = match turn % 4 {
            1 if done.database_restarts < RESTARTS => (servers.database.as_mut(), None),
            3 if done.nats_restarts < RESTARTS => (None, servers.nats.as_mut()),
            _ => (None, None),
        };
        if let Some(database) = database {
            restart(database).await?;
            done.database_restarts += 1;
        }
        if let Some(nats) = nats {
            restart(nats).await?;
            done.nats_restarts += 1;
        }
        replicas.start_all().await?;
        turn += 1;
    }
    Ok((done, replicas, servers))
}

fn is_complete(done: &Disturbed, servers: &Servers) -> bool {
    (servers.database.is_none() || done.database_restarts >= RESTARTS)
        && (servers.nats.is_none() || done.nats_restarts >= RESTARTS)
}

async fn pause(seconds: f64, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = RealClock.sleep_until(RealClock.now().plus_seconds(seconds)) => {}
    }
}

async fn restart(server: &mut PrivateServer) -> Result<(), Failure> {
    server.stop();
    RealClock.sleep_until(RealClock.now().plus_seconds(AWAY_SECONDS)).await;
    server.start().await
}
