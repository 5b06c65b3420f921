//! Problems with resources: missing, taken, or in the wrong state.

/// Inserts the rows of this file into a table, before the rows that it is given.
macro_rules! rows_of_resources {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
NotFound "not_found" "No endpoint at this path" {
    status: 404, owner: None, next_action: "use a path under /api/v1, /bootstrap/v1 or /agent/v1",
    doc: "No endpoint has this path",
}
SiteNotFound "site_not_found" "Site not found" {
    status: 404, owner: None, next_action: "run `gpuaas site list` to see the sites; `gpuaas site add SITE --url URL --api-key-file FILE` adds one",
    doc: "No site has this name",
}
ProfileNotFound "profile_not_found" "Profile not found" {
    status: 404, owner: None, next_action: "run `gpuaas profile list` to see the profiles; `gpuaas profile add PROFILE` adds one",
    doc: "No profile has this name",
}
NodeNotFound "node_not_found" "Node not found" {
    status: 404, owner: None, next_action: "run `gpuaas node list` to see the nodes; a node is found by ID, hostname, MAAS system ID, MAC address or BMC address",
    doc: "No node matches the name",
}
RunNotFound "run_not_found" "Run not found" {
    status: 404, owner: None, next_action: "run `gpuaas node show NODE` to see its run", doc: "No run has this identifier",
}
SecretNotFound "secret_not_found" "Secret not found" {
    status: 404, owner: None, next_action: "run `gpuaas site secret list SITE` or `gpuaas profile secret list PROFILE` to see which secrets are set",
    doc: "No secret is set for this input",
}
BatchNotFound "batch_not_found" "Batch not found" {
    status: 404, owner: None, next_action: "run `gpuaas batch list` to see the batches", doc: "No batch has this name or identifier",
}
AccessTokenNotFound "access_token_not_found" "Token not found" {
    status: 404, owner: None, next_action: "run `gpuaas token list` to see the tokens; a revoked token cannot be restored",
    doc: "No active token has this name",
}
EventSinkNotFound "event_sink_not_found" "Event sink not found" {
    status: 404, owner: None, next_action: "run `gpuaas events sinks` to see the sinks",
    doc: "No sink has this name",
}
EventSinkNameTaken "event_sink_name_taken" "An event sink with this name already exists" {
    status: 409, owner: None, next_action: "choose another name; `gpuaas events sinks` shows the existing sinks",
    doc: "Names of event sinks are unique",
}
DeadLetterNotFound "dead_letter_not_found" "Dead letter not found" {
    status: 404, owner: None, next_action: "run `gpuaas events dead-letters` to see the dead letters; one that was delivered again is removed",
    doc: "The sink has no dead letter with this number",
}
EventUnknown "event_unknown" "The event is not in this database" {
    status: 409, owner: None, next_action: "run `gpuaas events` without --after to follow new events",
    doc: "The event to continue after is newer than the latest one: it is from another database, or this database was restored since",
}
TaskNotFound "task_not_found" "The node has no such task" {
    status: 404, owner: None, next_action: "run `gpuaas node tasks NODE` to see its tasks",
    doc: "No task has this identifier, or the task is for another node",
}
ArtifactNotFound "artifact_not_found" "No artifact with this digest" {
    status: 404, owner: Some(Owner::PlatformOperator), next_action: "deploy the node again; the new user-data names artifacts that this control plane has",
    doc: "This control plane stores no artifact with this digest",
}
MethodNotAllowed "method_not_allowed" "Method not allowed" {
    status: 405, owner: None, next_action: "use a method that the header Allow lists",
    doc: "The endpoint exists but accepts other methods",
}
RequestTimeout "request_timeout" "The request timed out" {
    status: 504, owner: Some(Owner::PlatformOperator), next_action: "check whether the request took effect before you send it again; repeat a POST with the same Idempotency-Key",
    doc: "The request took longer than its limit, so its effect is unknown",
}
RevisionChanged "revision_changed" "The resource has changed in the meantime" {
    status: 412, owner: None, next_action: "read it again, check what changed, and send your change with the new `ETag` as `If-Match`",
    doc: "The header `If-Match` does not name the latest revision, so someone changed the site or profile after it was read",
}
NodeExists "node_exists" "The node is already managed" {
    status: 409, owner: None, next_action: "run `gpuaas node show NODE` to see its state; `gpuaas node reimage NODE` redeploys a node in service, and `gpuaas node detach NODE` stops managing it",
    doc: "GPUaaS already manages a node with this hostname or BMC address",
}
NodeAmbiguous "node_ambiguous" "More than one node matches" {
    status: 409, owner: None, next_action: "use the node's ID instead", doc: "Several live nodes match this name",
}
IdAmbiguous "id_ambiguous" "More than one ID has this prefix" {
    status: 409, owner: None, next_action: "use a longer prefix that matches only one of the candidates in the answer; or name the node: `gpuaas run show HOST`",
    doc: "An ID prefix is accepted only if exactly one ID starts with it",
}
NodeHasOpenRun "node_has_open_run" "The node has an open run" {
    status: 409, owner: None, next_action: "run `gpuaas explain NODE` to see its progress; `gpuaas run cancel RUN --reason WHY` ends it",
    doc: "A node can have only one open run",
}
NodeStateForbids "node_state_forbids" "The node's state does not allow this" {
    status: 409, owner: None, next_action: "run `gpuaas node show NODE` to see its state; the detail lists the states that allow this",
    doc: "This kind of run cannot start in the node's current state",
}
NodeBound "node_bound" "The node is bound to a machine at its site" {
    status: 409, owner: None, next_action: "cancel its run with `gpuaas run cancel RUN --reason WHY`, detach the node with `gpuaas node detach NODE`, and onboard the host at the other site with `gpuaas node onboard NODE --site SITE --profile PROFILE`",
    doc: "A node can move to another site only if no machine of its site is bound to it and its run has created none",
}
MachineHandedOff "machine_handed_off" "The machine was handed over" {
    status: 409, owner: None, next_action: "run `gpuaas node detach NODE`; GPUaaS does not touch a machine whose profile hands it over",
    doc: "The profile has `release_mode=handoff`",
}
BetweenTenantsForbids "between_tenants_forbids" "The profile requires another cleanup between tenants" {
    status: 409, owner: None, next_action: "run `gpuaas node reimage NODE`, which erases the disks and deploys the host again; if the host's own report is enough, `gpuaas profile set PROFILE between_tenants=soft_reset`, or `=storage_cleanup`, allows it for all nodes of the profile",
    doc: "A soft reset or storage cleanup would return the host to service on its own report, and `between_tenants` of the profile requires something else",
}
ProfileNotForSite "profile_not_for_site" "The profile does not allow this site" {
    status: 409, owner: None, next_action: "run `gpuaas profile list` to see the profiles; `gpuaas profile set PROFILE sites=SITE` sets the sites of a profile, separated by commas",
    doc: "The profile's `sites` lists the sites that may use it, and this site is not among them",
}
NodeWithoutAgent "node_without_agent" "The node has no agent" {
    status: 409, owner: None, next_action: "onboard the node first with `gpuaas node onboard HOST --site SITE --profile PROFILE`; only an agent can run tasks",
    doc: "No agent of the node has ever contacted the control plane, or its credential was revoked",
}
RunMismatch "run_mismatch" "The agent belongs to another run" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "restart gpuaas-node-agent.service; if that does not help, run `gpuaas node reimage NODE`",
    doc: "An agent can act only for the run in which it enrolled, and this agent named another run",
}
IdempotencyKeyReused "idempotency_key_reused" "The idempotency key was used for another request" {
    status: 409, owner: None, next_action: "use a new key for a new request",
    doc: "The key belongs to an earlier request with different content",
}
IdempotencyKeyInUse "idempotency_key_in_use" "A request with this idempotency key is in progress" {
    status: 409, owner: None, next_action: "try again in a few seconds", doc: "The first request with this key has not been answered yet",
}
RoceInterfaceTaken "roce_interface_taken" "The interface already has a fabric address" {
    status: 409, owner: None, next_action: "run `gpuaas roce list` to see the fabric addresses; `gpuaas roce remove --site SITE --host HOST --interface NAME` removes the wrong one",
    doc: "This interface of the host has another fabric address",
}
RoceAddressTaken "roce_address_taken" "The fabric address belongs to another interface" {
    status: 409, owner: None, next_action: "run `gpuaas roce list` to see the fabric addresses; `gpuaas roce remove --site SITE --host HOST --interface NAME` removes the wrong one",
    doc: "Another interface has this fabric address",
}
SiteNameTaken "site_name_taken" "A site with this name already exists" {
    status: 409, owner: None, next_action: "choose another name, or change the existing site with `gpuaas site set SITE --url URL --api-key-file FILE`",
    doc: "Site names are unique",
}
PoolUnknown "pool_unknown" "MAAS has no resource pool with this name" {
    status: 400, owner: None, next_action: "correct the name; or create the pool in MAAS with `maas PROFILE resource-pools create name=POOL`, and move the site's machines to it with `maas PROFILE machine update SYSTEM_ID pool=POOL`",
    doc: "The site names a pool that its region does not have, so the site would have no machines",
}
RegionTaken "region_taken" "Another site uses machines of this region" {
    status: 409, owner: None, next_action: "use that site, `gpuaas site show SITE`; or give each of the two sites its own MAAS resource pool, with `gpuaas site set SITE --pool POOL` for the existing one and `--pool` for the new one; `gpuaas site set SITE --url URL --api-key-file FILE` gives a site another address of its region",
    doc: "GPUaaS recognizes a region by its address and by the identity that it stores in the region. Two sites of one region would treat each other's machines as free, unless each site uses its own resource pool",
}
ProfileNameTaken "profile_name_taken" "A profile with this name already exists" {
    status: 409, owner: None, next_action: "choose another name, or change the existing profile with `gpuaas profile set PROFILE FIELD=VALUE`",
    doc: "Profile names are unique",
}
BatchInvalid "batch_invalid" "Invalid batch manifest" {
    status: 400, owner: None, next_action: "correct what the error names; machine indexes in the list start at 0",
    doc: "The whole manifest is checked first, and nothing was created",
}
BatchNameTaken "batch_name_taken" "A batch with this name already exists" {
    status: 409, owner: None, next_action: "choose another name; `gpuaas batch show BATCH` shows the existing batch",
    doc: "Batch names are unique",
}
BatchNotStopped "batch_not_stopped" "The batch is not stopped" {
    status: 409, owner: None, next_action: "run `gpuaas batch show BATCH` to see what it waits for",
    doc: "Only a stopped batch can be resumed",
}
BatchStopped "batch_stopped" "The batch is already stopped" {
    status: 409, owner: None, next_action: "run `gpuaas batch resume BATCH --reason WHY` to continue it",
    doc: "A stopped batch starts no more machines",
}
BatchOver "batch_over" "The batch has ended" {
    status: 409, owner: None, next_action: "create another batch for other machines", doc: "The batch has finished all its machines",
}
RunNotParked "run_not_parked" "The run is not parked" {
    status: 409, owner: None, next_action: "run `gpuaas run show RUN` to see its state",
    doc: "Only a parked run can be resumed or retried",
}
TaskKeyStaged "task_key_staged" "A task key is already staged" {
    status: 409, owner: None, next_action: "run `gpuaas task-key activate` to sign with the staged key, or `gpuaas task-key retire KEY` to withdraw it",
    doc: "Only one key can be staged at a time",
}
NoTaskKeyStaged "no_task_key_staged" "No task key is staged" {
    status: 409, owner: None, next_action: "run `gpuaas task-key stage` to create one", doc: "There is no key to activate",
}
AuthorityStaged "authority_staged" "A certificate authority change is already in progress" {
    status: 409, owner: None, next_action: "run `gpuaas authority show` to see its progress; `gpuaas authority activate --reason TEXT` activates a staged authority, and `gpuaas authority retire --reason TEXT` ends the trust in a staged authority or one that no longer signs",
    doc: "Only two certificate authorities can be trusted at a time",
}
NoAuthorityStaged "no_authority_staged" "No certificate authority is staged" {
    status: 409, owner: None, next_action: "run `gpuaas authority stage --reason TEXT` to create one", doc: "There is no authority to activate",
}
AuthorityNotTrusted "authority_not_trusted" "Some nodes do not trust the staged certificate authority yet" {
    status: 409, owner: None, next_action: "wait until `gpuaas authority show` lists no nodes; bring back the agents of the listed nodes, or end their runs; `gpuaas authority activate --force --reason TEXT` continues without them",
    doc: "Agents receive the next trust anchor in the answers to their heartbeats. Some have not confirmed it yet, or have yet to enroll with older user-data",
}
NoAuthorityRetiring "no_authority_retiring" "There is no certificate authority to retire" {
    status: 409, owner: None, next_action: "activate another one first: `gpuaas authority stage --reason TEXT`, then `gpuaas authority activate --reason TEXT`",
    doc: "The authority that signs cannot be retired",
}
AuthorityInUse "authority_in_use" "Nodes still depend on the certificate authority" {
    status: 409, owner: None, next_action: "wait until `gpuaas authority show` lists no nodes: agents renew their certificates with the next heartbeat, and nodes that have yet to enroll leave the list when they enroll or their runs end; `gpuaas authority retire --force --reason TEXT` locks out the listed nodes until they are reimaged",
    doc: "Some nodes have a certificate only from this authority, do not trust the one that signs now, or have yet to enroll with older user-data",
}
AuthorityExternal "authority_external" "The control plane does not manage the certificate authority" {
    status: 409, owner: None, next_action: "change the authority in its own system, and pass both trust anchors during the change: `gpuaas serve --authority-command PROGRAM --authority-anchor-file FILE`",
    doc: "This control plane was started with `--authority-command` or without a node listener, so it has no authority of its own",
}
TaskKeyActive "task_key_active" "The task key is active" {
    status: 409, owner: None, next_action: "activate another key first: `gpuaas task-key stage`, then `gpuaas task-key activate`",
    doc: "The key that signs tasks cannot be retired",
}
BodyTooLarge "body_too_large" "The request body is too large" {
    status: 413, owner: None, next_action: "send less data in one request", doc: "The body exceeds the endpoint's size limit",
}
UnsupportedMediaType "unsupported_media_type" "Unsupported content type" {
    status: 415, owner: None, next_action: "send JSON with `Content-Type: application/json`", doc: "The endpoint accepts only JSON",
}
MaasUnreachable "maas_unreachable" "MAAS does not answer" {
    status: 502, owner: Some(Owner::InfraOperator), next_action: "check the URL, and that the control plane's host can reach it: `curl URL/api/2.0/version/`",
    doc: "The site's URL did not answer",
}
RegionInsecure "region_insecure" "The API key would be sent unencrypted" {
    status: 422, owner: None, next_action: "use the region's https:// URL: `gpuaas site set SITE --url URL --api-key-file FILE`; if nobody else can read the traffic, start the control plane with `gpuaas serve --insecure-regions`",
    doc: "The region's URL is http:// on another host, and the control plane was not started with the option that allows this",
}
LoopbackTarget "loopback_target" "The address is on the control plane's own host" {
    status: 422, owner: None, next_action: "use an address of another host; if MAAS or the receiver runs on the control plane's host, start the control plane with `gpuaas serve --loopback-targets`",
    doc: "The address of a region or webhook is loopback or unspecified, where services answer that only this host can reach; the control plane was not started with the option that allows this",
}
NotAMaas "not_a_maas" "The server at this URL is not MAAS" {
    status: 502, owner: None, next_action: "use the base URL of a region, such as http://maas.example:5240/MAAS",
    doc: "The site's URL answers, but not like MAAS",
}
MaasKeyRefused "maas_key_refused" "MAAS refuses the API key" {
    status: 422, owner: None, next_action: "use an administrator's API key: `maas apikey --username=NAME` prints it",
    doc: "MAAS answered 401 to the API key",
}
VaultNotNamed "vault_not_named" "The control plane has no Vault configured" {
    status: 422, owner: None, next_action: "configure Vault on each control plane with `gpuaas serve --vault-url URL --vault-role-id ID --vault-secret-id-file FILE`, or give the key itself with `gpuaas site set SITE --api-key-file FILE`",
    doc: "The site's API key is stored in Vault, and this control plane was started without one",
}
VaultUnreachable "vault_unreachable" "Vault does not answer" {
    status: 502, owner: None, next_action: "check with `gpuaas doctor` that Vault is running, unsealed and reachable from the control plane's host; then try again",
    doc: "The Vault that holds the API key is unreachable, is sealed, or has no leader",
}
VaultRefused "vault_refused" "Vault refuses access to the API key" {
    status: 422, owner: None, next_action: "check the role, its secret ID and its policy: it needs `read` on MOUNT/data/PATH",
    doc: "Vault rejected the role's login or its request for the secret",
}
VaultSecretMissing "vault_secret_missing" "Vault has no such secret or field" {
    status: 422, owner: None, next_action: "check the mount, path and field, and that the mount is a KV version 2 engine",
    doc: "The reference names a mount, secret or field that Vault does not have, or whose latest version is deleted",
}
VaultAnswerUnreadable "vault_answer_unreadable" "Unexpected answer from Vault" {
    status: 502, owner: None, next_action: "check that the URL is Vault's, and that the field contains a string",
    doc: "The answer does not have the documented format, or the field is not a string",
}
MaasNotAdmin "maas_not_admin" "The API key is not an administrator's" {
    status: 422, owner: None, next_action: "use an administrator's API key: `maas apikey --username=NAME` prints it",
    doc: "The key's user lacks permissions that GPUaaS needs",
}
MaasVersionUnsupported "maas_version_unsupported" "Unsupported MAAS version" {
    status: 422, owner: Some(Owner::InfraOperator), next_action: "use a region with MAAS 3.4 to 3.7",
    doc: "GPUaaS supports MAAS 3.4 to 3.7",
}
$($rows)* } };
}
