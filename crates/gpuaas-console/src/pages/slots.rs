//! The slots of one node: the map of the last discovery, and what of it is approved.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use gpuaas_types::slot::{SliceMapView, SlotInventory, SlotMapDifference};

use super::{Shell, draw, failed};
use crate::api::{Failure, Viewer};
use crate::requests::{part, shell_word, with_query};
use crate::state::Console;

struct Slot {
    index: u32,
    state: String,
    class: &'static str,
    gpu: String,
    serial: String,
    vf: String,
    drive: String,
    numa: String,
    cpus: String,
    pages: u32,
    mac: String,
    ip: String,
    blockers: Vec<String>,
}

#[derive(Template)]
#[template(path = "slots.html")]
struct SlotsPage {
    shell: Shell,
    node: String,
    node_href: String,
    digest: String,
    host_blockers: Vec<String>,
    slots: Vec<Slot>,
    changes: Vec<(String, String, String, String)>,
    failure: Option<Failure>,
    discover: String,
    approve: String,
}

/// `GET /nodes/NODE/slots`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Response {
    let path = format!("/api/v1/admin/nodes/{}/slice-topology", part(&name));
    let map = viewer.api.get::<SliceMapView>(&path).await;
    let now = console.now();
    let shell = Shell::new(&viewer, &format!("Slots of {name}"), "nodes", now)
        .sources(format!("gpuaas slice map {}", shell_word(&name)), path.clone());
    let (map, failure) = match map {
        Ok(map) => (Some(map), None),
        // A node that was never discovered has no map; the page says how to make one.
        Err(failure) if failure.problem.status == 404 => (None, Some(failure)),
        Err(failure) => return failed(&viewer, now, &failure),
    };
    let inventory = viewer
        .api
        .get::<SlotInventory>(&with_query("/api/v1/admin/slots", &[("node", &name)]))
        .await
        .ok();
    let changes = viewer.api.get::<SlotMapDifference>(&format!("{path}/diff")).await.ok();
    let changes = changes.map(|difference| difference.changes).unwrap_or_default();
    let changes = changes.into_iter().map(|change| {
        (change.gpu.unwrap_or_else(|| "host".to_owned()), change.what, change.before, change.after)
    });
    let digest = map.as_ref().map(|map| map.digest.clone()).unwrap_or_default();
    draw(&SlotsPage {
        shell,
        node_href: format!("/nodes/{}", part(&name)),
        host_blockers: map.as_ref().map(|map| codes(&map.host_blockers)).unwrap_or_default(),
        slots: map.map(|map| slots(map, inventory.as_ref())).unwrap_or_default(),
        changes: changes.collect(),
        discover: format!("gpuaas slice discover {}", shell_word(&name)),
        approve: format!(
            "gpuaas slice approve {} --digest {digest} --reason WHY",
            shell_word(&name)
        ),
        node: name,
        digest,
        failure,
    })
}

fn codes(blockers: &[gpuaas_types::slot::SlotBlocker]) -> Vec<String> {
    blockers.iter().map(|blocker| blocker.code.clone()).collect()
}

fn slots(map: SliceMapView, inventory: Option<&SlotInventory>) -> Vec<Slot> {
    let unknown = || "unknown".to_owned();
    let state_of = |index: u32| {
        let slots = inventory.map(|inventory| &inventory.slots)?;
        slots
            .iter()
            .find(|slot| slot.index == index && slot.node == map.node)
            .map(|slot| slot.state)
    };
    let slot = |slot: &gpuaas_types::slot::CandidateSlot| {
        let state = state_of(slot.index).unwrap_or(slot.state);
        Slot {
            index: slot.index,
            state: state.to_string(),
            class: if slot.blockers.is_empty() { "" } else { "bad" },
            gpu: slot.gpu.address.clone(),
            serial: slot.gpu.serial.clone().unwrap_or_else(unknown),
            vf: slot.fabric_vf.as_ref().map_or_else(|| "none".to_owned(), |vf| vf.address.clone()),
            drive: slot.nvme.as_ref().map_or_else(|| "none".to_owned(), |drive| drive.path.clone()),
            numa: slot.numa_node.map_or_else(unknown, |node| node.to_string()),
            cpus: slot.cpus.clone(),
            pages: slot.hugepages,
            mac: slot.mac.clone(),
            ip: slot.private_ip.clone().unwrap_or_else(|| "none".to_owned()),
            blockers: codes(&slot.blockers),
        }
    };
    map.slots.iter().map(slot).collect()
}
