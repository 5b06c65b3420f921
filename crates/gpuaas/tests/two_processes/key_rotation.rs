//! `gpuaas key rotate`, killed as soon as it has begun, again and again, and at last left alone.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use gpuaas_store::{KeptResponse, KeyRing, MasterKey, ReplayKey, Store};
use gpuaas_types::Timestamp;

use crate::rig::gpuaas;

/// Values, which take several transactions.
const VALUES: usize = 1_600;
/// Times that it is killed.
const KILLS: usize = 4;
const NOW: Timestamp = Timestamp::from_micros(1_795_176_000_000_000);

fn replay(number: usize) -> ReplayKey {
    ReplayKey { caller: "ada".to_owned(), key: format!("k{number}") }
}

fn response(number: usize) -> KeptResponse {
    KeptResponse { status: 201, content_type: None, etag: None, body: format!("hush-{number}") }
}

/// The store, with the keys that the data folder has at this moment.
async fn open(data: &Path) -> Store {
    let key = |name: &str| MasterKey::load_or_create(&data.join(name)).unwrap();
    let next = data.join("master.key.next").exists().then(|| key("master.key.next"));
    let url = format!("sqlite:{}", data.join("gpuaas.db").display());
    Store::open(&url, KeyRing::new(key("master.key"), next)).await.unwrap()
}

async fn plant(data: &Path) {
    let store = open(data).await;
    let one = async |number: usize| {
        store.begin_replayable(NOW, &replay(number), [1; 32], 90.0).await.unwrap();
        store.end_replayable(&replay(number), [1; 32], Some(response(number))).await.unwrap();
    };
    futures::future::join_all((0..VALUES).map(one)).await;
    store.close().await;
}

async fn all_open(data: &Path) -> bool {
    let store = open(data).await;
    let one = async |number: usize| {
        let kept = store.begin_replayable(NOW, &replay(number), [1; 32], 90.0).await.unwrap();
        kept == Some(response(number))
    };
    let opened = futures::future::join_all((0..VALUES).map(one)).await;
    store.close().await;
    opened.into_iter().all(|opened| opened)
}

fn rotation(data: &Path) -> Command {
    let mut command = gpuaas();
    command.args(["key", "rotate", "--reason", "test", "--data"]).arg(data);
    command
}

#[tokio::test]
async fn a_rotation_that_is_killed_again_and_again_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    plant(data).await;
    let before = MasterKey::load_or_create(&data.join("master.key")).unwrap().id_hex();
    for kill in 0..KILLS {
        let mut child = rotation(data).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(said.contains("seals"), "kill {kill}: {said}");
        assert!(all_open(data).await, "after kill {kill}");
    }
    let ended = rotation(data).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(all_open(data).await);
    let after = MasterKey::load_or_create(&data.join("master.key")).unwrap().id_hex();
    assert_ne!(after, before);
    assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), after);
    let former = data.join(format!("master.key.former-{before}"));
    let former = MasterKey::load_or_create(&former).unwrap();
    let url = format!("sqlite:{}", data.join("gpuaas.db").display());
    assert_eq!(Store::open(&url, former).await.unwrap_err().code(), "master_key_wrong");
}
