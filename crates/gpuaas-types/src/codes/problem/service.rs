//! Problems of hosts, databases and the control plane itself.

/// Inserts the rows of this file into a table, before the rows that it is given.
macro_rules! rows_of_services {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
TelemetryPathRefused "telemetry_path_refused" "This path is not available through the control plane" {
    status: 403, owner: None, next_action: "read one of the allowed paths: gpuaas/telemetry/health, gpuaas/telemetry/netdata/, the dashboards under v1/ to v3/, and the read-only endpoints under api/v1/ to api/v3/",
    doc: "The path is not in the list of paths that operators can read from a host's edge",
}
TelemetryBusy "telemetry_busy" "Too many telemetry requests at once" {
    status: 503, owner: None, next_action: "try again in a few seconds",
    doc: "The control plane already holds as many host answers in memory as its limit allows",
}
TelemetryTooLarge "telemetry_too_large" "The host's answer is too large" {
    status: 502, owner: None, next_action: "ask for less: fewer points, or one chart",
    doc: "The host's answer exceeds the size limit of the control plane",
}
TelemetryRedirectRefused "telemetry_redirect_refused" "The host's answer redirects away from its edge" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "do not follow the redirect; `gpuaas node telemetry NODE` shows what the edge serves",
    doc: "The redirect points to an address other than the host's edge",
}
TelemetryAnswerRefused "telemetry_answer_refused" "The edge refused this request" {
    status: 502, owner: None, next_action: "send a different request, or try again",
    doc: "The edge and Netdata work, but this request was refused",
}
TelemetryNoAddress "telemetry_no_address" "The host's address is unknown" {
    status: 409, owner: Some(Owner::InfraOperator), next_action: "assign an address in MAAS to the interface that the machine boots from",
    doc: "Neither MAAS nor the agent reports an address of the host",
}
TelemetrySimulated "telemetry_simulated" "The host is simulated" {
    status: 409, owner: None, next_action: "read the telemetry of a real host", doc: "A simulated host has no edge to reach",
}
TelemetryNotExpected "telemetry_not_expected" "No telemetry is configured for the node" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "set `site_bootstrap_bundle_ref` of the profile to a site bundle with telemetry",
    doc: "No bundle of the node's profile sets up telemetry",
}
NodeUnreachable "node_unreachable" "The host is unreachable" {
    status: 504, owner: Some(Owner::InfraOperator), next_action: "check the route and the firewall between the control plane and the host",
    doc: "The control plane cannot connect to the host",
}
TelemetryEdgeDown "telemetry_edge_down" "The host's telemetry edge is not listening" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "The host refuses connections to the edge's port",
}
TelemetryEdgeSilent "telemetry_edge_silent" "The host's telemetry edge does not answer" {
    status: 504, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "The edge accepts the connection but does not answer in time",
}
TelemetryEdgeRefuses "telemetry_edge_refuses" "The host's telemetry edge refuses the control plane" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "add the control plane's address to the input `telemetry_allow`; for this host, run `gpuaas node converge-telemetry --host HOST --user USER --allow NETWORK`",
    doc: "The edge answers 403: it does not allow the control plane to read",
}
TelemetryBackendDown "telemetry_backend_down" "Netdata behind the host's edge does not answer" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "The edge works, but Netdata behind it does not",
}
WrongListener "wrong_listener" "Another service listens on the edge's port" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "A program other than the telemetry edge answers on the edge's port",
}
TelemetryEdgeIncomplete "telemetry_edge_incomplete" "The host's telemetry edge is incomplete" {
    status: 502, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node converge-telemetry --host HOST --user USER`",
    doc: "The edge answers, but does not serve everything that it must serve",
}
ClockSkew "clock_skew" "The clocks of MAAS and of this host differ" {
    status: 422, owner: Some(Owner::InfraOperator), next_action: "synchronize both clocks with NTP",
    doc: "MAAS refuses a request whose timestamp is more than 5 minutes old",
}
DatabaseUnavailable "database_unavailable" "The database does not answer" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "check that the database is running and reachable from the control plane, whose log has the error, then try again; runs continue automatically",
    doc: "The database did not answer, so it is unknown whether a change took effect",
}
DiskFull "disk_full" "The database disk is full" {
    status: 507, owner: Some(Owner::PlatformOperator), next_action: "free space on the disk of the database (the data folder of `gpuaas serve`, or that of PostgreSQL), then try again; runs continue automatically",
    doc: "The database cannot write more data; nothing of the change was saved",
}
MasterKeyChanged "master_key_changed" "The master key was changed, and this control plane does not have the new one" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "restart this control plane with the keys that the database needs, `gpuaas serve --master-key FORMER --master-key NEXT`; `gpuaas key show` shows which key is in use, and whether secrets still have to be moved to it",
    doc: "The secrets in the database are sealed with another key, or are being moved to one. This process was started without that key and cannot open those secrets",
}
LoopEnded "loop_ended" "A background loop of the control plane ended" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "restart the control plane, whose process exits automatically; its log names the loop",
    doc: "A part of the control plane that must always run panicked or returned",
}
Internal "internal" "Internal error in the control plane" {
    status: 500, owner: Some(Owner::PlatformOperator), next_action: "report this bug with the control plane's log, which contains the cause",
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
    status: 409, owner: None, next_action: "correct the MAC address; `gpuaas node show NODE` shows the node that has it, and `gpuaas node set NODE --mac MAC --reason WHY` corrects that node",
    doc: "MAC addresses of live nodes are unique within a site",
}
SiteInUse "site_in_use" "The site is in use" {
    status: 409, owner: None, next_action: "run `gpuaas node list --site SITE` to see its nodes; remove each with `gpuaas node decommission NODE` or `gpuaas node detach NODE`",
    doc: "A site with nodes in service, open runs or an unfinished batch cannot be removed",
}
ProfileInUse "profile_in_use" "The profile is in use" {
    status: 409, owner: None, next_action: "run `gpuaas node list` to see its nodes; remove each with `gpuaas node decommission NODE` or `gpuaas node detach NODE`",
    doc: "A profile with nodes in service, open runs or an unfinished batch cannot be removed",
}
RoceNotFound "roce_not_found" "Fabric address not found" {
    status: 404, owner: None, next_action: "run `gpuaas roce list` to see the fabric addresses",
    doc: "This interface of the host has no fabric address",
}
AlreadyExists "already_exists" "The resource already exists" {
    status: 409, owner: None, next_action: "check what exists before you send the request again",
    doc: "The database already contains this identifier or name",
}
RefersToNothing "refers_to_nothing" "The request refers to something that does not exist" {
    status: 409, owner: None, next_action: "check what exists before you send the request again",
    doc: "A resource that the request refers to was removed in the meantime",
}
BatchMoved "batch_moved" "The batch has changed in the meantime" {
    status: 409, owner: None, next_action: "check the batch with `gpuaas batch show BATCH`, then try again",
    doc: "Another process changed the batch at the same time",
}
MachineHeld "machine_held" "The machine belongs to another node" {
    status: 409, owner: None, next_action: "run `gpuaas node detach NODE` to free the machine of that node",
    doc: "A machine can be bound to only one node at a time",
}
$($rows)* } };
}
