//! `gpuaas bench slices`: slices are launched and released on emulated hosts, and what their tenants left
//! is looked for.
//!
//! The control plane's decisions, the store and the agent are the real ones. A host is a folder with the
//! files of a server, whose drives are files, and a program that plays libvirt, the drives' controllers
//! and the guests (`gpuaas_lab::slice_host`). A guest writes to each of its drives; what of it is there
//! once the slots are free, or once somebody else could have them, is residue. Every second launch meets a
//! fault, one after the other; a release that it blocks is made again once it is mended.
//!
//! With `--guest` the guest is real: QEMU boots a disk with a system and cloud-init of its own, which reads
//! the agent's seed, runs its user-data and calls the agent. With `--libvirt` it does so as a domain of this
//! machine's libvirt, behind this machine's bridge.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_core::domain::{DomainPolicy, VirtType};
use gpuaas_core::slice_run::launch_spec;
use gpuaas_core::slots::SlotPolicy;
use gpuaas_engine::{Clock as _, RealClock, step_slice_runs};
use gpuaas_lab::slice_host::{EmulatedSliceHost, GUEST_IMAGE, LAYOUTS, SliceFault};
use gpuaas_node_agent::env::AgentEnv;
use gpuaas_node_agent::host::Host;
use gpuaas_node_agent::tasks;
use gpuaas_store::{ClaimOutcome, MasterKey, NewSliceLaunch, SlotClaim, Store};
use gpuaas_types::claim::ClaimState;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::slice::{PartSpan, SliceRunKind, SliceRunStatus};
use gpuaas_types::{ClaimId, NodeId, RandomIds};
use host_facts::HostRoot;
use serde::Serialize;

use crate::arguments::BenchSlicesArgs;
use crate::slice_fleet;

/// GPUs of the launches, by turns.
const GPUS: [u32; 2] = [1, 2];
/// Faults of every second launch, by turns. A guest that is never heard would be waited for by the wall.
const FAULTS: [SliceFault; 10] = [
    SliceFault::EraseLies,
    SliceFault::EraseStopsShort,
    SliceFault::EraseFails,
    SliceFault::ResetFails,
    SliceFault::StartFails,
    SliceFault::StopFails,
    SliceFault::IdentityLost,
    SliceFault::IdentityStays,
    SliceFault::PartitionRefused,
    SliceFault::PartitionStays,
];
/// Those of them that a launch meets.
const AT_LAUNCH: [SliceFault; 4] = [
    SliceFault::StartFails,
    SliceFault::GuestSilent,
    SliceFault::IdentityLost,
    SliceFault::PartitionRefused,
];
/// Turns of control plane and agent after which a launch or a release counts as stuck.
const TURNS: usize = 200;
/// Seconds for which a claim is reserved.
const RESERVED_SECONDS: f64 = 3600.0;
/// What is no hardware and no guest here.
const SIMULATED: [&str; 5] = ["libvirt", "GPUs", "virtual functions", "NVMe controllers", "guests"];
/// CPUs and GiB of memory of a real guest, which any machine has.
const REAL_GUEST_SHAPE: (u32, u32) = (2, 1);
/// Seconds that a real guest may take: QEMU emulates it.
const REAL_GUEST_SECONDS: u32 = 3600;
/// Lines of a real guest's console that say why it was not heard.
const CONSOLE_LINES: usize = 20;

