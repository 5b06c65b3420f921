//! Refusals over what is there, or is not.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_resources {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
NotFound "not_found" "There is nothing at this address" {
    status: 404, owner: None, next_action: "the addresses begin with /api/v1, /bootstrap/v1 or /agent/v1",
    doc: "No endpoint has this address",
}
SiteNotFound "site_not_found" "There is no such site" {
    status: 404, owner: None, next_action: "`gpuaas site list` shows the sites; `gpuaas site add SITE --url URL --api-key-file FILE` makes one",
    doc: "No site has this name",
}
ProfileNotFound "profile_not_found" "There is no such profile" {
    status: 404, owner: None, next_action: "`gpuaas profile list` shows the profiles; `gpuaas profile add PROFILE` makes one",
    doc: "No profile has this name",
}
NodeNotFound "node_not_found" "There is no such node" {
    status: 404, owner: None, next_action: "`gpuaas node list` shows the nodes; a node is found by id, hostname, MAAS system id, MAC or BMC address",
    doc: "No node answers to this name",
}
RunNotFound "run_not_found" "There is no such run" {
    status: 404, owner: None, next_action: "`gpuaas node show NODE` names its run", doc: "No run has this identifier",
}
SecretNotFound "secret_not_found" "There is no such secret" {
    status: 404, owner: None, next_action: "`gpuaas site secret list SITE` shows what is set, and so does `gpuaas profile secret list PROFILE`",
    doc: "No secret is set for this input",
}
BatchNotFound "batch_not_found" "There is no such batch" {
    status: 404, owner: None, next_action: "`gpuaas batch list` shows the batches", doc: "No batch has this name or identifier",
}
AccessTokenNotFound "access_token_not_found" "There is no such token" {
    status: 404, owner: None, next_action: "`gpuaas token list` shows the tokens; one that was revoked stays so",
    doc: "No token of this name counts",
}
EventSinkNotFound "event_sink_not_found" "There is no such sink of events" {
    status: 404, owner: None, next_action: "`gpuaas events sinks` shows the sinks",
    doc: "No sink has this name",
}
EventSinkNameTaken "event_sink_name_taken" "There is a sink of this name" {
    status: 409, owner: None, next_action: "choose another name; `gpuaas events sinks` shows what is there",
    doc: "Names of sinks are unique",
}
DeadLetterNotFound "dead_letter_not_found" "There is no such dead letter" {
    status: 404, owner: None, next_action: "`gpuaas events dead-letters` shows them; one that was delivered again is gone",
    doc: "No dead letter of the sink has this number",
}
EventUnknown "event_unknown" "The event is not of this database" {
    status: 409, owner: None, next_action: "follow anew from now on, without --after: `gpuaas events`",
    doc: "The event to go on after would be younger than the youngest one: it is of another database, or of one that was restored since",
}
TaskNotFound "task_not_found" "There is no such task for this node" {
    status: 404, owner: None, next_action: "`gpuaas node tasks NODE` lists them",
    doc: "No task has this identifier, or it is for another node",
}
ArtifactNotFound "artifact_not_found" "There is no artifact with this digest" {
    status: 404, owner: Some(Owner::PlatformOperator), next_action: "deploy the node again: its user-data names what this control plane has",
    doc: "No artifact has this digest",
}
MethodNotAllowed "method_not_allowed" "This address does not take this method" {
    status: 405, owner: None, next_action: "the header Allow names those that it takes",
    doc: "The endpoint is there and takes other methods",
}
RequestTimeout "request_timeout" "The request took too long" {
    status: 504, owner: Some(Owner::PlatformOperator), next_action: "whether it took effect is not known: look before asking again; repeat a POST with the same Idempotency-Key",
    doc: "The request took longer than its limit, so its effect is not known",
}
RevisionChanged "revision_changed" "It was changed meanwhile" {
    status: 412, owner: None, next_action: "read it again, look at what changed, and send the change with the new `ETag` as `If-Match`",
    doc: "The header `If-Match` names another revision than the newest one, so somebody else changed the site or profile after it was read",
}
NodeExists "node_exists" "The node is already under care" {
    status: 409, owner: None, next_action: "`gpuaas node show NODE` says how it stands; one in service is deployed again by `gpuaas node reimage NODE`, and given up by `gpuaas node detach NODE`",
    doc: "A node with this hostname or BMC address is in the care of GPUaaS",
}
NodeAmbiguous "node_ambiguous" "More than one node matches" {
    status: 409, owner: None, next_action: "name it by its id", doc: "Several live nodes answer to this name",
}
IdAmbiguous "id_ambiguous" "More than one identifier begins so" {
    status: 409, owner: None, next_action: "write more of it, as far as the answer's candidates differ; or name the node, `gpuaas run show HOST`",
    doc: "The begin of an identifier stands for it where no other begins so",
}
NodeHasOpenRun "node_has_open_run" "The node has an open run" {
    status: 409, owner: None, next_action: "`gpuaas explain NODE` says how far it is; `gpuaas run cancel RUN --reason WHY` ends it",
    doc: "A node has at most one open run",
}
NodeStateForbids "node_state_forbids" "The node's state does not allow this" {
    status: 409, owner: None, next_action: "`gpuaas node show NODE` names its state; the detail names those from which this begins",
    doc: "The kind of run does not begin in the state of the node",
}
NodeBound "node_bound" "The node has a machine at its site" {
    status: 409, owner: None, next_action: "end its run, `gpuaas run cancel RUN --reason WHY`, give the machine up, `gpuaas node detach NODE`, and onboard the host at the other site, `gpuaas node onboard NODE --site SITE --profile PROFILE`",
    doc: "A node gets another site only while no machine of its site is bound to it and its run has made none",
}
MachineHandedOff "machine_handed_off" "The machine was handed over" {
    status: 409, owner: None, next_action: "GPUaaS does not touch a machine whose profile hands it over: `gpuaas node detach NODE`",
    doc: "The profile has `release_mode=handoff`",
}
BetweenTenantsForbids "between_tenants_forbids" "The profile wants another cleaning between tenants" {
    status: 409, owner: None, next_action: "`gpuaas node reimage NODE` erases the disks and deploys the host again; where the word of the host is enough, `gpuaas profile set PROFILE between_tenants=soft_reset`, or `=storage_cleanup`, says so for all of its nodes",
    doc: "A soft reset or a storage cleanup would put the host back into service by its own word, and `between_tenants` of the profile names something else",
}
ProfileNotForSite "profile_not_for_site" "The profile is not for this site" {
    status: 409, owner: None, next_action: "`gpuaas profile list` shows the profiles; `gpuaas profile set PROFILE sites=SITE` names the sites of one, with commas between them",
    doc: "`sites` of the profile names the sites whose nodes may be deployed with it, and this one is not among them",
}
NodeWithoutAgent "node_without_agent" "The node has no agent" {
    status: 409, owner: None, next_action: "only an agent carries out tasks: onboard the node first, `gpuaas node onboard HOST --site SITE --profile PROFILE`",
    doc: "No agent of the node was ever heard, or its credential was revoked",
}
RunMismatch "run_mismatch" "The agent belongs to another run" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "restart gpuaas-node-agent.service; if that does not help, `gpuaas node reimage NODE`",
    doc: "An agent speaks for the run that it enrolled in, and named another",
}
IdempotencyKeyReused "idempotency_key_reused" "The idempotency key was used with another request" {
    status: 409, owner: None, next_action: "use a new key for a new request",
    doc: "The key belongs to an earlier request that asked for something else",
}
IdempotencyKeyInUse "idempotency_key_in_use" "A request with this idempotency key is under way" {
    status: 409, owner: None, next_action: "send it again in a moment", doc: "The first request with this key is not answered yet",
}
RoceInterfaceTaken "roce_interface_taken" "The interface has a fabric address" {
    status: 409, owner: None, next_action: "`gpuaas roce list` shows the fabric addresses; `gpuaas roce remove --site SITE --host HOST --interface NAME` takes the one that is wrong away",
    doc: "The interface of this host has another fabric address",
}
RoceAddressTaken "roce_address_taken" "The fabric address belongs to another interface" {
    status: 409, owner: None, next_action: "`gpuaas roce list` shows the fabric addresses; `gpuaas roce remove --site SITE --host HOST --interface NAME` takes the one that is wrong away",
    doc: "Another interface has this fabric address",
}
SiteNameTaken "site_name_taken" "There is a site of this name" {
    status: 409, owner: None, next_action: "choose another name, or change the site: `gpuaas site set SITE --url URL --api-key-file FILE`",
    doc: "Names of sites are unique",
}
PoolUnknown "pool_unknown" "MAAS has no resource pool of this name" {
    status: 400, owner: None, next_action: "correct the name, or make the pool in MAAS, `maas PROFILE resource-pools create name=POOL`, and put the site's machines into it, `maas PROFILE machine update SYSTEM_ID pool=POOL`",
    doc: "The site names a pool that its region does not have, so no machine would ever be the site's",
}
RegionTaken "region_taken" "Another site has machines of this region" {
    status: 409, owner: None, next_action: "use that site, `gpuaas site show SITE`, or give each of the two a resource pool of MAAS that no other has: `gpuaas site set SITE --pool POOL`, then `--pool` for the new one; `gpuaas site set SITE --url URL --api-key-file FILE` gives a site another address of its region",
    doc: "A region is known by the identity in the mark that is kept in it, and by its address. Two sites of one region would each take the other's machines for free, unless each has the machines of one resource pool",
}
ProfileNameTaken "profile_name_taken" "There is a profile of this name" {
    status: 409, owner: None, next_action: "choose another name, or change the profile: `gpuaas profile set PROFILE FIELD=VALUE`",
    doc: "Names of profiles are unique",
}
BatchInvalid "batch_invalid" "The manifest cannot be taken as it is" {
    status: 400, owner: None, next_action: "correct what is named; the index of a machine in the list counts from 0",
    doc: "A manifest is checked whole, and nothing was made",
}
BatchNameTaken "batch_name_taken" "There is a batch of this name" {
    status: 409, owner: None, next_action: "choose another name; `gpuaas batch show BATCH` shows what is there",
    doc: "Names of batches are unique",
}
BatchNotStopped "batch_not_stopped" "The batch is not stopped" {
    status: 409, owner: None, next_action: "`gpuaas batch show BATCH` says what it waits for",
    doc: "Only a stopped batch can be resumed",
}
BatchStopped "batch_stopped" "The batch is stopped already" {
    status: 409, owner: None, next_action: "`gpuaas batch resume BATCH --reason WHY` lets it go on",
    doc: "The batch begins no further machine",
}
BatchOver "batch_over" "The batch is over" {
    status: 409, owner: None, next_action: "make another batch for other machines", doc: "Every machine of the batch has ended",
}
RunNotParked "run_not_parked" "The run is not parked" {
    status: 409, owner: None, next_action: "`gpuaas run show RUN` says how it stands",
    doc: "Only a parked run can be resumed or retried",
}
TaskKeyStaged "task_key_staged" "A staged key waits already" {
    status: 409, owner: None, next_action: "`gpuaas task-key activate` lets it sign; `gpuaas task-key retire KEY` withdraws it",
    doc: "One key at a time waits to sign",
}
NoTaskKeyStaged "no_task_key_staged" "No key is staged" {
    status: 409, owner: None, next_action: "`gpuaas task-key stage` makes one", doc: "There is no key that could begin to sign",
}
AuthorityStaged "authority_staged" "Another certificate authority is about to take over" {
    status: 409, owner: None, next_action: "`gpuaas authority show` says how far it is: `gpuaas authority activate --reason TEXT` lets a staged one sign, `gpuaas authority retire --reason TEXT` ends the trust in one that signs no more, or in a staged one",
    doc: "Two certificate authorities at a time are trusted",
}
NoAuthorityStaged "no_authority_staged" "No certificate authority is staged" {
    status: 409, owner: None, next_action: "`gpuaas authority stage --reason TEXT` makes one", doc: "There is no authority that could begin to sign",
}
AuthorityNotTrusted "authority_not_trusted" "Nodes do not trust the staged certificate authority yet" {
    status: 409, owner: None, next_action: "wait until `gpuaas authority show` names no node; bring the agents of those that it names back, or end their runs; `gpuaas authority activate --force --reason TEXT` goes on without them",
    doc: "Agents are given the next trust anchor with the answers to their heartbeats; some have not said yet that they have it, or are still to enroll with user-data of before",
}
NoAuthorityRetiring "no_authority_retiring" "No certificate authority is to be retired" {
    status: 409, owner: None, next_action: "let another one sign first: `gpuaas authority stage --reason TEXT`, then `gpuaas authority activate --reason TEXT`",
    doc: "The one that signs is not retired",
}
AuthorityInUse "authority_in_use" "Nodes depend on the certificate authority" {
    status: 409, owner: None, next_action: "wait until `gpuaas authority show` names no node: agents renew their certificates with the next heartbeat, and nodes that are still to enroll do so with their runs, or not any more once these have ended; `gpuaas authority retire --force --reason TEXT` shuts those out that it names, until they are reimaged",
    doc: "Some nodes have a certificate of it alone, do not trust the one that signs now, or are still to enroll with user-data of before",
}
AuthorityExternal "authority_external" "The certificate authority is a program of the operator's" {
    status: 409, owner: None, next_action: "change it where it is, and give both trust anchors meanwhile: `gpuaas serve --authority-command PROGRAM --authority-anchor-file FILE`",
    doc: "This control plane was started with `--authority-command`, or without a listener for nodes, and has no authority of its own",
}
TaskKeyActive "task_key_active" "The key signs" {
    status: 409, owner: None, next_action: "let another one sign first: `gpuaas task-key stage`, then `gpuaas task-key activate`",
    doc: "The key that signs cannot be retired",
}
BodyTooLarge "body_too_large" "The body is too large" {
    status: 413, owner: None, next_action: "send less at once", doc: "The body has more bytes than the endpoint takes",
}
UnsupportedMediaType "unsupported_media_type" "The body has a type that is not taken" {
    status: 415, owner: None, next_action: "send JSON with `Content-Type: application/json`", doc: "The endpoint takes JSON only",
}
MaasUnreachable "maas_unreachable" "MAAS does not answer" {
    status: 502, owner: Some(Owner::InfraOperator), next_action: "check the URL, and that this host can reach it: `curl URL/api/2.0/version/`",
    doc: "No answer came from the URL of the site",
}
RegionInsecure "region_insecure" "The API key would cross the network in the clear" {
    status: 422, owner: None, next_action: "give the region's https:// address: `gpuaas site set SITE --url URL --api-key-file FILE`; where nobody else is on the way, start the control plane with `gpuaas serve --insecure-regions`",
    doc: "The region's address is http:// and on another host, and the control plane was not told that this may be",
}
LoopbackTarget "loopback_target" "The address is of the control plane's own host" {
    status: 422, owner: None, next_action: "give an address of another host; if MAAS or the receiver runs beside the control plane, start it with `gpuaas serve --loopback-targets`",
    doc: "The address of a region or of a webhook is loopback or unspecified, where services answer that nobody else reaches, and the control plane was not told that this may be",
}
NotAMaas "not_a_maas" "What answers at this URL is not MAAS" {
    status: 502, owner: None, next_action: "give the base URL of a region, such as http://maas.example:5240/MAAS",
    doc: "Something answers at the URL of the site, and not as MAAS does",
}
MaasKeyRefused "maas_key_refused" "MAAS refuses the API key" {
    status: 422, owner: None, next_action: "print the key of an administrator: `maas apikey --username=NAME`",
    doc: "MAAS answered 401 to the API key",
}
VaultNotNamed "vault_not_named" "The control plane knows no Vault" {
    status: 422, owner: None, next_action: "start each control plane with one, `gpuaas serve --vault-url URL --vault-role-id ID --vault-secret-id-file FILE`, or give the key itself, `gpuaas site set SITE --api-key-file FILE`",
    doc: "The API key of the site is kept in a Vault, and this control plane was started without one",
}
VaultUnreachable "vault_unreachable" "The Vault does not answer" {
    status: 502, owner: None, next_action: "see that it runs, is unsealed, and that the control plane's host reaches it, `gpuaas doctor`; then ask again",
    doc: "The Vault that has the API key cannot be reached, is sealed, or has no leader",
}
VaultRefused "vault_refused" "The Vault refuses to give the API key" {
    status: 422, owner: None, next_action: "look at the role, its secret id and its policy: it needs `read` on MOUNT/data/PATH",
    doc: "The Vault takes neither the role's sign-in nor its request for the secret",
}
VaultSecretMissing "vault_secret_missing" "The Vault has no such secret or field" {
    status: 422, owner: None, next_action: "look at the mount, the path and the field, and that the mount is a KV engine of version 2",
    doc: "The reference names a mount, a secret or a field that the Vault does not have, or whose newest version is deleted",
}
VaultAnswerUnreadable "vault_answer_unreadable" "The Vault's answer cannot be read" {
    status: 502, owner: None, next_action: "see that the address is a Vault's, and that the field is a text",
    doc: "What answered in the Vault's place has another form than its documents say, or the field is no text",
}
MaasNotAdmin "maas_not_admin" "The API key is not an administrator's" {
    status: 422, owner: None, next_action: "print the key of an administrator: `maas apikey --username=NAME`",
    doc: "The key's user may not do what GPUaaS has to do",
}
MaasVersionUnsupported "maas_version_unsupported" "This version of MAAS is not supported" {
    status: 422, owner: Some(Owner::InfraOperator), next_action: "use a region with MAAS 3.4 to 3.7",
    doc: "GPUaaS is written for MAAS 3.4 to 3.7",
}
$($rows)* } };
}
