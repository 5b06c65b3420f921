//! A region that ends in the middle of an upload and starts again, over real sockets.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    CHUNK_BYTES, StateFile, UploadClock, UploadRequest, build_name, digest_of, pinned, upload,
};
use async_trait::async_trait;
use maas_client::{Client, Config};
use maas_sim::{PacedSimClock, SharedRegion, SimClock as _, SimOptions, build_region, serve};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// The region's process: its server, and how it is ended.
struct Server {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Server {
    async fn start(region: Arc<SharedRegion>, address: SocketAddr) -> (Self, SocketAddr) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(serve(listener, region, stopped));
        (Self { task, stop }, address)
    }
}

/// Waits for nothing; a region that has ended is started again when somebody waits for it.
struct RestartingClock {
    region: Arc<SharedRegion>,
    address: SocketAddr,
    server: Mutex<Server>,
    waits: Mutex<u32>,
}

#[async_trait]
impl UploadClock for RestartingClock {
    fn unix_seconds(&self) -> f64 {
        0.0
    }

    async fn wait(&self, _: Duration) {
        *self.waits.lock().await += 1;
        let mut server = self.server.lock().await;
        if *server.stop.borrow() {
            (&mut server.task).await.unwrap();
            self.region.with(|region| region.discard_incomplete_images());
            *server = Server::start(self.region.clone(), self.address).await.0;
        }
    }
}

/// A region that starts again has none of the bytes: nothing is damaged, and nobody has to say so.
#[tokio::test]
async fn an_upload_that_the_region_discarded_begins_anew() {
    let clock = Arc::new(PacedSimClock::new(1.0));
    let (region, key) = build_region(&SimOptions::default());
    let region = SharedRegion::new(region, clock.clone());
    let (server, address) = Server::start(region.clone(), ([127, 0, 0, 1], 0).into()).await;
    let stop = server.stop.clone();
    let restarting =
        RestartingClock { region, address, server: Mutex::new(server), waits: Mutex::new(0) };

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let words = (4 * CHUNK_BYTES + 16) / 8;
    let bytes: Vec<u8> = (0..words).flat_map(u64::to_le_bytes).collect();
    std::fs::write(&path, bytes).unwrap();
    let image = File::open(&path).unwrap();
    let digest = digest_of(&image).unwrap();
    let url = format!("http://localhost:{}/MAAS", address.port());
    let config = Config::new(url.clone(), key.parse().unwrap());
    let config = pinned(config, Some(&address.to_string())).unwrap();
    assert_eq!(config.address, Some(address), "of the name's addresses the one that is named");
    let client = Client::new(&config, Arc::new(move || clock.wall_seconds())).unwrap();
    let request = UploadRequest {
        name: build_name("h200", "20261120", &digest.sha256),
        architecture: "amd64/generic".to_owned(),
        filetype: "tgz".to_owned(),
        base_image: "ubuntu/noble".to_owned(),
        region_url: url,
        ..UploadRequest::default()
    };
    let state = StateFile::open(&path, "lab").unwrap();
    let mut ended = false;
    let mut observe = |progress: crate::UploadProgress| {
        if progress.acknowledged_bytes >= 2 * CHUNK_BYTES && !ended {
            ended = true;
            stop.send(true).unwrap();
        }
    };
    let report =
        upload(&client, &image, &state, &restarting, &request, &mut observe).await.unwrap();
    let shown = client.boot_resource(report.resource_id).await.unwrap();
    assert!(shown.sets.values().all(|set| set.complete), "{shown:?}");
    assert_eq!((report.restarts, report.sha256.as_str()), (1, digest.sha256.as_str()));
    assert!(report.sent_bytes > report.size_bytes, "{report:?}");
    assert!(ended && *restarting.waits.lock().await > 0, "{report:?}");
}