/// The result of `gpuaas bench slices`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SlicesReport {
    /// What was played: no time of it is that of hardware.
    pub simulated: Vec<&'static str>,
    /// Number of hosts.
    pub hosts: usize,
    /// Slices that were launched.
    pub launches: u64,
    /// Launches that ended with a guest that runs.
    pub ready: u64,
    /// Launches that failed and were taken back.
    pub abandoned: u64,
    /// Mean seconds of each part of a launch, of those that ended with a guest that runs.
    pub launch_parts_seconds: BTreeMap<String, f64>,
    /// Mean seconds of each part of a release, of those that nothing blocked.
    pub release_parts_seconds: BTreeMap<String, f64>,
    /// Bytes of tenants that were looked for on drives whose slots are free.
    pub bytes_checked: u64,
    /// Bytes of them that were there.
    pub residue_bytes: u64,
    /// Releases on drives that said that they erased themselves, and had not.
    pub lying_erases: u64,
    /// Those of them whose slots stayed out of capacity.
    pub lying_erases_caught: u64,
    /// Releases that were blocked, the lies among them.
    pub cleanup_blocked: u64,
    /// Domains that were left on hosts in the end.
    pub domains_left: u64,
    /// Partitions of NVSwitches that were left active in the end.
    pub partitions_left: u64,
    /// Slots that are not free in the end, and devices of claims that ended.
    pub leaked: u64,
    /// Seconds of the wall clock.
    pub wall_seconds: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// `slices_not_clean` when something of a tenant was left; what keeps a host from being written.
pub async fn run(args: BenchSlicesArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let json = args.json;
    let report = measure(args).await?;
    slice_fleet::print_report(terminal, &report, || report.table(), json)?;
    report.verdict()
}

/// Makes hosts, launches slices there, takes them back, and counts.
///
/// # Errors
/// What keeps a host or a database from being made; `slices_not_clean` where one does not come to rest.
pub async fn measure(args: BenchSlicesArgs) -> Result<SlicesReport, Failure> {
    let began = RealClock.now();
    // libvirt's QEMU is another user.
    let mode = std::fs::Permissions::from_mode(0o711);
    let folder = tempfile::Builder::new().permissions(mode).tempdir();
    let folder = folder.map_err(|error| unwritten(&error))?;
    let store = Store::in_memory(MasterKey::from_bytes([7; 32])).await.map_err(store_failure)?;
    let mut policy = SlotPolicy::default();
    if args.guest.is_some() {
        (policy.vcpus_per_gpu, policy.memory_gib_per_gpu) = REAL_GUEST_SHAPE;
    }
    let fleet = slice_fleet::make(&store, began, args.hosts, Some(&policy)).await?;
    let mut hosts = BTreeMap::new();
    for node_id in fleet.nodes.keys() {
        let folder = folder.path().join(node_id.to_string());
        hosts.insert(*node_id, SliceHostUnderTest::write(&folder, &args)?);
    }
    let is_real = |what: &str| match what {
        "libvirt" => args.libvirt,
        "guests" => args.guest.is_some(),
        _ => false,
    };
    let launches = if args.guest.is_some() { 1 } else { args.launches };
    let report = SlicesReport {
        simulated: SIMULATED.into_iter().filter(|what| !is_real(what)).collect(),
        hosts: args.hosts,
        ..SlicesReport::default()
    };
    let mut bench =
        Bench { store, hosts, report, sums: [PartSums::default(), PartSums::default()] };
    for number in 0..launches {
        let fault = (number % 2 == 1).then(|| FAULTS[number / 2 % FAULTS.len()]);
        bench.launch_and_release(GPUS[number / 2 % GPUS.len()], fault).await?;
    }
    bench.finish(fleet.slots).await?;
    let mut report = bench.report;
    let [launch, release] = bench.sums;
    (report.launch_parts_seconds, report.release_parts_seconds) = (launch.means(), release.means());
    report.wall_seconds = RealClock.now().seconds_since(began);
    Ok(report)
}

fn unwritten(error: &std::io::Error) -> Failure {
    Failure::local(CommandCode::TestHostUnavailable, error.to_string())
}

/// A host, as its files and as its agent sees it.
struct SliceHostUnderTest {
    files: EmulatedSliceHost,
    agent: Host,
    env: AgentEnv,
    /// User-data of real guests; none: they are played.
    user_data: Option<String>,
}

impl SliceHostUnderTest {
    fn write(folder: &Path, args: &BenchSlicesArgs) -> Result<Self, Failure> {
        let files =
            EmulatedSliceHost::write(folder, &LAYOUTS[0]).map_err(|error| unwritten(&error))?;
        files.attach_drives().map_err(|error| unwritten(&error))?;
        let image = args.guest.as_deref();
        let user_data = image.map(|image| files.run_guests(image, args.libvirt)).transpose();
        let user_data = user_data.map_err(|error| unwritten(&error))?;
        let agent = Host::Emulated(HostRoot::new(folder), files.emulator());
        Ok(Self { files, agent, env: AgentEnv::default(), user_data })
    }
}

