//! Arguments of `gpuaas bench`.

use clap::Subcommand;
use gpuaas_lab::arguments::{
    BenchAgentArgs, BenchApiArgs, BenchAttackArgs, BenchClientsArgs, BenchConsoleArgs,
    BenchFailoverArgs, BenchGateArgs, BenchHandoverArgs, BenchIdleArgs, BenchOnboardArgs,
    BenchRepairArgs, BenchTopologyArgs,
};
use gpuaas_simulation::arguments::{
    BenchBusyArgs, BenchChaosArgs, BenchClaimsArgs, BenchMendArgs, BenchOutageArgs,
    BenchPeopleArgs, BenchPlacementArgs, BenchRegionArgs, BenchSlicesArgs, BenchUploadArgs,
    BenchVerdictArgs,
};

use super::image::{BenchLintArgs, BenchPackArgs};

/// `gpuaas bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Onboard machines and measure: throughput, MAAS calls, added time, memory.
    Onboard(BenchOnboardArgs),
    /// Measure admin API latency of a control plane with many nodes.
    Api(BenchApiArgs),
    /// Measure the console: page latency, bytes, elements, statements, and lag of live pages.
    Console(BenchConsoleArgs),
    /// Measure the control plane's load from an idle fleet that sends heartbeats over TLS.
    Idle(BenchIdleArgs),
    /// Onboard machines through a MAAS that refuses calls and loses responses.
    Clients(BenchClientsArgs),
    /// Onboard a whole fleet on a virtual clock, and measure what a region costs the control plane.
    Region(BenchRegionArgs),
    /// Inject faults, crashes and operator actions into fleets, and check that nothing is lost.
    Chaos(BenchChaosArgs),
    /// Make regions fail in every way, and measure when runs continue, on a virtual clock.
    Outage(BenchOutageArgs),
    /// Onboard and reimage machines through a slow region, and count duplicate calls, on a virtual
    /// clock.
    Busy(BenchBusyArgs),
    /// Stop runs in every possible way, and follow the advice they give.
    Mend(BenchMendArgs),
    /// Change machines of active nodes in MAAS as people do, and check detection time and advice,
    /// on a virtual clock.
    People(BenchPeopleArgs),
    /// Break a ready slice host in every way that its gates must detect.
    Gate(BenchGateArgs),
    /// Break ready hosts in the same ways, repair them, and follow the advice for remaining faults.
    Repair(BenchRepairArgs),
    /// Fill hosts with tenant data, clean and reimage them, and compare the reports with the data
    /// that remains.
    Handover(BenchHandoverArgs),
    /// Break slice hosts in every way that slot maps must detect, and map random hosts.
    Topology(BenchTopologyArgs),
    /// Claim slots of simulated nodes with four policies, and compare what each refuses.
    Placement(BenchPlacementArgs),
    /// Claim and release slots as fast as possible, and check that none is claimed twice.
    Claims(BenchClaimsArgs),
    /// Launch and release slices on emulated hosts, some with false reports, and check for tenant
    /// data left behind.
    Slices(BenchSlicesArgs),
    /// Measure the node agent's load on an idle host.
    Agent(BenchAgentArgs),
    /// Pack a tree as an image, and compare with GNU tar and pigz.
    Pack(BenchPackArgs),
    /// Plant faults in good images, one at a time, and check that each gets its own code.
    Lint(BenchLintArgs),
    /// Upload an image over a failing link, and check what arrives, on a virtual clock.
    Upload(BenchUploadArgs),
    /// Judge experiments between images with and without a difference, and count wrong verdicts.
    Verdict(BenchVerdictArgs),
    /// Attack a control plane from one loopback address, and check that other clients get
    /// responses.
    Attack(BenchAttackArgs),
    /// Kill control planes and cut off their database and NATS during onboarding, and check that
    /// nothing is lost or done twice.
    Failover(BenchFailoverArgs),
    /// Attacker process of `bench attack`, which controls it over standard input.
    #[command(hide = true)]
    AttackLoad,
}
