//! Lines that hosts, checks of nodes and regions write.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_nodes {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
SiteBootstrapStarted "site_bootstrap_started" "The site bootstrap started" {
    owner: None, next_action: "",
    doc: "A callback from the user-data scripts",
}
SiteBootstrapFinished "site_bootstrap_finished" "The site bootstrap succeeded" {
    owner: None, next_action: "",
    doc: "A callback from the user-data scripts",
}
SiteBootstrapFailed "site_bootstrap_failed" "The site bootstrap failed" {
    owner: Some(Owner::BundleOwner), next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "A callback from the user-data scripts",
}
NodeBootstrapStarted "node_bootstrap_started" "The node bootstrap started" {
    owner: None, next_action: "",
    doc: "A callback from the user-data scripts",
}
NodeBootstrapFinished "node_bootstrap_finished" "The node bootstrap succeeded" {
    owner: None, next_action: "",
    doc: "A callback from the user-data scripts",
}
NodeBootstrapFailed "node_bootstrap_failed" "The node bootstrap failed" {
    owner: Some(Owner::PlatformOperator), next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "A callback from the user-data scripts",
}
BundlePhaseFinished "bundle_phase_finished" "A bundle phase finished" {
    owner: None, next_action: "",
    doc: "The text names the bundle, the phase and its duration",
}
BundlePhaseSkipped "bundle_phase_skipped" "A bundle phase was skipped" {
    owner: None, next_action: "",
    doc: "The text gives the reason",
}
BundlePhaseFailed "bundle_phase_failed" "A bundle phase failed" {
    owner: Some(Owner::BundleOwner), next_action: "read /var/log/cloud-init-output.log on the host",
    doc: "The text shows the end of the phase's output",
}
EnrollmentStarted "enrollment_started" "The agent requested enrollment" {
    owner: None, next_action: "",
    doc: "The text names its version and the host",
}
EnrollmentFinished "enrollment_finished" "The control plane enrolled the agent" {
    owner: None, next_action: "",
    doc: "The text names the issued credential",
}
FirstHeartbeat "first_heartbeat" "The agent sent its first heartbeat" {
    owner: None, next_action: "",
    doc: "The agent of this run is up",
}
CertificateRenewed "certificate_renewed" "The agent renewed its certificate" {
    owner: None, next_action: "",
    doc: "The agent requested the new certificate before the old one expired",
}
AgentTroubled "agent_troubled" "The agent reported a problem" {
    owner: Some(Owner::PlatformOperator), next_action: "check the host: `gpuaas node task NODE diagnostics --reason WHY` collects what you need",
    doc: "The text names the problem, such as a full disk",
}
AgentWell "agent_well" "The agent reported that its problem is over" {
    owner: None, next_action: "",
    doc: "The problem that the agent named before no longer exists",
}
AgentOffline "agent_offline" "The agent stopped sending heartbeats" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas explain NODE` to see what to do",
    doc: "No heartbeat arrived for longer than the profile allows (`offline_after_seconds`); an active node becomes offline",
}
AgentOnline "agent_online" "The agent resumed its heartbeats" {
    owner: None, next_action: "",
    doc: "A heartbeat arrived after a gap; the text says how long the gap lasted. An offline node becomes active again",
}
TaskFinished "task_finished" "The agent finished a task" {
    owner: None, next_action: "",
    doc: "The text says whether the task succeeded",
}
GateActiveOpen "gate_active_open" "Gate `active` opened" {
    owner: None, next_action: "",
    doc: "The agent's checks of the gate passed",
}
GateActiveShut "gate_active_shut" "Gate `active` closed" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas explain NODE` to see what to do",
    doc: "The text names the checks that did not pass",
}
GateSliceReadyOpen "gate_slice_ready_open" "Gate `slice_ready` opened" {
    owner: None, next_action: "",
    doc: "The agent's checks of the gate passed",
}
GateSliceReadyShut "gate_slice_ready_shut" "Gate `slice_ready` closed" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas explain NODE` to see what to do",
    doc: "The text names the checks that did not pass",
}
GateTelemetryOpen "gate_telemetry_open" "Gate `telemetry` opened" {
    owner: None, next_action: "",
    doc: "The agent's checks of the gate passed",
}
GateTelemetryShut "gate_telemetry_shut" "Gate `telemetry` closed" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node telemetry NODE` to find the fault",
    doc: "The text names the checks that did not pass",
}
EnrollmentContested "enrollment_contested" "Another key tried to enroll as this node" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas explain NODE` to see what to do about the run",
    doc: "Someone else has the token of the node's agent; the text names the address that the attempt came from",
}
CredentialRefused "credential_refused" "The control plane rejected the node's credentials" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node certificates NODE` to see who enrolled",
    doc: "The text names the address and the problem code",
}
MaasEvent "maas_event" "MAAS reported an event" {
    owner: None, next_action: "",
    doc: "A warning, an error or a power change in the MAAS event feed",
}
DriftFound "drift_found" "GPUaaS found drift on the machine" {
    owner: Some(Owner::InfraOperator), next_action: "run `gpuaas drift list` to see what to do about it",
    doc: "The text names the difference",
}
DriftResolved "drift_resolved" "The drift ended" {
    owner: None, next_action: "",
    doc: "The machine matches GPUaaS' record again",
}
DriftAdopted "drift_adopted" "GPUaaS adopted a change in MAAS" {
    owner: None, next_action: "",
    doc: "The site's policy adopts this kind of drift",
}
DriftNotAdopted "drift_not_adopted" "GPUaaS could not adopt a change in MAAS" {
    owner: Some(Owner::InfraOperator), next_action: "rename one of the two machines in MAAS",
    doc: "Another node already has the name",
}
Quarantined "quarantined" "GPUaaS quarantined the node" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas drift list` to see what to do about it",
    doc: "The site's policy quarantines nodes with this kind of drift",
}
RegionRewound "region_rewound" "The region was restored or rebuilt" {
    owner: Some(Owner::InfraOperator),
    next_action: "compare the machine in MAAS with the node's intended state: changes made in MAAS since the backup are lost",
    doc: "The region's event IDs went backwards while its machines stayed, or its control mark is missing, so it was restored from a backup or rebuilt; the text gives the IDs. GPUaaS read every machine of a node again",
}
MissedObservation "missed_work" "GPUaaS saw a change late" {
    owner: None, next_action: "",
    doc: "The event feed did not report it; a scan of the region found it",
}
SiteCircuitOpen "site_circuit_open" "The region did not answer" {
    owner: None, next_action: "",
    doc: "Several calls in a row got no answer; the run continues once the region answers",
}
SiteKeyRefused "site_key_refused" "MAAS rejected the site's API key" {
    owner: Some(Owner::PlatformOperator), next_action: "replace the site's API key with a MAAS administrator's, `gpuaas site set SITE --api-key-file FILE`",
    doc: "Nothing was sent; the run continues once MAAS accepts the key",
}
SiteKeyUnreadable "site_key_unreadable" "GPUaaS could not read the site's API key" {
    owner: Some(Owner::PlatformOperator), next_action: "restore the Vault, or allow the control plane's role to read the key: `gpuaas site show SITE` shows where it is stored",
    doc: "The Vault that stores the key does not return it, so nothing was sent; the run continues once it does",
}
SiteClockWrong "site_clock_wrong" "The clocks of MAAS and of this host differed" {
    owner: Some(Owner::PlatformOperator), next_action: "synchronise both clocks with NTP",
    doc: "Nothing was sent; the run continues once MAAS accepts the timestamps of the requests",
}
MaasLate "maas_answer_given_up" "GPUaaS stopped waiting for an answer" {
    owner: None, next_action: "",
    doc: "The region was unreachable and answers again; GPUaaS repeats the requests that got no answer",
}
SiteUnusable "site_unusable" "The site was unusable" {
    owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas site show SITE` to see what is wrong",
    doc: "GPUaaS could not create a client for the site: its address, key or CA is unusable",
}
MaasUnavailable "maas_unavailable" "MAAS did not answer" {
    owner: None, next_action: "",
    doc: "A read failed; GPUaaS retries it with increasing delays",
}
MaasUnknownOutcome "maas_unknown_outcome" "GPUaaS lost the answer to a read" {
    owner: None, next_action: "",
    doc: "GPUaaS retries the read",
}
MaasServerError "maas_server_error" "MAAS failed to answer a read" {
    owner: None, next_action: "",
    doc: "MAAS answered 500; GPUaaS retries the read",
}
MaasMalformedAnswer "maas_malformed_answer" "MAAS sent an invalid answer" {
    owner: None, next_action: "",
    doc: "GPUaaS retries the read",
}
MaasInvalidRequest "maas_invalid_request" "GPUaaS could not send a read" {
    owner: None, next_action: "",
    doc: "A value cannot be encoded in a request",
}
MaasValidation "maas_validation" "MAAS rejected a field of a read" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasBadRequest "maas_bad_request" "MAAS rejected a read" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasAuthInvalidKey "maas_auth_invalid_key" "MAAS did not know the API key" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasAuthInvalidToken "maas_auth_invalid_token" "MAAS did not know the API key's token" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasAuthBadSignature "maas_auth_bad_signature" "MAAS rejected the signature" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasAuthClockSkew "maas_auth_clock_skew" "The clocks of MAAS and of this host differed" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasAuthNonceReplay "maas_auth_nonce_replay" "MAAS had already seen the request" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasAuthNotAuthenticated "maas_auth_not_authenticated" "MAAS saw no credentials in the request" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasAuthRefused "maas_auth_refused" "MAAS rejected the API key" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasForbidden "maas_forbidden" "The API key lacked permission for a read" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasNotFound "maas_not_found" "MAAS did not know the requested object" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasAddressInUse "maas_address_in_use" "An address was already in use" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasUnknownEndpoint "maas_unknown_endpoint" "MAAS had no such endpoint" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasMethodNotAllowed "maas_method_not_allowed" "MAAS did not support the method" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasStateConflict "maas_state_conflict" "The machine's status did not allow a read" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasDatabaseConflict "maas_database_conflict" "The MAAS database rejected a read" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
MaasRefused "maas_refused" "MAAS rejected a read" {
    owner: None, next_action: "",
    doc: "MAAS rejected a read; the text quotes its answer",
}
$($rows)* } };
}
