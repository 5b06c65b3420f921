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
WatcherStarting "watcher_starting" "The control plane to follow the site's events" {
    owner: Owner::PlatformOperator,
    next_action: "read the control plane's log: no process follows the site's events",
    doc: "A run starts only while a process follows the site's events, so that it misses no change",
}
MaasCommissioning "maas_commissioning" "MAAS to commission the machine" {
    owner: Owner::InfraOperator,
    next_action: "check the machine in MAAS and on its console; the run continues automatically when the machine does",
    doc: "MAAS boots the machine and runs its scripts; the wait ends when an event or a read shows Ready",
}
MaasOverriding "maas_overriding" "MAAS to mark the machine Ready" {
    owner: Owner::InfraOperator,
    next_action: "check the machine in MAAS and on its console; the run continues automatically when the machine does",
    doc: "An operator accepted the failed tests, and GPUaaS asked MAAS to override them",
}
MaasDeploying "maas_deploying" "MAAS to write the image" {
    owner: Owner::InfraOperator,
    next_action: "check the machine in MAAS and on its console; the run continues automatically when the machine does",
    doc: "From MAAS accepting the deployment to curtin rebooting into the image",
}
FirstBoot "first_boot" "The deployed system to fetch its user-data from MAAS" {
    owner: Owner::InfraOperator,
    next_action: "check the machine in MAAS and on its console; the run continues automatically when the machine does",
    doc: "From curtin's reboot to the status Deployed in MAAS",
}
MaasReleasing "maas_releasing" "MAAS to release the machine" {
    owner: Owner::InfraOperator,
    next_action: "check the machine in MAAS and on its console; the run continues automatically when the machine does",
    doc: "MAAS powers the machine off and erases its disks if the profile requires it",
}
MaasUnavailable "maas_unavailable" "MAAS to answer" {
    owner: Owner::InfraOperator,
    next_action: "check the region: `gpuaas site show SITE` shows its last known state",
    doc: "A call failed or could not be sent; GPUaaS retries it with increasing delays",
}
UnknownOutcome "unknown_outcome" "MAAS to confirm an earlier request" {
    owner: Owner::InfraOperator,
    next_action: "check the MAAS log for the request; the run keeps checking the machine until the result is known",
    doc: "The answer to a call was lost, so GPUaaS reads what the call would have changed until the result is certain",
}
PredeployChecksFailing "predeploy_checks_failing" "The pre-deployment checks to pass" {
    owner: Owner::PlatformOperator,
    next_action: "fix what the checks report; GPUaaS repeats them automatically",
    doc: "GPUaaS repeats the checks for a while before the run parks",
}
BatchLimit "batch_limit" "A deploy slot" {
    owner: Owner::PlatformOperator,
    next_action: "no action needed; to deploy more nodes at once, raise `batch_max_parallel`",
    doc: "The limit of the site, the profile or the image bandwidth allows no more deployments at once; no deadline",
}
BootstrapFetch "bootstrap_fetch" "The node's bootstrap scripts to call back" {
    owner: Owner::InfraOperator,
    next_action: "read /var/log/cloud-init-output.log on the machine's console, and check that the node can reach the control plane",
    doc: "From Deployed to the first callback of the user-data scripts",
}
SiteBootstrap "site_bootstrap" "The site bootstrap to finish" {
    owner: Owner::BundleOwner,
    next_action: "read /var/log/cloud-init-output.log on the host; `gpuaas node show NODE` lists the finished phases",
    doc: "The site's bundle runs its phases on the host",
}
BootstrapRerun "bootstrap_rerun" "The bootstrap scripts to run again" {
    owner: Owner::BundleOwner,
    next_action: "run the scripts under /var/lib/cloud/instance/scripts on the host again, in order; if they succeed, the run continues",
    doc: "Their latest attempt failed and an operator resumed the run; someone on the host must run them again",
}
NodeBootstrap "node_bootstrap" "The node bootstrap to start the agent" {
    owner: Owner::PlatformOperator,
    next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "The bootstrap downloads and installs the agent, and the agent enrolls",
}
FirstHeartbeat "first_heartbeat" "The agent's first heartbeat" {
    owner: Owner::PlatformOperator,
    next_action: "read the log of gpuaas-node-agent.service on the host",
    doc: "The agent has enrolled but has not sent a heartbeat yet",
}
HostReboot "host_reboot" "The host to reboot" {
    owner: Owner::PlatformOperator,
    next_action: "check the host's console",
    doc: "The host requires a reboot; its agent checks the host after the boot",
}
Diagnostics "diagnostics" "The agent to report its diagnostics" {
    owner: Owner::PlatformOperator,
    next_action: "read the log of gpuaas-node-agent.service on the host",
    doc: "The agent checks its host: units, devices and what the bundles require",
}
NodeBootstrapCallback "node_bootstrap_callback" "The node bootstrap's final callback" {
    owner: Owner::PlatformOperator,
    next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "The agent is up, and only the script's final callback is missing; the gate fails after a short grace period",
}
PowerOff "power_off" "The machine to power off" {
    owner: Owner::InfraOperator,
    next_action: "check the machine's power state in MAAS and on its BMC",
    doc: "GPUaaS asked MAAS to power off the released machine",
}
AgentCleanup "agent_cleanup" "The agent to empty folders on its host" {
    owner: Owner::PlatformOperator,
    next_action: "read the log of gpuaas-node-agent.service on the host",
    doc: "The agent empties the tenant's folders or the scratch storage, and reports what it leaves",
}
SiteUnusable "site_unusable" "The site to become usable" {
    owner: Owner::PlatformOperator,
    next_action: "correct the site's address, key or CA: `gpuaas site show SITE` shows what is wrong",
    doc: "GPUaaS cannot create a client for the site: its address, key or CA is unusable",
}
SiteCircuitOpen "site_circuit_open" "The region to answer again" {
    owner: Owner::InfraOperator,
    next_action: "restore the region: `gpuaas site show SITE` shows its last known state; the run continues automatically once the region answers",
    doc: "Several calls in a row got no answer, so GPUaaS only probes the region every five seconds; the first answer ends the wait. No deadline; does not count as an attempt",
}
SiteKeyRefused "site_key_refused" "An API key that MAAS accepts" {
    owner: Owner::PlatformOperator,
    next_action: "replace the site's API key with a MAAS administrator's, `gpuaas site set SITE --api-key-file FILE`; the run continues automatically",
    doc: "MAAS answered 401, so nothing was done; the wait ends when MAAS accepts this key again, or a new one. No deadline; does not count as an attempt",
}
SiteKeyUnreadable "site_key_unreadable" "The site's API key to become readable" {
    owner: Owner::PlatformOperator,
    next_action: "restore the Vault, or allow the control plane's role to read the key: `gpuaas site show SITE` shows where the key is stored and its last known state; the run continues automatically",
    doc: "The key is stored in a Vault that does not return it, so nothing was sent; GPUaaS requests the key every few seconds. No deadline; does not count as an attempt",
}
SiteClockWrong "site_clock_wrong" "The clocks of this host and of MAAS to agree" {
    owner: Owner::PlatformOperator,
    next_action: "synchronise both clocks with NTP; the run continues automatically",
    doc: "MAAS answered 401 because the request seems older than five minutes, so nothing was done. No deadline; does not count as an attempt",
}
SiteControlledElsewhere "site_controlled_elsewhere" "Control of the region" {
    owner: Owner::PlatformOperator,
    next_action: "find out which control plane should manage this region; if it is this one, `gpuaas site take-control SITE --reason WHY`, and the run continues automatically",
    doc: "Another control plane renews the control mark in the region, so this one only reads there: its database was copied, or two control planes were given the same region. No deadline; does not count as an attempt",
}
SiteControlUnconfirmed "site_control_unconfirmed" "Confirmation that no other control plane manages this region" {
    owner: Owner::PlatformOperator,
    next_action: "no action needed; if the region does not answer, `gpuaas site show SITE` shows its last known state",
    doc: "The database was copied or moved here, so GPUaaS watches the control mark in the region for a little over a minute to see whether the original still runs. No deadline; does not count as an attempt",
}
}
