//! Random people send random requests, approve, resume and change policies; a second account of it all
//! says what the policy in force allowed. Nothing is erased, pinned or approved beyond that.
//!
//! The account knows four things: who is which person, what each held request was about when it was
//! held, which policies the sites have, and what each person has erased alone within the hour. It reads
//! effects from the database, not from answers.

use std::collections::BTreeMap;

use gpuaas_core::second_person::{COUNTED_SECONDS, policy_in_force};
use gpuaas_store::{NodeChange, Page, RunFilter, RunWrite};
use gpuaas_types::spec::SecondPersonPolicy;
use gpuaas_types::{NodeState, RunId, RunKind, RunStatus, Timestamp};
use serde_json::{Value, json};

use crate::approvals::Desk;
use crate::rig::{Answer, Rig};
use crate::second_person::share_region;

/// Seeds that always run, and the most that run while too little has happened for the test to mean
/// anything: new identifiers in each run change the order in which things are picked.
const SEEDS: u64 = 10;
const SEEDS_AT_MOST: u64 = 40;
const STEPS: u32 = 60;
const SITES: [&str; 2] = ["lab", "free"];
/// Everybody who may send requests; `admin` is a person as well.
const PEOPLE: [&str; 3] = ["ann", "bob", "admin"];

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.below(of.len())) }
    }
}

/// What can be erased, as the database has it: each item and the revision of the profile that it has.
#[derive(Debug, Clone, PartialEq, Default)]
struct Effects {
    runs: BTreeMap<String, i64>,
    /// Machines of a batch that have not begun, and their revision.
    batches: BTreeMap<String, (usize, i64)>,
    images: BTreeMap<&'static str, Vec<String>>,
    policies: BTreeMap<&'static str, SecondPersonPolicy>,
}

impl Effects {
    async fn of(rig: &Rig) -> Self {
        let mut effects = Self::default();
        let all = rig.store.runs_page(RunFilter::default(), Page::first(10_000)).await.unwrap();
        for listed in all.into_iter().filter(|listed| listed.run.kind != RunKind::Remove) {
            effects.runs.insert(listed.run.id.to_string(), listed.run.profile_revision);
        }
        for batch in rig.store.batches(None, None, Page::first(1_000)).await.unwrap() {
            let members = rig.store.batch_members(batch.id).await.unwrap();
            let waiting = members.iter().filter(|member| member.run.is_none()).count();
            effects.batches.insert(batch.spec.name, (waiting, batch.profile_revision));
        }
        for name in SITES {
            let spec = rig.store.site_by_name(name).await.unwrap().spec;
            effects.images.insert(name, spec.approved_images);
            effects.policies.insert(name, spec.second_person);
        }
        effects
    }

    /// Nodes that are erased by what is new since `before`, and the revisions that they get.
    fn erased_since(&self, before: &Self) -> (u32, Vec<i64>) {
        let runs = self.runs.iter().filter(|(id, now)| before.runs.get(*id) != Some(now));
        let runs = runs.map(|(_, revision)| (1, *revision));
        let other = |name: &String, revision: &i64| {
            before.batches.get(name).is_none_or(|(_, known)| known != revision)
        };
        let batches = self.batches.iter().filter(|(name, (_, revision))| other(name, revision));
        let batches = batches.map(|(_, (machines, revision))| (*machines, *revision));
        let all: Vec<(usize, i64)> = runs.chain(batches).collect();
        let nodes: usize = all.iter().map(|(nodes, _)| nodes).sum();
        (u32::try_from(nodes).unwrap(), all.into_iter().map(|(_, revision)| revision).collect())
    }
}

/// How a request was let through.
enum By {
    /// Its sender alone.
    Alone,
    /// Somebody approved it: the one who asked, and the profile's revision when it was held.
    Approval { requester: String, revision: i64 },
}

struct World {
    desk: Desk,
    dice: Dice,
    tokens: BTreeMap<&'static str, String>,
    /// Who asked for a held request, and the profile's revision then.
    held: BTreeMap<String, (String, i64)>,
    /// What people erased alone while a policy counted it.
    alone: Vec<(Timestamp, String, u32)>,
    names: u32,
    /// Effects alone and by approval, so that the test is not of nothing.
    seen: (u32, u32),
}