/// Seconds of parts.
#[derive(Debug, Default)]
struct PartSums(BTreeMap<String, (f64, u32)>);

impl PartSums {
    fn add(&mut self, spans: &[PartSpan], kind: SliceRunKind) {
        for span in spans.iter().filter(|span| span.kind == kind) {
            let Some(ended_at) = span.ended_at else { continue };
            let (seconds, count) = self.0.entry(span.part.to_string()).or_default();
            *seconds += ended_at.seconds_since(span.began_at);
            *count += 1;
        }
    }

    fn means(self) -> BTreeMap<String, f64> {
        let mean = |(seconds, count): (f64, u32)| seconds / f64::from(count.max(1));
        self.0.into_iter().map(|(part, sum)| (part, mean(sum))).collect()
    }
}

struct Bench {
    store: Store,
    hosts: BTreeMap<NodeId, SliceHostUnderTest>,
    report: SlicesReport,
    /// Of launches and of releases.
    sums: [PartSums; 2],
}

impl Bench {
    fn host(&self, node_id: NodeId) -> Result<&SliceHostUnderTest, Failure> {
        self.hosts.get(&node_id).ok_or_else(|| stuck("a claim belongs to no known host"))
    }

    /// One slice from its claim to its free slots.
    async fn launch_and_release(
        &mut self,
        gpus: u32,
        fault: Option<SliceFault>,
    ) -> Result<(), Failure> {
        let claim = self.claim(gpus).await?;
        let node_id = claim.node_id;
        let drives = self.launch(&claim).await?;
        let at_launch = fault.is_some_and(|fault| AT_LAUNCH.contains(&fault));
        self.set_fault(node_id, fault.filter(|_| at_launch))?;
        self.report.launches += 1;
        let mut state = self.drive(&claim).await?;
        self.check_real_guest(&claim, &drives, state).await?;
        if state == ClaimState::InUse {
            self.report.ready += 1;
            self.note_parts(claim.id, SliceRunKind::Launch).await?;
            self.set_fault(node_id, fault)?;
            self.release(&claim).await?;
            state = self.drive(&claim).await?;
        } else {
            self.report.abandoned += 1;
        }
        let lies = matches!(fault, Some(SliceFault::EraseLies | SliceFault::EraseStopsShort))
            && !at_launch;
        self.report.lying_erases += u64::from(lies);
        if state == ClaimState::CleanupBlocked {
            self.report.cleanup_blocked += 1;
            self.report.lying_erases_caught += u64::from(lies);
            self.set_fault(node_id, None)?;
            self.release(&claim).await?;
            state = self.drive(&claim).await?;
        } else if !at_launch {
            self.note_parts(claim.id, SliceRunKind::Release).await?;
        }
        self.set_fault(node_id, None)?;
        if state != ClaimState::Released {
            return Err(stuck(&format!("a claim ended as {state}, expected released")));
        }
        for path in drives {
            let host = self.host(node_id)?;
            let (mut left, mut looked_at) =
                host.files.tenant_bytes(&path).map_err(|error| unwritten(&error))?;
            if host.user_data.is_some() {
                let lines = host.files.tenant_lines(&path).map_err(|error| unwritten(&error))?;
                (left, looked_at) = (left + lines.0, looked_at + lines.1);
            }
            self.report.bytes_checked += looked_at;
            self.report.residue_bytes += left;
        }
        Ok(())
    }

    /// A real guest has run its user-data, which left lines on the first drive.
    async fn check_real_guest(
        &self,
        claim: &SlotClaim,
        drives: &[String],
        state: ClaimState,
    ) -> Result<(), Failure> {
        let host = self.host(claim.node_id)?;
        let (Some(_), Some(drive)) = (&host.user_data, drives.first()) else { return Ok(()) };
        let (left, _) = host.files.tenant_lines(drive).map_err(|error| unwritten(&error))?;
        if state == ClaimState::InUse && left > 0 {
            return Ok(());
        }
        let console = host.files.console();
        let lines: Vec<&str> = console.lines().collect();
        let last = lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n");
        let run = self.store.slice_run(claim.id).await.map_err(store_failure)?;
        let why = run.map(|stored| stored.run.reason).unwrap_or_default();
        let what = format!("the claim is {state} ({why}), but its guest wrote {left} bytes");
        Err(stuck(&format!("{what}; last console lines: {last}")))
    }

