//! Refusals that come from hosts, databases and the control plane itself.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_services {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
TelemetryPathRefused "telemetry_path_refused" "This is not read through the control plane" {
    status: 403, owner: None, next_action: "what may be read: gpuaas/telemetry/health, gpuaas/telemetry/netdata/, the dashboards below v1/ to v3/, and what only reads below api/v1/ to api/v3/",
    doc: "The path is not in the list of what a host's edge shows to operators",
}
TelemetryBusy "telemetry_busy" "Too much telemetry is read at once" {
    status: 503, owner: None, next_action: "try again in a moment",
    doc: "As many answers of hosts are carried as the control plane holds in memory",
}
TelemetryTooLarge "telemetry_too_large" "The host's answer is too large" {
    status: 502, owner: None, next_action: "ask for less: fewer points, or one chart",
    doc: "The host's answer is larger than what is carried",
}
TelemetryRedirectRefused "telemetry_redirect_refused" "The host's answer leads away from its edge" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "do not follow it; `gpuaas node telemetry NODE` says what is there",
    doc: "A redirect leads to another address than the host's edge",
}
TelemetryAnswerRefused "telemetry_answer_refused" "The edge works, and does not answer this" {
    status: 502, owner: None, next_action: "ask it for something else, or try again",
    doc: "The edge and Netdata work, and this request was refused",
}
TelemetryNoAddress "telemetry_no_address" "No address of the host is known" {
    status: 409, owner: Some(Owner::InfraOperator), next_action: "give the interface that the machine boots from an address in MAAS",
    doc: "Neither MAAS nor the agent names an address of the host",
}
TelemetrySimulated "telemetry_simulated" "The host is simulated" {
    status: 409, owner: None, next_action: "read the telemetry of a real host", doc: "A simulated host has no edge to reach",
}
TelemetryNotExpected "telemetry_not_expected" "The node is to have no telemetry" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "name a site bundle with telemetry in `site_bootstrap_bundle_ref` of the profile",
    doc: "No bundle of the node's profile sets up telemetry",
}
NodeUnreachable "node_unreachable" "The host cannot be reached" {
    status: 504, owner: Some(Owner::InfraOperator), next_action: "look for the route or the firewall between the control plane and the host",
    doc: "No connection to the host comes about",
}
TelemetryEdgeDown "telemetry_edge_down" "The host has no telemetry edge that listens" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "The host refuses connections to the edge's port",
}
TelemetryEdgeSilent "telemetry_edge_silent" "The host's telemetry edge does not answer" {
    status: 504, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "The edge takes a connection and does not answer in time",
}
TelemetryEdgeRefuses "telemetry_edge_refuses" "The host's telemetry edge refuses the control plane" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "add the control plane's address to the input `telemetry_allow`; for this host `gpuaas node converge-telemetry --host HOST --user USER --allow NETWORK`",
    doc: "The edge answers 403: it does not let the control plane read",
}
TelemetryBackendDown "telemetry_backend_down" "Netdata does not answer behind the host's edge" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "The edge works, and Netdata behind it does not",
}
WrongListener "wrong_listener" "Something else listens where the host's edge belongs" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "What listens on the edge's port is not the edge",
}
TelemetryEdgeIncomplete "telemetry_edge_incomplete" "The host's telemetry edge lacks a part" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "The edge answers, and does not show what it has to show",
}
ClockSkew "clock_skew" "The clocks of MAAS and of this host differ" {
    status: 422, owner: Some(Owner::InfraOperator), next_action: "set both clocks by NTP",
    doc: "MAAS refuses a request whose timestamp is more than 5 minutes old",
}
DatabaseUnavailable "database_unavailable" "The database does not answer" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "look whether the database runs and is reached from the control plane, whose log has its words, and ask again; runs go on by themselves",
    doc: "The database did not answer; whether a change took effect is not known",
}
DiskFull "disk_full" "The disk of the database is full" {
    status: 507, owner: Some(Owner::PlatformOperator), next_action: "make room on the disk of the database (the data folder of `gpuaas serve`, or that of PostgreSQL), then ask again; runs go on by themselves",
    doc: "The database takes no more bytes; nothing of the change was kept",
}
MasterKeyChanged "master_key_changed" "The master key was changed, and this control plane has not the new one" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "start this control plane again with the keys that the database needs, `gpuaas serve --master-key FORMER --master-key NEXT`; `gpuaas key show` says which one seals, and whether values are still to be moved",
    doc: "Another key seals the secrets of the database by now, or values are being moved to one; this process was started without it, and can open no secret that is sealed with it",
}
LoopEnded "loop_ended" "A loop of the control plane ended" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "the process ends by itself and has to be started again; its log names the loop",
    doc: "A part of the control plane that has to run all the time panicked or returned",
}
Internal "internal" "The control plane failed" {
    status: 500, owner: Some(Owner::PlatformOperator), next_action: "this is a bug: report the log of the control plane, which has the cause",
    doc: "Something happened that the control plane does not expect",
}
HostnameTaken "hostname_taken" "The hostname belongs to another node" {
    status: 409, owner: None, next_action: "choose another hostname; `gpuaas node show NODE` shows the node that has it",
    doc: "Hostnames of live nodes are unique within a site",
}
BmcAddressTaken "bmc_address_taken" "The BMC address belongs to another node" {
    status: 409, owner: None, next_action: "correct the BMC address; `gpuaas node show NODE` shows the node that has it",
    doc: "BMC addresses of live nodes are unique within a site",
}
MacAddressTaken "mac_address_taken" "A MAC address belongs to another node" {
    status: 409, owner: None, next_action: "correct the MAC address; `gpuaas node show NODE` shows the node that has it, and `gpuaas node set NODE --mac MAC --reason WHY` corrects that one",
    doc: "MAC addresses of live nodes are unique within a site",
}
SiteInUse "site_in_use" "The site has nodes in service" {
    status: 409, owner: None, next_action: "`gpuaas node list --site SITE` names them; each leaves by `gpuaas node decommission NODE` or `gpuaas node detach NODE`",
    doc: "A site with nodes in service, open runs or a batch that is not over is not removed",
}
ProfileInUse "profile_in_use" "The profile has nodes in service" {
    status: 409, owner: None, next_action: "`gpuaas node list` names them; each leaves by `gpuaas node decommission NODE` or `gpuaas node detach NODE`",
    doc: "A profile with nodes in service, open runs or a batch that is not over is not removed",
}
RoceNotFound "roce_not_found" "There is no such fabric address" {
    status: 404, owner: None, next_action: "`gpuaas roce list` shows the fabric addresses",
    doc: "No fabric address is assigned to this interface of this host",
}
AlreadyExists "already_exists" "There is such a thing already" {
    status: 409, owner: None, next_action: "look at what is there before asking again",
    doc: "The same identifier or name was stored before",
}
RefersToNothing "refers_to_nothing" "The request refers to what is not there" {
    status: 409, owner: None, next_action: "look at what is there before asking again",
    doc: "Something that the request names went away meanwhile",
}
BatchMoved "batch_moved" "The batch has moved on" {
    status: 409, owner: None, next_action: "look at the batch, `gpuaas batch show BATCH`, and ask again",
    doc: "Another process changed the batch at the same moment",
}
MachineHeld "machine_held" "The machine belongs to another node" {
    status: 409, owner: None, next_action: "`gpuaas node detach NODE` gives the machine of that node up",
    doc: "A machine is bound to one node at a time",
}
$($rows)* } };
}
