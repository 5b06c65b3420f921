//! Changes of the admin API that need more than a site and a node, or that are made once.

use gpuaas_core::control_mark::{ControlRecord, ControlState};
use gpuaas_store::{EventSinkWrite, NewDeadLetter, NodeChange, RunWrite};
use gpuaas_types::api::{Owner, SiteControl};
use gpuaas_types::codes::ParkCode;
use gpuaas_types::event::{DeliveryFault, EventCursor};
use gpuaas_types::machine::Observation;
use gpuaas_types::park::Park;
use gpuaas_types::{RunStatus, Timestamp};
use serde_json::{Value, json};

use crate::agents::machine_with;
use crate::hang_up_cases::{Asked, Case, because, image, image_record, with, with_node};
use crate::rig::{Rig, reply};
use crate::slice_claims::{CLAIMS, claim, slice_host_with_agent};
use crate::slice_launch::SliceRig;
use crate::slices::{NODE, discover, whole_topology};
use crate::tls::Tls;
use crate::{authority_rollover, experiments, images};

macro_rules! cases {
    ($($rig:ident $each:literal $method:ident $path:literal |$at:ident, $n:ident| $request:block)+) => {
        /// Changes by one request each. `true`: each request has a rig of its own.
        pub(crate) const SINGLE_CASES: &[Case] = &[$(Case {
            method: stringify!($method),
            path: $path,
            rig: || Box::pin($rig()),
            each: $each,
            request: |$at, $n| Box::pin(async move { $request }),
        }),+];
    };
}

/// Operations that are no GET and change nothing.
pub(crate) const UNCHANGING: &[Case] = &[Case {
    method: "POST",
    path: "/api/v1/onboarding-plans",
    rig: || Box::pin(with_node()),
    each: false,
    request: |_, n| Box::pin(plan(n)),
}];

async fn plan(n: u32) -> Asked {
    let body = json!({ "hostname": format!("n{n}"), "site": "lab", "profile": "h200" });
    ("/api/v1/onboarding-plans".to_owned(), body)
}

/// A site whose region another control plane holds.
async fn yielded() -> Rig {
    let rig = Rig::with_site().await;
    let comment = "Kept by GPUaaS; do not change or delete it. region=r plane=other writer=w \
                   term=3 count=9 since=1 at=2";
    let tag = json!({ "name": "gpuaas-control-plane", "comment": comment }).to_string();
    *rig.maas.tags.lock().unwrap() = reply(200, "application/json", &tag);
    let site = rig.store.site_by_name("lab").await.unwrap();
    let yielded = ControlRecord { state: ControlState::Yielded, ..ControlRecord::default() };
    let control = SiteControl {
        code: "site_controlled_elsewhere".to_owned(),
        text: "another one has it".to_owned(),
        since: rig.now(),
    };
    let known = ControlRecord::default();
    let set = rig.store.set_site_control(rig.now(), site.id, known, yielded, Some(control), None);
    set.await.unwrap();
    rig
}

/// A webhook that did not take an event.
async fn dead_letter(rig: &Rig, name: &str) {
    let hook = json!({ "name": name, "url": "https://hooks.example/", "reason": "for the test" });
    rig.post("/api/v1/webhooks", hook).await.ok();
    let event = rig.store.events_after(EventCursor::BEGIN, 1).await.unwrap().remove(0);
    // Those of earlier requests are leased.
    let (sink, _) = rig.store.free_event_sinks(rig.now()).await.unwrap()[0];
    let until = rig.now().plus_seconds(30.0);
    let lease = rig.store.claim_event_sink(rig.now(), sink, until).await.unwrap().unwrap();
    let error = "it answered 422".to_owned();
    let dead = NewDeadLetter { event, code: DeliveryFault::Refused, error };
    let write = EventSinkWrite { dead: vec![dead], ..EventSinkWrite::default() };
    rig.store.write_event_sink(rig.now(), &lease, until, write).await.unwrap();
}

async fn two_images() -> Rig {
    let rig = images::rig().await;
    for name in [images::OLD, images::NEW] {
        images::transition(&rig, name, images::transition_body("approved")).await.unwrap();
    }
    rig
}

async fn two_nodes() -> Rig {
    experiments::rig(2).await
}

async fn experiment() -> Rig {
    let rig = two_nodes().await;
    experiments::begin(&rig, experiments::start("try", 2)).await;
    rig
}

/// An experiment whose second runs may begin.
async fn first_runs_ended() -> Rig {
    let rig = two_nodes().await;
    let begun =
        experiments::begin(&rig, with(experiments::start("try", 2), &json!({ "paired": true })));
    for one in begun.await["assignments"].as_array().unwrap() {
        if let Some(run) = one.get("run") {
            rig.put_run(serde_json::from_value(run.clone()).unwrap(), RunStatus::Succeeded).await;
            rig.advance(60);
        }
    }
    rig
}

async fn with_certificate() -> Rig {
    let tls = Tls::new().await;
    tls.enrolled("j22u11").await;
    tls.rig
}

async fn with_authority() -> Rig {
    authority_rollover::started().await.rig
}

async fn authority_staged() -> Rig {
    let rig = with_authority().await;
    rig.post("/api/v1/authority", because()).await.ok();
    rig
}