    fn set_fault(&self, node_id: NodeId, fault: Option<SliceFault>) -> Result<(), Failure> {
        let faults: Vec<SliceFault> = fault.into_iter().collect();
        self.host(node_id)?.files.set_faults(&faults).map_err(|error| unwritten(&error))
    }

    async fn claim(&self, gpus: u32) -> Result<SlotClaim, Failure> {
        let now = RealClock.now();
        let new = slice_fleet::new_claim(now, gpus, RESERVED_SECONDS);
        match self.store.claim_slots(now, new).await.map_err(store_failure)? {
            ClaimOutcome::Claimed { claim, .. } => Ok(*claim),
            ClaimOutcome::Refused(refusal) => Err(stuck(refusal.reason.as_str())),
        }
    }

    /// Begins the launch; answers the paths of the claim's drives.
    async fn launch(&self, claim: &SlotClaim) -> Result<Vec<String>, Failure> {
        let topology = self.store.slice_topology(claim.node_id).await.map_err(store_failure)?;
        let topology =
            topology.ok_or_else(|| stuck("a host's slots were not discovered"))?.report.topology;
        let user_data = self.host(claim.node_id)?.user_data.as_deref();
        let texts = (GUEST_IMAGE, user_data.unwrap_or_default());
        let mut policy = DomainPolicy::default();
        if user_data.is_some() {
            policy.virt_type = VirtType::Qemu;
        }
        let mut spec = launch_spec(claim.id, &claim.slots, &topology, &policy, texts)
            .map_err(|fault| stuck(&fault.to_string()))?;
        spec.guest_timeout_seconds = user_data.map(|_| REAL_GUEST_SECONDS);
        let drives = spec.devices.iter().filter_map(|one| Some(one.drive.as_ref()?.path.clone()));
        let drives = drives.collect();
        let new = NewSliceLaunch {
            id: claim.id,
            fence: Some(claim.fence),
            spec,
            actor: slice_fleet::ACTOR.to_owned(),
            reason: slice_fleet::REASON.to_owned(),
        };
        self.store.launch_slot_claim(RealClock.now(), new).await.map_err(store_failure)?;
        Ok(drives)
    }

    async fn release(&self, claim: &SlotClaim) -> Result<(), Failure> {
        let release = slice_fleet::release(claim.id, None);
        let begun = self.store.begin_slice_release(RealClock.now(), release).await;
        begun.map(drop).map_err(store_failure)
    }

    /// Control plane and agent by turns, until the claim comes to rest; answers how it stands.
    async fn drive(&self, claim: &SlotClaim) -> Result<ClaimState, Failure> {
        let SliceHostUnderTest { agent, env, .. } = self.host(claim.node_id)?;
        for _ in 0..TURNS {
            let now = RealClock.now();
            step_slice_runs(&self.store, &RandomIds, now, 1.0).await.map_err(store_failure)?;
            let pending = self.store.pending_tasks(now, claim.node_id).await;
            let pending = pending.map_err(store_failure)?;
            for task in &pending {
                let result = tasks::execute(agent, env, &task.spec).await;
                let (now, node_id) = (RealClock.now(), claim.node_id);
                let finished =
                    self.store.finish_task(now, node_id, task.id, result, Vec::new()).await;
                finished.map_err(store_failure)?;
            }
            let run = self.store.slice_run(claim.id).await.map_err(store_failure)?;
            if pending.is_empty()
                && run.is_none_or(|stored| stored.run.status != SliceRunStatus::Running)
            {
                let claim = self.store.slot_claim(claim.id).await.map_err(store_failure)?;
                return Ok(claim.state);
            }
        }
        Err(stuck("a launch or a release did not finish in time"))
    }

