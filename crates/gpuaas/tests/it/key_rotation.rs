//! `gpuaas key rotate`, killed as soon as it has begun, again and again, and at last left alone; beside
//! control planes that share a PostgreSQL; and between a backup and its restoration elsewhere.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use gpuaas_store::{KeptResponse, KeyRing, MasterKey, ReplayKey, Store};
use gpuaas_types::Timestamp;

use crate::backup::get_json;
use crate::replicas::{Replica, Replicas, machine_mac, machine_names};
use gpuaas_testkit::processes::{Rig, gpuaas, until};

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

/// Two with both keys go on through a rotation, and work with what was moved; one that was started with
/// the former key alone says why it does not.
#[test]
fn replicas_go_on_through_a_rotation() {
    let Some(replicas) = Replicas::prepare() else { return };
    gpuaas_client::install_cryptography();
    let (region, key) =
        replicas.region(&["--machines", "2", "--class", "zero", "--hosts", "fleet"]);
    let file = |name: &str| format!("file:{}", replicas.key_file(name));
    let (former, next) = (file("former.key"), file("next.key"));
    let one = ["--stand-ins", "--master-key", &former];
    let both = [&one[..], &["--master-key", &next]].concat();
    let start = |name: &str, options: &[&str]| replicas.start_at(name, "127.0.0.1:0", options);
    let (a, b, late) = (start("a", &both), start("b", &both), start("late", &one));
    let token = replicas.token_file(&["a", "b", "late"]);
    let url = region.value("listening");
    a.good(&token, &format!("site add lab --url {url} --api-key-file {key}"));
    a.good(&token, "profile add zero");

    let rotate = |options: &[&str]| {
        let mut rotate = gpuaas();
        rotate.args(["key", "rotate", "--reason", "test", "--database", replicas.database.url()]);
        rotate.args(["--master-key", &former, "--to", &next, "--data"]).arg(replicas.dir.path());
        rotate.args(options).output().unwrap()
    };
    let output = rotate(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("error control_planes_lack_key"), "{said}");
    a.good(&token, &format!("site set lab --api-key-file {key}"));
    let output = rotate(&["--force"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let id = String::from_utf8(output.stdout).unwrap();

    let ready = |plane: &Replica| get_json(&format!("{}/readyz", plane.server.value("listening")));
    let said = ready(&late);
    assert_eq!(said["code"], "master_key_changed", "{said}");
    let names_the_key = said["detail"].as_str().is_some_and(|text| text.contains(id.trim()));
    assert!(
        names_the_key && said["hint"].as_str().unwrap().contains("--master-key NEXT"),
        "{said}"
    );
    drop(late);
    for plane in [&a, &b] {
        assert_eq!(ready(plane)["status"], "ok");
        // Opens what was moved, and seals anew.
        plane.good(&token, &format!("site set lab --api-key-file {key}"));
    }
    for (plane, name) in [&a, &b].into_iter().zip(machine_names(&region)) {
        let mac = machine_mac(&region, &name);
        let line = format!("node onboard {name} --site lab --profile zero --mac {mac}");
        plane.good(&token, &format!("{line} --wait --timeout 60"));
    }
    drop((a, b));
    // From now on the next one is enough, and the former one is not.
    let next_alone = start("a", &["--stand-ins", "--master-key", &next]);
    assert!(next_alone.good(&token, "site show lab").contains("lab"));
    let mut refused = gpuaas();
    refused.args(["serve", "--listen", "127.0.0.1:0", "--stand-ins", "--master-key", &former]);
    refused.args(["--database", replicas.database.url(), "--data"]).arg(replicas.dir.path());
    let output = refused.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("error master_key_wrong"), "{said}");
    assert!(said.contains("--master-key FORMER --master-key NEXT"), "{said}");
}

/// A backup has both keys, and whoever restores it elsewhere goes on with the rotation there.
#[test]
fn a_backup_from_amid_a_rotation_is_restored_elsewhere_and_goes_on() {
    let mut rig = Rig::start();
    rig.add_site();
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
    let (data, other) = (rig.path("data"), rig.path("other/data"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(plant(Path::new(&data)));
    let mut child = rotation(Path::new(&data)).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.contains("seals"), "{said}");
    let states = |data: &str| {
        let shown = rig.json(&format!("key show --data {data} -o json"));
        let states = shown["keys"].as_array().unwrap().iter();
        states.map(|key| key["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states(&data), ["sealing", "moving"], "the rotation is to be under way");

    let (backup, key) = (rig.path("backup"), rig.path("backup.key"));
    rig.good(&format!("backup --data {data} --to {backup} --key-file {key}"));
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::create_dir(rig.path("other")).unwrap();
    rig.good(&format!(
        "restore {backup} --data {other} --key-file {key} --original-is-gone --reason lost"
    ));
    assert_eq!(states(&other), ["sealing", "moving"]);
    assert!(runtime.block_on(all_open(Path::new(&other))));
    let ended = rotation(Path::new(&other)).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(states(&other), ["sealing", "retired"]);
    assert!(runtime.block_on(all_open(Path::new(&other))));
    // The region's key opens, too: the control plane asks MAAS with it.
    rig.replace("other");
    let of = |line: &str| {
        let mut command = gpuaas();
        command.args(line.split_whitespace());
        command.env("GPUAAS_SERVER", rig.control_plane.value("listening"));
        command.env("GPUAAS_TOKEN_FILE", rig.path("other/data/admin-token"));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    until("it reaches the region", || of("site show lab -o json").contains("\"ok\""));
}
