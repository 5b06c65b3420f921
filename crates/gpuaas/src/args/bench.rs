//! Arguments of `gpuaas bench`.

use clap::Subcommand;
use gpuaas_lab::arguments::{
    BenchAgentArgs, BenchApiArgs, BenchAttackArgs, BenchClientsArgs, BenchFailoverArgs,
    BenchGateArgs, BenchHandoverArgs, BenchIdleArgs, BenchOnboardArgs, BenchRepairArgs,
    BenchTopologyArgs,
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
    /// Ask the admin API of a control plane with many nodes, and see how fast it answers.
    Api(BenchApiArgs),
    /// Leave a fleet whose agents send heartbeats over TLS alone, and see what it costs the control plane.
    Idle(BenchIdleArgs),
    /// Onboard machines through a MAAS that refuses calls and loses answers.
    Clients(BenchClientsArgs),
    /// Onboard a whole fleet on a virtual clock: what a region costs the control plane.
    Region(BenchRegionArgs),
    /// Let faults, crashes and people loose on fleets, and check that nothing is lost.
    Chaos(BenchChaosArgs),
    /// Take regions away in every way, and see when runs go on after that, on a virtual clock.
    Outage(BenchOutageArgs),
    /// Onboard and reimage machines through a region that answers late, and count calls made twice, on a
    /// virtual clock.
    Busy(BenchBusyArgs),
    /// Stop runs in every way there is, and follow the advice that they give.
    Mend(BenchMendArgs),
    /// Change the machines of active nodes in MAAS as people do, and see when that is noticed and
    /// whether the advice about it works, on a virtual clock.
    People(BenchPeopleArgs),
    /// Break a ready slice host in every way that its gates have to see.
    Gate(BenchGateArgs),
    /// Break ready hosts in the same ways, repair them, and follow the advice for what a repair leaves.
    Repair(BenchRepairArgs),
    /// Write hosts full of a tenant's data, have them cleaned and reimaged, and hold what is said of
    /// that against what is left.
    Handover(BenchHandoverArgs),
    /// Break slice hosts in every way that their slot maps have to see, and make maps of random ones.
    Topology(BenchTopologyArgs),
    /// Have slots of simulated nodes claimed by four policies, and see what each of them refuses.
    Placement(BenchPlacementArgs),
    /// Claim and release slots as fast as it goes, and see whether any was claimed twice.
    Claims(BenchClaimsArgs),
    /// Launch and release slices on emulated hosts, some of which lie, and look what is left of tenants.
    Slices(BenchSlicesArgs),
    /// Start the node agent, and measure what it costs a host that has nothing to do.
    Agent(BenchAgentArgs),
    /// Pack a tree as an image, and have GNU tar and pigz do the same.
    Pack(BenchPackArgs),
    /// Plant faults in good images, one at a time, and see whether each is told by its own code.
    Lint(BenchLintArgs),
    /// Upload an image over a link that breaks, and see what arrives, on a virtual clock.
    Upload(BenchUploadArgs),
    /// Judge experiments between two images with and without a difference, and see how often the verdict is
    /// wrong.
    Verdict(BenchVerdictArgs),
    /// Attack a control plane from one address of loopback, and see whether others are answered.
    Attack(BenchAttackArgs),
    /// Kill control planes and take their database and NATS away while machines are onboarded, and see
    /// whether anything is lost or done twice.
    Failover(BenchFailoverArgs),
    /// The attacker of `bench attack`, which says on standard input what to do.
    #[command(hide = true)]
    AttackLoad,
}