    async fn note_parts(&mut self, id: ClaimId, kind: SliceRunKind) -> Result<(), Failure> {
        let stored = self.store.slice_run(id).await.map_err(store_failure)?;
        if let Some(stored) = stored {
            self.sums[usize::from(kind == SliceRunKind::Release)].add(&stored.run.parts, kind);
        }
        Ok(())
    }

    /// What is left of everything.
    async fn finish(&mut self, slots: usize) -> Result<(), Failure> {
        let domains = self.hosts.values().map(|host| host.files.domains() as u64);
        self.report.domains_left = domains.sum();
        let partitions = self.hosts.values().map(|host| host.files.active_partitions() as u64);
        self.report.partitions_left = partitions.sum();
        let free = self.store.slots(None, None).await.map_err(store_failure)?;
        let free = free.iter().filter(|slot| slot.state == gpuaas_types::slot::SlotState::Free);
        let accounts = self.store.slot_accounts().await.map_err(store_failure)?;
        let missing = slots.saturating_sub(free.count()) as u64;
        self.report.leaked = missing
            + accounts.live_claims
            + accounts.leaked_slots
            + accounts.leaked_devices
            + accounts.broken_claims;
        self.store.close().await;
        Ok(())
    }
}

fn stuck(what: &str) -> Failure {
    Failure::new(Exit::Parked, CommandCode::SlicesNotClean, what.to_owned())
}

impl SlicesReport {
    fn verdict(&self) -> Result<(), Failure> {
        let believed = self.lying_erases.saturating_sub(self.lying_erases_caught);
        let wrong = [
            (self.residue_bytes, "bytes of tenant data on drives with free slots"),
            (believed, "failed erases reported as successful were accepted"),
            (self.domains_left, "domains left over"),
            (self.partitions_left, "partitions left active"),
            (self.leaked, "leaked slots and devices"),
        ];
        let wrong: Vec<String> = wrong
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(stuck(&wrong.join(", "))) }
    }

    fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<22}{value}").ok();
        };
        let parts = |parts: &BTreeMap<String, f64>| {
            let parts: Vec<String> =
                parts.iter().map(|(part, seconds)| format!("{part} {seconds:.2} s")).collect();
            parts.join(", ")
        };
        row("simulated", self.simulated.join(", "));
        row("hosts", self.hosts.to_string());
        let Self { launches, ready, abandoned, .. } = self;
        row("launches", format!("{launches}: {ready} ready, {abandoned} abandoned"));
        row("launch phases", parts(&self.launch_parts_seconds));
        row("release phases", parts(&self.release_parts_seconds));
        row("bytes checked", self.bytes_checked.to_string());
        row("residue", format!("{} bytes", self.residue_bytes));
        let Self { lying_erases, lying_erases_caught, .. } = self;
        row("false erase reports", format!("{lying_erases}, {lying_erases_caught} of them caught"));
        row("cleanup blocked", self.cleanup_blocked.to_string());
        row("domains left", self.domains_left.to_string());
        row("partitions left", self.partitions_left.to_string());
        row("leaked", self.leaked.to_string());
        row("duration", format!("{:.1} s of real time", self.wall_seconds));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn no_tenant_finds_anothers_data_and_each_lie_is_caught() {
        let args =
            BenchSlicesArgs { hosts: 1, launches: 4, guest: None, libvirt: false, json: true };
        let report = measure(args).await.unwrap();
        report.verdict().unwrap();
        assert_eq!((report.launches, report.ready, report.cleanup_blocked), (4, 4, 2));
        assert_eq!((report.lying_erases, report.lying_erases_caught), (2, 2), "{report:#?}");
        assert!(report.bytes_checked > 0 && report.residue_bytes == 0, "{report:#?}");
        let parts: Vec<&str> = report.launch_parts_seconds.keys().map(String::as_str).collect();
        assert_eq!(parts, ["claim", "define", "guest_ready", "prepare", "start", "verify"]);
        assert_eq!(report.release_parts_seconds.len(), 5, "{report:#?}");
    }
}