impl World {
    async fn new(seed: u64) -> Self {
        let desk = Desk::serve(Rig::with_site().await).await;
        share_region(&desk.rig).await;
        let roles = ["operator", "approver"];
        let mut tokens = BTreeMap::new();
        for name in ["ann", "bob"] {
            let token = desk.token(&format!("{name}-all"), &roles, Some(name)).await;
            tokens.insert(name, token);
        }
        tokens.insert("admin", desk.rig.admin.clone());
        for host in ["a", "b", "c"] {
            desk.active(host).await;
        }
        let (held, alone) = (BTreeMap::new(), Vec::new());
        Self { desk, dice: Dice(seed), tokens, held, alone, names: 0, seen: (0, 0) }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    async fn revision(&self) -> i64 {
        self.desk.rig.store.profile_by_name("h200").await.unwrap().revision
    }

    async fn runs_with(&self, status: RunStatus) -> Vec<RunId> {
        let filter = RunFilter { status: Some(status), ..RunFilter::default() };
        let runs = self.desk.rig.store.runs_page(filter, Page::first(1_000)).await.unwrap();
        runs.into_iter().map(|listed| listed.run.id).collect()
    }

    async fn nodes(&self) -> Vec<String> {
        let list = self.desk.rig.get("/api/v1/nodes?limit=200").await.ok();
        let items = list["items"].as_array().unwrap();
        items.iter().map(|one| one["hostname"].as_str().unwrap().to_owned()).collect()
    }

    /// A random request: method, path, body.
    async fn request(&mut self) -> Option<(&'static str, String, Value)> {
        let word = |mut body: Value| {
            (body["actor"], body["reason"]) = (json!("x"), json!("by chance"));
            body
        };
        let site = *self.dice.pick(&SITES).unwrap();
        let sites = format!("/api/v1/sites/{site}");
        Some(match self.dice.below(13) {
            0..=2 => {
                let node = self.dice.pick(&self.nodes().await)?.clone();
                let kinds = ["reimage", "reimage", "detach", "decommission"];
                let kind = *self.dice.pick(&kinds)?;
                ("POST", format!("/api/v1/nodes/{node}/runs"), word(json!({ "kind": kind })))
            }
            3 => {
                let body = json!({ "hostname": self.name(), "site": site, "profile": "h200" });
                ("POST", "/api/v1/nodes".to_owned(), body)
            }
            4 => {
                let count = 1 + self.dice.below(3);
                let machines: Vec<Value> =
                    (0..count).map(|_| json!({ "hostname": self.name() })).collect();
                let spec = json!({
                    "name": self.name(), "site": site, "profile": "h200", "machines": machines,
                });
                ("POST", "/api/v1/batches".to_owned(), json!({ "spec": spec }))
            }
            5 | 6 => {
                let all = self.desk.rig.store.batches(None, None, Page::first(99)).await.unwrap();
                let name = self.dice.pick(&all)?.spec.name.clone();
                let verb = *self.dice.pick(&["stop", "resume", "resume"])?;
                ("POST", format!("/api/v1/batches/{name}/{verb}"), word(json!({})))
            }
            7 | 8 => {
                let run = *self.dice.pick(&self.runs_with(RunStatus::Parked).await)?;
                let verb = *self.dice.pick(&["resume", "retry"])?;
                let body = json!({ "latest_profile": self.dice.below(4) > 0 });
                ("POST", format!("/api/v1/runs/{run}/{verb}"), word(body))
            }
            9 | 10 => {
                let limit = match self.dice.below(5) {
                    0 => Value::Null,
                    most => json!(most - 1),
                };
                let images = self.dice.below(2) == 0;
                let policy = json!({ "erasing_above": limit, "image_approvals": images });
                ("PATCH", sites, json!({ "second_person": policy }))
            }
            11 => {
                let digest = format!("{:064x}", self.dice.below(3));
                let list = json!([format!("custom/evil@sha256:{digest}")]);
                ("PATCH", sites, json!({ "approved_images": list }))
            }
            _ => {
                let role = *self.dice.pick(&["approver", "operator", "admin"])?;
                let name = self.name();
                let grants = json!([{ "role": role }]);
                let body = json!({ "name": name, "person": name, "grants": grants, "reason": "by chance" });
                ("POST", "/api/v1/tokens".to_owned(), body)
            }
        })
    }

    /// Ends or parks an open run, as the engine would; the time, or another revision of the profile.
    async fn live(&mut self) {
        match self.dice.below(4) {
            0 => self.desk.rig.advance(i64::try_from(self.dice.below(1_500)).unwrap()),
            1 => {
                let patch = json!({ "max_deploy_retry_attempts": 1 + self.dice.below(9) });
                self.desk.rig.patch("/api/v1/profiles/h200", patch).await.ok();
            }
            _ => {
                let now = self.desk.rig.now();
                let store = &self.desk.rig.store;
                for claimed in store.claim(now, now.plus_seconds(1.0), 50).await.unwrap() {
                    let ends = self.dice.below(2) == 0;
                    let mut write = RunWrite::new(claimed.run);
                    write.run.due_at = Timestamp::NEVER;
                    write.run.status = if ends { RunStatus::Succeeded } else { RunStatus::Parked };
                    if ends {
                        write.run.ended_at = Some(now);
                        let state = match write.run.kind {
                            RunKind::Detach => NodeState::Detached,
                            RunKind::Decommission => NodeState::Retired,
                            _ => NodeState::Active,
                        };
                        write.node = Some(NodeChange { state: Some(state), system_id: None });
                    }
                    store.commit(now, write.releasing()).await.unwrap();
                }
            }
        }
    }

    /// Notes a request that was held.
    async fn note(&mut self, person: &str, answer: &Answer) {
        if answer.status != 409 || answer.json()["code"] != "second_person_needed" {
            return;
        }
        let revision = self.revision().await;
        let list = self.desk.rig.get("/api/v1/approvals?open=true&limit=200").await.ok();
        for one in list["items"].as_array().unwrap() {
            let id = one["id"].as_str().unwrap().to_owned();
            self.held.entry(id).or_insert_with(|| (person.to_owned(), revision));
        }
    }

    async fn step(&mut self) -> Result<(), String> {
        if self.dice.below(3) == 0 {
            self.live().await;
            return Ok(());
        }
        let person = *self.dice.pick(&PEOPLE).unwrap();
        let token = self.tokens[person].clone();
        let before = Effects::of(&self.desk.rig).await;
        let waiting: Vec<String> = self.held.keys().cloned().collect();
        let (answer, by, path) = if self.dice.below(3) == 0 && !waiting.is_empty() {
            let id = self.dice.pick(&waiting).unwrap().clone();
            let (requester, revision) = self.held[&id].clone();
            let answer = self.desk.verdict(&token, &id, "approve").await;
            (answer, By::Approval { requester, revision }, format!("approval {id}"))
        } else {
            let Some((method, path, body)) = self.request().await else { return Ok(()) };
            let answer = self.desk.send(&token, method, &path, Some(body)).await;
            (answer, By::Alone, path)
        };
        let after = Effects::of(&self.desk.rig).await;
        self.note(person, &answer).await;
        let asked = format!("{person} {path}: {} {}", answer.status, answer.json());
        self.judge(person, &by, (&before, &after))
            .and_then(|()| Self::judge_token(&path, &answer, &before))
            .map_err(|why| format!("{why}\n{asked}"))
    }

    /// A token for another person is made only while no policy is on.
    fn judge_token(path: &str, answer: &Answer, before: &Effects) -> Result<(), String> {
        let guarded = before.policies.values().any(|policy| !policy.is_off());
        match path == "/api/v1/tokens" && answer.status == 201 && guarded {
            true => Err("a second person was minted".to_owned()),
            false => Ok(()),
        }
    }

    fn judge(
        &mut self,
        person: &str,
        by: &By,
        (before, after): (&Effects, &Effects),
    ) -> Result<(), String> {
        let (nodes, revisions) = after.erased_since(before);
        let force = policy_in_force(before.policies.values());
        let listed = SITES.iter().any(|name| {
            after.images[name].iter().any(|image| !before.images[name].contains(image))
        });
        let weaker = SITES.iter().any(|name| {
            use gpuaas_core::second_person::{GuardedRequest, wants_second_person};
            let to = GuardedRequest::ChangePolicy(&after.policies[name]);
            wants_second_person(&before.policies[name], to)
        });
        match by {
            By::Approval { requester, revision } => {
                let done = nodes > 0 || listed || weaker;
                self.seen.1 += u32::from(done);
                if done && requester == person {
                    return Err("approved by the person who asked".to_owned());
                }
                if revisions.iter().any(|one| one != revision) {
                    return Err(format!("agreed to {revision}, done with {revisions:?}"));
                }
            }
            By::Alone => {
                if listed && force.image_approvals {
                    return Err("an image was approved alone".to_owned());
                }
                if weaker {
                    return Err("a policy was weakened alone".to_owned());
                }
                self.seen.0 += nodes;
                let Some(most) = force.erasing_above.filter(|_| nodes > 0) else { return Ok(()) };
                let now = self.desk.rig.now();
                self.alone.push((now, person.to_owned(), nodes));
                let of_person = self.alone.iter().filter(|(at, who, _)| {
                    who == person && now.seconds_since(*at) < COUNTED_SECONDS
                });
                let counted: u32 = of_person.map(|(_, _, nodes)| nodes).sum();
                if counted > most {
                    return Err(format!(
                        "{counted} nodes within an hour; the policy allows {most}"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn nothing_is_done_that_the_policy_in_force_did_not_allow() {
    let mut seen = (0, 0);
    let enough = |seen: (u32, u32)| seen.0 > 30 && seen.1 > 10;
    for seed in 1..=SEEDS_AT_MOST {
        if seed > SEEDS && enough(seen) {
            break;
        }
        let mut world = World::new(seed).await;
        for step in 0..STEPS {
            if let Err(why) = world.step().await {
                panic!("seed {seed}, step {step}: {why}");
            }
        }
        seen = (seen.0 + world.seen.0, seen.1 + world.seen.1);
    }
    assert!(enough(seen), "hardly anything was done: {seen:?}");
}
