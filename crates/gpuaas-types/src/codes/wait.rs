//! What a run waits for.

use crate::api::Owner;

/// A row of [`WAITS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitRow {
    /// The code.
    pub code: WaitCode,
    /// What has to happen, in a few words.
    pub title: &'static str,
    /// Who can help when it takes longer than expected.
    pub owner: Owner,
    /// What to do when it takes longer than expected.
    pub next_action: &'static str,
    /// When a run waits so, and what ends the wait.
    pub doc: &'static str,
}

codes! {
/// What a run waits for, as `wait.code` names it.
WaitCode, WaitRow, WAITS;
WatcherStarting "watcher_starting" "The site's event feed to be followed" {
    owner: Owner::PlatformOperator,
    next_action: "read the log of the control plane: no process follows the events of the site",
    doc: "A run begins only while a process follows the site's events, so that no change is missed",
}
MaasCommissioning "maas_commissioning" "MAAS to commission the machine" {
    owner: Owner::InfraOperator,
    next_action: "look at the machine in MAAS and at its console; the run goes on by itself when the machine does",
    doc: "MAAS boots the machine and runs its scripts; an event or a read that says Ready ends the wait",
}
MaasOverriding "maas_overriding" "MAAS to take the machine as Ready" {
    owner: Owner::InfraOperator,
    next_action: "look at the machine in MAAS and at its console; the run goes on by itself when the machine does",
    doc: "An operator answered for the tests that failed, and MAAS was asked to override them",
}
MaasDeploying "maas_deploying" "MAAS to write the image" {
    owner: Owner::InfraOperator,
    next_action: "look at the machine in MAAS and at its console; the run goes on by itself when the machine does",
    doc: "From the deployment's acceptance to curtin's reboot into the image",
}
FirstBoot "first_boot" "The deployed system to ask MAAS for its user-data" {
    owner: Owner::InfraOperator,
    next_action: "look at the machine in MAAS and at its console; the run goes on by itself when the machine does",
    doc: "From curtin's reboot to MAAS' status Deployed",
}
MaasReleasing "maas_releasing" "MAAS to release the machine" {
    owner: Owner::InfraOperator,
    next_action: "look at the machine in MAAS and at its console; the run goes on by itself when the machine does",
    doc: "MAAS powers the machine off and, where the profile asks for it, erases its disks",
}
MaasUnavailable "maas_unavailable" "MAAS to answer" {
    owner: Owner::InfraOperator,
    next_action: "look at the region: `gpuaas site show SITE` says what was seen of it last",
    doc: "A call failed or could not be sent; it is made again with a growing pause",
}
UnknownOutcome "unknown_outcome" "Whether MAAS took a call" {
    owner: Owner::InfraOperator,
    next_action: "look at MAAS' log for the request; the run looks at the machine until it knows",
    doc: "The answer to a call was lost, so what it would have changed is read until that is certain",
}
PredeployChecksFailing "predeploy_checks_failing" "The checks before a deployment to pass" {
    owner: Owner::PlatformOperator,
    next_action: "correct what the checks name; they are made again by themselves",
    doc: "The checks are made again for a while before the run parks",
}
BatchLimit "batch_limit" "Its turn to deploy" {
    owner: Owner::PlatformOperator,
    next_action: "nothing to do; raise `batch_max_parallel` to deploy more nodes at once",
    doc: "As many nodes as a site, a profile or the image bandwidth allows deploy already; no deadline",
}
BootstrapFetch "bootstrap_fetch" "The node's bootstrap to call back" {
    owner: Owner::InfraOperator,
    next_action: "read /var/log/cloud-init-output.log at the machine's console, and check that the node reaches the control plane",
    doc: "From Deployed to the first callback of the scripts in the user-data",
}
SiteBootstrap "site_bootstrap" "The site bootstrap to end" {
    owner: Owner::BundleOwner,
    next_action: "read /var/log/cloud-init-output.log on the host; `gpuaas node show NODE` lists the phases that ended",
    doc: "The site's bundle runs its phases on the host",
}
BootstrapRerun "bootstrap_rerun" "The bootstrap scripts to run again" {
    owner: Owner::BundleOwner,
    next_action: "run the scripts under /var/lib/cloud/instance/scripts on the host again, in their order; if they succeed, the run continues",
    doc: "Their latest attempt failed and an operator resumed the run; only a person on the host runs them again",
}
NodeBootstrap "node_bootstrap" "The node bootstrap to start the agent" {
    owner: Owner::PlatformOperator,
    next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "The agent is fetched and installed, and enrolls",
}
FirstHeartbeat "first_heartbeat" "The agent's first heartbeat" {
    owner: Owner::PlatformOperator,
    next_action: "read the log of gpuaas-node-agent.service on the host",
    doc: "The agent has enrolled and is to prove that it lives",
}
HostReboot "host_reboot" "The host to start again" {
    owner: Owner::PlatformOperator,
    next_action: "look at the host's console",
    doc: "The host asked to be started again; its agent looks at it after the boot",
}
Diagnostics "diagnostics" "The agent to report its diagnostics" {
    owner: Owner::PlatformOperator,
    next_action: "read the log of gpuaas-node-agent.service on the host",
    doc: "The agent looks at its host: units, devices, and what the bundles require",
}
NodeBootstrapCallback "node_bootstrap_callback" "The node bootstrap's last callback" {
    owner: Owner::PlatformOperator,
    next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "The agent lives and all but the script's last word is there; a short grace before the gate fails",
}
PowerOff "power_off" "The machine to be off" {
    owner: Owner::InfraOperator,
    next_action: "look at the machine's power in MAAS and at its BMC",
    doc: "MAAS was asked to switch the released machine off",
}
AgentCleanup "agent_cleanup" "The agent to empty folders of its host" {
    owner: Owner::PlatformOperator,
    next_action: "read the log of gpuaas-node-agent.service on the host",
    doc: "The agent empties the tenant's folders, or the scratch storage, and names what it leaves",
}
SiteUnusable "site_unusable" "The site to be usable" {
    owner: Owner::PlatformOperator,
    next_action: "correct the address or the key of the site: `gpuaas site show SITE` says what is wrong",
    doc: "No client can be made for the site: its address, its key or its CA cannot be used",
}
SiteCircuitOpen "site_circuit_open" "The region to answer again" {
    owner: Owner::InfraOperator,
    next_action: "bring the region back: `gpuaas site show SITE` says what was seen of it last; the run goes on by itself once it answers",
    doc: "Several calls in a row were not answered, so nothing is sent but a question every five seconds; the first answer ends the wait. No deadline, and nothing of it counts as a try",
}
SiteKeyRefused "site_key_refused" "An API key that MAAS accepts" {
    owner: Owner::PlatformOperator,
    next_action: "give the site a key of a MAAS administrator, `gpuaas site set SITE --api-key-file FILE`; the run goes on by itself",
    doc: "MAAS answered 401, so nothing was done; another key, or one that MAAS accepts again, ends the wait. No deadline, and nothing of it counts as a try",
}
SiteKeyUnreadable "site_key_unreadable" "The site's API key to be read" {
    owner: Owner::PlatformOperator,
    next_action: "bring the Vault back, or let the control plane's role read the key: `gpuaas site show SITE` says where it is kept and what was seen of it last; the run goes on by itself",
    doc: "The key is kept in a Vault that does not give it, so nothing was sent; it is asked for every few seconds. No deadline, and nothing of it counts as a try",
}
SiteClockWrong "site_clock_wrong" "This host's clock to agree with that of MAAS" {
    owner: Owner::PlatformOperator,
    next_action: "set both clocks by NTP; the run goes on by itself",
    doc: "MAAS answered 401 because the request seems older than five minutes, so nothing was done. No deadline, and nothing of it counts as a try",
}
SiteControlledElsewhere "site_controlled_elsewhere" "Control of the region" {
    owner: Owner::PlatformOperator,
    next_action: "find out which control plane is to change the machines of this region; if it is this one, `gpuaas site take-control SITE --reason WHY`, and the run goes on by itself",
    doc: "Another control plane writes the mark that is kept in the region, so this one only reads there: its database was copied, or two were given one region. No deadline, and nothing of it counts as a try",
}
SiteControlUnconfirmed "site_control_unconfirmed" "That no other control plane answers" {
    owner: Owner::PlatformOperator,
    next_action: "nothing to do; if the region does not answer, `gpuaas site show SITE` says what was seen of it last",
    doc: "The database was copied or moved to where it is now, so for a little more than a minute the mark in the region shows whether its original is still at work. No deadline, and nothing of it counts as a try",
}
}
