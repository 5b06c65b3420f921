//! Lines that hosts, checks of nodes and regions write.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_nodes {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
SiteBootstrapStarted "site_bootstrap_started" "The site bootstrap began" {
    owner: None, next_action: "",
    doc: "A callback of the scripts in the user-data",
}
SiteBootstrapFinished "site_bootstrap_finished" "The site bootstrap succeeded" {
    owner: None, next_action: "",
    doc: "A callback of the scripts in the user-data",
}
SiteBootstrapFailed "site_bootstrap_failed" "The site bootstrap failed" {
    owner: Some(Owner::BundleOwner), next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "A callback of the scripts in the user-data",
}
NodeBootstrapStarted "node_bootstrap_started" "The node bootstrap began" {
    owner: None, next_action: "",
    doc: "A callback of the scripts in the user-data",
}
NodeBootstrapFinished "node_bootstrap_finished" "The node bootstrap succeeded" {
    owner: None, next_action: "",
    doc: "A callback of the scripts in the user-data",
}
NodeBootstrapFailed "node_bootstrap_failed" "The node bootstrap failed" {
    owner: Some(Owner::PlatformOperator), next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "A callback of the scripts in the user-data",
}
BundlePhaseFinished "bundle_phase_finished" "A phase of a bundle ended" {
    owner: None, next_action: "",
    doc: "The text names the bundle, the phase and its seconds",
}
BundlePhaseSkipped "bundle_phase_skipped" "A phase of a bundle was not needed" {
    owner: None, next_action: "",
    doc: "The text says why",
}
BundlePhaseFailed "bundle_phase_failed" "A phase of a bundle failed" {
    owner: Some(Owner::BundleOwner), next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "The text has the phase's last words",
}
EnrollmentStarted "enrollment_started" "The agent asks to be enrolled" {
    owner: None, next_action: "",
    doc: "The text names its version and the host",
}
EnrollmentFinished "enrollment_finished" "The agent is enrolled" {
    owner: None, next_action: "",
    doc: "The text names the credential that was issued",
}
FirstHeartbeat "first_heartbeat" "The agent's first heartbeat came" {
    owner: None, next_action: "",
    doc: "The agent of this run lives",
}
CertificateRenewed "certificate_renewed" "The agent has another certificate" {
    owner: None, next_action: "",
    doc: "The agent asked for it before the old one ended",
}
AgentTroubled "agent_troubled" "Something keeps the agent from its work" {
    owner: Some(Owner::PlatformOperator), next_action: "look at the host: `gpuaas node task NODE diagnostics --reason WHY` collects what is needed",
    doc: "The text names what, such as a full disk",
}
AgentWell "agent_well" "Nothing keeps the agent from its work any more" {
    owner: None, next_action: "",
    doc: "What the agent named before is over",
}
AgentOffline "agent_offline" "The agent is silent" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` says what to do",
    doc: "No heartbeat came for longer than the profile allows (`offline_after_seconds`); an active node is offline from here on",
}
AgentOnline "agent_online" "The agent is heard again" {
    owner: None, next_action: "",
    doc: "A heartbeat came after a silence; the text says how long it lasted. A node that was offline is active again",
}
TaskFinished "task_finished" "The agent finished a task" {
    owner: None, next_action: "",
    doc: "The text says whether it could be done",
}
GateActiveOpen "gate_active_open" "The gate active is open" {
    owner: None, next_action: "",
    doc: "The agent's checks of the gate pass",
}
GateActiveShut "gate_active_shut" "The gate active is shut" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` says what to do",
    doc: "The text names the checks that do not pass",
}
GateSliceReadyOpen "gate_slice_ready_open" "The gate slice_ready is open" {
    owner: None, next_action: "",
    doc: "The agent's checks of the gate pass",
}
GateSliceReadyShut "gate_slice_ready_shut" "The gate slice_ready is shut" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` says what to do",
    doc: "The text names the checks that do not pass",
}
GateTelemetryOpen "gate_telemetry_open" "The gate telemetry is open" {
    owner: None, next_action: "",
    doc: "The agent's checks of the gate pass",
}
GateTelemetryShut "gate_telemetry_shut" "The gate telemetry is shut" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node telemetry NODE` says where the fault is",
    doc: "The text names the checks that do not pass",
}
EnrollmentContested "enrollment_contested" "Another key asked to enroll as this node" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` says what to do about the run",
    doc: "Somebody else has the token of the node's agent; the text says from where it asked",
}
CredentialRefused "credential_refused" "A credential of the node was refused" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node certificates NODE` says who enrolled",
    doc: "The text names the address and the code of the problem",
}
MaasEvent "maas_event" "An event of MAAS" {
    owner: None, next_action: "",
    doc: "A warning, an error or a change of power in the event feed",
}
DriftFound "drift_found" "The machine differs from what is remembered" {
    owner: Some(Owner::InfraOperator), next_action: "`gpuaas drift list` says what to do about it",
    doc: "The text names the difference",
}
DriftResolved "drift_resolved" "A difference is over" {
    owner: None, next_action: "",
    doc: "The machine is again as remembered",
}
DriftAdopted "drift_adopted" "A change in MAAS is taken over" {
    owner: None, next_action: "",
    doc: "The site's policy says so for this kind of difference",
}
DriftNotAdopted "drift_not_adopted" "A change in MAAS cannot be taken over" {
    owner: Some(Owner::InfraOperator), next_action: "give one of the two machines another name in MAAS",
    doc: "Another node has the name",
}
Quarantined "quarantined" "The node is held back" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas drift list` says what to do about it",
    doc: "The site's policy says so for this kind of difference",
}
RegionRewound "region_rewound" "The region has another past" {
    owner: Some(Owner::InfraOperator),
    next_action: "compare the machine in MAAS with what the node should be: what was done there since the backup is lost",
    doc: "The region's event ids went back while its machines stayed, or it lost the mark that is kept in it, so it was restored from a backup or rebuilt; the text has the ids. Every machine of a node was read again",
}
MissedObservation "missed_work" "A change was seen late" {
    owner: None, next_action: "",
    doc: "The event feed did not bring it; a sweep of the region found it",
}
SiteCircuitOpen "site_circuit_open" "The region does not answer" {
    owner: None, next_action: "",
    doc: "Several calls in a row were not answered; the run goes on once the region answers",
}
SiteKeyRefused "site_key_refused" "MAAS does not accept the site's API key" {
    owner: Some(Owner::PlatformOperator), next_action: "give the site a key of a MAAS administrator, `gpuaas site set SITE --api-key-file FILE`",
    doc: "Nothing was sent; the run goes on once MAAS accepts the key",
}
SiteKeyUnreadable "site_key_unreadable" "The site's API key cannot be read" {
    owner: Some(Owner::PlatformOperator), next_action: "bring the Vault back, or let the control plane's role read the key: `gpuaas site show SITE` says where it is kept",
    doc: "The Vault that has the key does not give it, so nothing was sent; the run goes on once it does",
}
SiteClockWrong "site_clock_wrong" "The clocks of MAAS and of this host differ" {
    owner: Some(Owner::PlatformOperator), next_action: "set both clocks by NTP",
    doc: "Nothing was sent; the run goes on once MAAS takes the time of our requests",
}
MaasLate "maas_answer_given_up" "An answer is not waited for any more" {
    owner: None, next_action: "",
    doc: "The region was away and answers again; what it had not answered by then is asked once more",
}
SiteUnusable "site_unusable" "The site cannot be used" {
    owner: Some(Owner::PlatformOperator), next_action: "`gpuaas site show SITE` says what is wrong",
    doc: "No client can be made for the site: its address, its key or its CA cannot be used",
}
MaasUnavailable "maas_unavailable" "MAAS does not answer" {
    owner: None, next_action: "",
    doc: "A read failed; it is made again with a growing pause",
}
MaasUnknownOutcome "maas_unknown_outcome" "The answer to a read was lost" {
    owner: None, next_action: "",
    doc: "The read is made again",
}
MaasServerError "maas_server_error" "MAAS failed to answer a read" {
    owner: None, next_action: "",
    doc: "MAAS answered 500; the read is made again",
}
MaasMalformedAnswer "maas_malformed_answer" "MAAS answered what cannot be understood" {
    owner: None, next_action: "",
    doc: "The read is made again",
}
MaasInvalidRequest "maas_invalid_request" "A read cannot be asked for" {
    owner: None, next_action: "",
    doc: "A value cannot be put into a request",
}
MaasValidation "maas_validation" "MAAS refused a field of a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasBadRequest "maas_bad_request" "MAAS refused a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthInvalidKey "maas_auth_invalid_key" "MAAS does not know the API key" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthInvalidToken "maas_auth_invalid_token" "MAAS does not know the API key's token" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthBadSignature "maas_auth_bad_signature" "MAAS does not accept the signature" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthClockSkew "maas_auth_clock_skew" "The clocks of MAAS and of this host differ" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthNonceReplay "maas_auth_nonce_replay" "MAAS has seen the request before" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthNotAuthenticated "maas_auth_not_authenticated" "MAAS saw no credential" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAuthRefused "maas_auth_refused" "MAAS refuses the API key" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasForbidden "maas_forbidden" "The API key may not read this" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasNotFound "maas_not_found" "MAAS does not know what was asked for" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasAddressInUse "maas_address_in_use" "An address is in use" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasUnknownEndpoint "maas_unknown_endpoint" "This MAAS has no such endpoint" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasMethodNotAllowed "maas_method_not_allowed" "This MAAS does not take the method" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasStateConflict "maas_state_conflict" "The machine's status forbids a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasDatabaseConflict "maas_database_conflict" "MAAS' database refuses a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
MaasRefused "maas_refused" "MAAS refused a read" {
    owner: None, next_action: "",
    doc: "A read was refused; the text has MAAS' words",
}
$($rows)* } };
}