/// A run that is parked because its machine is in use.
async fn in_use(rig: &Rig, n: u32) -> String {
    let id = rig.onboard(&format!("n{n}")).await.run_id;
    let (now, system_id) = (rig.now(), format!("m{n}"));
    for claimed in rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap() {
        let mut write = RunWrite::new(claimed.run).releasing();
        if write.run.id != id {
            rig.store.commit(now, write).await.unwrap();
            continue;
        }
        (write.run.status, write.run.due_at) = (RunStatus::Parked, Timestamp::NEVER);
        write.run.park = Some(Park {
            code: ParkCode::MachineInUse.as_str().to_owned(),
            text: "bob has it".to_owned(),
            since: now,
            owner: Owner::PlatformOperator,
            evidence: Vec::new(),
            next_action: "ask bob".to_owned(),
            actions: Vec::new(),
            failure_class: None,
            looks_again_at: None,
        });
        write.node = Some(NodeChange { state: None, system_id: Some(system_id.clone()) });
        let mut machine = machine_with(&[]);
        machine.system_id.clone_from(&system_id);
        write.observation = Some(Observation::from_read(machine, now));
        rig.store.commit(now, write).await.unwrap();
    }
    id.to_string()
}

/// A host whose slots nobody has approved.
async fn discovered() -> Rig {
    let (rig, _, credential) = Rig::heard_for_slices().await;
    discover(&rig, &credential, whole_topology()).await;
    rig
}

async fn slice_host() -> Rig {
    slice_host_with_agent().await.0
}

async fn claimed() -> Rig {
    let rig = slice_host().await;
    rig.post(CLAIMS, claim(1)).await.ok();
    rig
}

async fn slot_in_doubt() -> Rig {
    SliceRig::in_doubt().await.rig
}

/// Path of the only claim.
async fn claim_path(rig: &Rig) -> String {
    let claims = rig.get(CLAIMS).await.ok();
    format!("{CLAIMS}/{}", claims["items"][0]["id"].as_str().unwrap())
}

cases! {
    yielded true POST "/api/v1/sites/{name}/take-control" |_rig, _n| {
        ("/api/v1/sites/lab/take-control".to_owned(), because())
    }
    with_node false POST "/api/v1/dead-letters/replay" |rig, n| {
        let name = format!("w{n}");
        dead_letter(rig, &name).await;
        let body = json!({ "sink": name, "reason": "it was mended" });
        ("/api/v1/dead-letters/replay".to_owned(), body)
    }
    two_images false POST "/api/v1/profiles/{name}/rollback-image" |rig, _n| {
        for name in [images::OLD, images::NEW] {
            images::set_image(rig, name).await;
        }
        let body = with(because(), &json!({ "site": "lab" }));
        ("/api/v1/profiles/h200/rollback-image".to_owned(), body)
    }
    with_node false POST "/api/v1/images/{image}/delete" |rig, n| {
        rig.maas.images.lock().unwrap().insert(u64::from(n), image(n));
        for state in ["built", "verified", "uploaded"] {
            rig.post("/api/v1/images", image_record(n, state)).await.ok();
        }
        let body = with(because(), &json!({ "site": "lab" }));
        (format!("/api/v1/images/{}/delete", image(n).0), body)
    }
    two_nodes true POST "/api/v1/experiments" |_rig, _n| {
        ("/api/v1/experiments".to_owned(), experiments::start("try", 2))
    }
    first_runs_ended true POST "/api/v1/experiments/{experiment}/next" |_rig, _n| {
        ("/api/v1/experiments/try/next".to_owned(), because())
    }
    experiment true POST "/api/v1/experiments/{experiment}/stop" |_rig, _n| {
        ("/api/v1/experiments/try/stop".to_owned(), because())
    }
    with_certificate true POST "/api/v1/nodes/{node}/revoke-certificate" |_rig, _n| {
        ("/api/v1/nodes/j22u11/revoke-certificate".to_owned(), because())
    }
    with_node false POST "/api/v1/runs/{run}/take-over" |rig, n| {
        let run = in_use(rig, n).await;
        (format!("/api/v1/runs/{run}/take-over"), because())
    }
    with_authority true POST "/api/v1/authority" |_rig, _n| {
        ("/api/v1/authority".to_owned(), because())
    }
    authority_staged true POST "/api/v1/authority/activate" |_rig, _n| {
        ("/api/v1/authority/activate".to_owned(), with(because(), &json!({ "force": true })))
    }
    authority_staged true POST "/api/v1/authority/retire" |_rig, _n| {
        ("/api/v1/authority/retire".to_owned(), with(because(), &json!({ "force": true })))
    }
    discovered true POST "/api/v1/admin/nodes/{node}/slice-topology/approval" |rig, _n| {
        let digest = rig.get(NODE).await.ok()["digest"].clone();
        let body = with(because(), &json!({ "digest": digest, "slots": [] }));
        (format!("{NODE}/approval"), body)
    }
    slice_host true POST "/api/v1/admin/slice-claims" |_rig, _n| {
        (CLAIMS.to_owned(), claim(1))
    }
    claimed true DELETE "/api/v1/admin/slice-claims/{claim}" |rig, _n| {
        (format!("{}?actor=ada&reason=not+wanted", claim_path(rig).await), Value::Null)
    }
    claimed true POST "/api/v1/admin/slice-claims/{claim}/launch" |rig, _n| {
        let body = with(because(), &json!({ "image": "debian-13.raw" }));
        (format!("{}/launch", claim_path(rig).await), body)
    }
    slot_in_doubt true POST "/api/v1/admin/nodes/{node}/slots/{index}/recovery" |_rig, _n| {
        ("/api/v1/admin/nodes/j22u11/slots/0/recovery".to_owned(), because())
    }
}
