//! Refusals of the HTTP API.

use crate::api::Owner;

/// A row of [`PROBLEMS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemRow {
    /// The code.
    pub code: ProblemCode,
    /// HTTP status.
    pub status: u16,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// Who has to act; none: whoever sent the request.
    pub owner: Option<Owner>,
    /// What to do: the hint, where the place that refuses knows nothing more.
    pub next_action: &'static str,
    /// When a request is refused so.
    pub doc: &'static str,
}

codes! {
/// Why the HTTP API refused a request, as `code` of the problem body names it.
ProblemCode, ProblemRow, PROBLEMS;
MalformedJson "malformed_json" "The body is not JSON" {
    status: 400, owner: None, next_action: "send one JSON object, as the documentation of the endpoint shows it",
    doc: "The bytes of the body are no JSON value, or the connection broke before they were complete",
}
UnknownField "unknown_field" "The request has a field that does not exist" {
    status: 400, owner: None, next_action: "correct the field that `errors` names; it says what may have been meant",
    doc: "Fields that an endpoint does not have are refused, so that a misspelt one is not lost",
}
MissingField "missing_field" "A field of the request is missing" {
    status: 400, owner: None, next_action: "add the field that `errors` names", doc: "A field that has no default was left out",
}
InvalidField "invalid_field" "A field of the request cannot be taken as it is" {
    status: 400, owner: None, next_action: "correct the field that `errors` names; it says what the field takes",
    doc: "A value has the wrong type, form or range, or does not fit another field",
}
InvalidQuery "invalid_query" "The query of the URL cannot be understood" {
    status: 400, owner: None, next_action: "leave out what this address does not take",
    doc: "A parameter of the query is not known, or its value is not one of those that it takes",
}
InvalidIdempotencyKey "invalid_idempotency_key" "The idempotency key cannot be used" {
    status: 400, owner: None, next_action: "send 1 to 200 printable ASCII characters, such as a UUID",
    doc: "The header `Idempotency-Key` is empty, too long or not printable",
}
BundleNotFound "bundle_not_found" "The bundle reference does not resolve" {
    status: 400, owner: None, next_action: "`gpuaas bundle list` shows the bundles; `gpuaas bundle publish DIR` adds one",
    doc: "No bundle has this name and version, or this digest",
}
BundleRefInvalid "bundle_ref_invalid" "The bundle reference cannot be understood" {
    status: 400, owner: None, next_action: "write NAME@VERSION, or the digest", doc: "A reference is neither NAME@VERSION nor a digest",
}
BundleMalformed "bundle_malformed" "These bytes are no bundle" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "`gpuaas bundle build DIR` makes the file from a folder",
    doc: "The bytes are no gzipped tar archive of a bundle",
}
BundleEntryRefused "bundle_entry_refused" "The bundle holds what no bundle may hold" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "`gpuaas bundle lint DIR` names the entry",
    doc: "The archive holds a link, a device, a path that leads out of it, or the like",
}
BundleTooLarge "bundle_too_large" "The bundle is too large" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "leave out what the phases do not need, and fetch large files from an artifact store",
    doc: "The archive or what it unpacks to is larger than a bundle may be",
}
BundleManifestInvalid "bundle_manifest_invalid" "The bundle's manifest is wrong" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "`gpuaas bundle lint DIR` says what is wrong with the manifest",
    doc: "`bundle.yaml` does not fit the schema, or names what is not in the archive",
}
BundleInvalid "bundle_invalid" "The bundle is wrong" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "`gpuaas bundle lint DIR` says what is wrong with a folder",
    doc: "The bundle cannot be used for what it is named for",
}
BundleCircle "bundle_circle" "Bundles require each other" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "remove one of the requirements that the detail names",
    doc: "Bundles require each other in a circle, so that none could be first",
}
BundleInputUnknown "bundle_input_unknown" "The bundle has no such input" {
    status: 422, owner: None, next_action: "`gpuaas bundle show BUNDLE` lists the inputs",
    doc: "A value is set for an input that the bundle does not declare",
}
BundleInputMissing "bundle_input_missing" "An input of the bundle has to be set" {
    status: 422, owner: None, next_action: "set it in the profile, `gpuaas profile set PROFILE --input INPUT=VALUE`, or in the `bundle_inputs` of the site",
    doc: "An input without a default has no value",
}
BundleInputInvalid "bundle_input_invalid" "A value does not fit the bundle's input" {
    status: 422, owner: None, next_action: "`gpuaas bundle show BUNDLE` says what the input takes",
    doc: "A value has the wrong type or form for the input",
}
BundleInputNotPassedOn "bundle_input_not_passed_on" "The bundle that requires this one decides the input" {
    status: 422, owner: None, next_action: "`gpuaas bundle show BUNDLE` lists what the requiring bundle takes; take the value away with `gpuaas site set SITE --host-input HOST:BUNDLE.INPUT=`",
    doc: "A host's value is for an input of a required bundle that the requiring bundle does not hand on",
}
BundleInputNotOfOneHost "bundle_input_not_of_one_host" "Each host has a value of its own here" {
    status: 422, owner: None, next_action: "set it for one host, `gpuaas site set SITE --host-input HOST:BUNDLE.INPUT=VALUE`",
    doc: "A site or a profile sets one value for an input, such as an address, that no two hosts may share",
}
BundleInputShared "bundle_input_shared" "Two hosts would have the same value" {
    status: 422, owner: None, next_action: "give one of the hosts another value, `gpuaas site set SITE --host-input HOST:BUNDLE.INPUT=VALUE`",
    doc: "Values of two hosts, or what their bundle derives from them, are the same where each host has its own",
}
BundleSecretMissing "bundle_secret_missing" "A secret of the bundle has to be set" {
    status: 422, owner: None, next_action: "`gpuaas site secret set SITE BUNDLE INPUT --file FILE`, or `gpuaas profile secret set PROFILE BUNDLE INPUT --file FILE`; `--file -` reads stdin",
    doc: "An input that is a secret has no value for the site or the profile",
}
BundleSecretInOpen "bundle_secret_in_open" "A secret cannot be kept where it is shown" {
    status: 422, owner: None, next_action: "set it with `gpuaas site secret set SITE BUNDLE INPUT --file FILE`",
    doc: "A secret input was set where its value would be shown again",
}
BundleInputNotSecret "bundle_input_not_secret" "The bundle's input is no secret" {
    status: 422, owner: None, next_action: "set it in the profile, `gpuaas profile set PROFILE --input INPUT=VALUE`",
    doc: "An input that the manifest does not mark as secret was set as one",
}
BundleSecretGivenAway "bundle_secret_given_away" "The bundle would show a secret" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "take the secret out of the text that the detail names",
    doc: "A secret input stands where the host or the control plane would show it",
}
SignatureMalformed "signature_malformed" "The signature cannot be read" {
    status: 422, owner: None, next_action: "sign the bundle again: `gpuaas bundle build DIR --key FILE`",
    doc: "The envelope of the signature cannot be read",
}
SignatureKeyUnknown "signature_key_unknown" "Nobody who is trusted signed the bundle" {
    status: 422, owner: Some(Owner::PlatformOperator), next_action: "trust the key, `gpuaas bundle trust KEY --name NAME`, or sign with one that `gpuaas bundle keys` lists",
    doc: "No key that this control plane trusts made the signature",
}
SignatureForged "signature_forged" "The signature does not fit" {
    status: 422, owner: None, next_action: "sign the bundle again with the key that the signature names",
    doc: "The signature does not fit the key that it names",
}
SignatureKeyRetired "signature_key_retired" "The signer is not trusted any more" {
    status: 422, owner: Some(Owner::PlatformOperator), next_action: "sign with a key that `gpuaas bundle keys` lists",
    doc: "The key that made the signature is trusted no more",
}
SignatureExpired "signature_expired" "The signature has expired" {
    status: 422, owner: None, next_action: "sign the bundle again", doc: "The signature was made to count until a moment that is over",
}
SignatureNotYetValid "signature_not_yet_valid" "The signature is from the future" {
    status: 422, owner: Some(Owner::InfraOperator), next_action: "set the clocks of the signer and of the control plane by NTP",
    doc: "The signature is dated later than now",
}
BundleDigestMismatch "bundle_digest_mismatch" "Other bytes were signed" {
    status: 422, owner: None, next_action: "sign these bytes, or send those that were signed", doc: "The signature is of other bytes",
}
BundleNameMismatch "bundle_name_mismatch" "Another bundle was signed" {
    status: 422, owner: None, next_action: "sign this bundle, or send the one that was signed",
    doc: "The signature is of a bundle of another name or version",
}
BundleVersionTaken "bundle_version_taken" "Other bytes have this name and version" {
    status: 409, owner: None, next_action: "a published version never changes: give the bundle another version",
    doc: "Other bytes were published under this name and version",
}
BundleNotApproved "bundle_not_approved" "The bundle is not approved for the site" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas bundle approve BUNDLE --site SITE --reason WHY`",
    doc: "A bundle runs on the hosts of a site only when an operator approved it for the site",
}
AgentSourceForeign "agent_source_foreign" "An agent comes from the control plane's own store only" {
    status: 422, owner: None, next_action: "`gpuaas bundle publish DIR` of a bundle of kind node_agent, `gpuaas bundle approve BUNDLE --site SITE --reason WHY`, then `gpuaas node task NODE agent-update --bundle BUNDLE`",
    doc: "An update names a URL, a digest or a version instead of an agent that was published and approved",
}
TokenNameTaken "token_name_taken" "There is a token of this name" {
    status: 409, owner: None, next_action: "choose another name, or end the one that has it, `gpuaas token revoke NAME --reason WHY`",
    doc: "Of the tokens that count, each has a name of its own: the audit shows it",
}
AgentDowngrade "agent_downgrade" "An agent is not replaced by an older one" {
    status: 409, owner: None, next_action: "`gpuaas bundle list` shows the agents; publish one that is newer",
    doc: "The version is lower than the one that the node's agent says it is, and might bring a fault back that was mended",
}
TokenMissing "token_missing" "The request carries no credential" {
    status: 401, owner: None, next_action: "send it as `Authorization: Bearer TOKEN`",
    doc: "The request has no header Authorization, or one that is no bearer credential",
}
TokenUnknown "token_unknown" "The credential is not known" {
    status: 401, owner: None, next_action: "check that it was copied whole and belongs to this control plane",
    doc: "No credential of this control plane has this value",
}
TokenUsed "token_used" "The token was used before" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node certificates NODE` says who enrolled with it; `gpuaas node reimage NODE` issues another",
    doc: "An enrollment token works once, and again only for the key that used it, until the first heartbeat",
}
TokenContested "token_contested" "Another key has enrolled with the token" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node certificates NODE` says who enrolled; `gpuaas explain NODE` says what to do about the run",
    doc: "Two keys asked to enroll with one token while its run is open; nobody can tell which is the node, so the run parks and every certificate of the node is revoked",
}
TokenOtherMachine "token_other_machine" "The token is of another machine" {
    status: 403, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas explain NODE` shows the machine that the token was made for; where its board or its interfaces were replaced, `gpuaas node reimage NODE` has MAAS look at it again",
    doc: "The agent that asks to enroll runs on a host that is not the machine as MAAS knows it: other MAC addresses, or another system UUID",
}
TokenExpired "token_expired" "The token has expired" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas run resume RUN --reason WHY` makes it good again; `gpuaas node reimage NODE` issues another",
    doc: "The run of the token is parked, and its node said nothing for too long",
}
TokenRevoked "token_revoked" "The credential was revoked" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node reimage NODE` issues another",
    doc: "The token was withdrawn, or a later one stands in its place",
}
TokenOfOtherRun "token_of_other_run" "The token is for another run" {
    status: 403, owner: Some(Owner::PlatformOperator), next_action: "a token works for the run that it was made for: let the node's latest deployment use its own",
    doc: "A token works for the run that it was made for, and another one was named",
}
CertificateMissing "certificate_missing" "The connection shows no certificate of a node" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "agents connect with the certificate of their enrollment: restart gpuaas-node-agent.service on the host",
    doc: "The connection to the nodes' listener shows no certificate",
}
CertificateWrongAuthority "certificate_wrong_authority" "The certificate was signed by somebody else" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "point the agent to its own control plane, or `gpuaas node reimage NODE`",
    doc: "The agent belongs to another control plane, or the authority was replaced",
}
CertificateUnknown "certificate_unknown" "No node of this control plane has this certificate" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node reimage NODE`; where the node is gone, onboard the host again",
    doc: "The node was removed, or the database was restored from before the enrollment",
}
CertificateRevoked "certificate_revoked" "The certificate was revoked" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node certificates NODE` says by whom and why; `gpuaas node reimage NODE` issues another",
    doc: "An operator withdrew the certificate",
}
CertificateSuperseded "certificate_superseded" "The certificate belongs to an earlier enrollment of the node" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "switch the other system off, or `gpuaas node reimage NODE`",
    doc: "Another system has enrolled as this node since, or the one that had it was released",
}
CertificateExpired "certificate_expired" "The certificate has expired" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "set right the clocks of both hosts, or `gpuaas node reimage NODE`",
    doc: "The agent could not renew its certificate in time",
}
CertificateNotYetValid "certificate_not_yet_valid" "The certificate is not valid yet" {
    status: 401, owner: Some(Owner::InfraOperator), next_action: "set the control plane's clock by NTP",
    doc: "The control plane's clock is behind the one by which the certificate was issued",
}
CsrMissing "csr_missing" "The enrollment has no signing request" {
    status: 400, owner: Some(Owner::PlatformOperator), next_action: "this control plane gives certificates: run an agent of this version",
    doc: "A control plane that issues certificates got an enrollment without a signing request",
}
CsrInvalid "csr_invalid" "The signing request cannot be used" {
    status: 400, owner: Some(Owner::PlatformOperator), next_action: "the agent makes the request by itself; start it again, and read its log where that does not help",
    doc: "The signing request cannot be read, or its sender does not hold the key",
}
CertificatesOff "certificates_off" "This control plane is for stand-ins and gives no certificates" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "start `gpuaas serve` without `--stand-ins`",
    doc: "A control plane that was started for simulated fleets has no authority",
}
CertificatesTooMany "certificates_too_many" "The node has too many certificates that are good" {
    status: 429, owner: Some(Owner::PlatformOperator), next_action: "wait until the older ones end, or `gpuaas node revoke-certificate NODE --reason WHY`",
    doc: "An agent that asks again and again gets no more than a few certificates",
}
TooManyRequests "too_many_requests" "The caller sends requests too fast" {
    status: 429, owner: None, next_action: "send fewer at once, and wait as long as the header `Retry-After` says; `gpuaas serve --limits operators.requests-per-second=N` allows more",
    doc: "A token, or a node, has used up the requests that it may send at once",
}
NoCertificate "no_certificate" "The node has no certificate that is good" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas node reimage NODE`: its agent enrolls with the next deployment",
    doc: "There is nothing to revoke",
}
AuthorityUnavailable "authority_unavailable" "The certificate authority does not answer" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "agents try again by themselves; see the log for what the authority said",
    doc: "The program of `--authority-command` failed or did not end in time",
}
AuthorityBroken "authority_broken" "The certificate authority gave what it was not asked for" {
    status: 500, owner: Some(Owner::PlatformOperator), next_action: "see the log; check the authority's profile for nodes",
    doc: "What the authority issued names another node or key, or counts for another time",
}
TokenWrongPurpose "token_wrong_purpose" "The credential is for something else" {
    status: 403, owner: None, next_action: "each credential opens its own addresses: operators, boot scripts, newcomers and agents have one each",
    doc: "A good credential was sent to an address that another kind of credential opens",
}
RoleMissing "role_missing" "The credential's role does not allow this" {
    status: 403, owner: None, next_action: "`gpuaas token whoami` shows what the credential may do; an administrator makes another, `gpuaas token add NAME --role ROLE --to FILE --reason WHY`",
    doc: "Each operation wants a role; docs/reference/access.md has the table",
}
SiteNotGranted "site_not_granted" "The credential's role does not hold there" {
    status: 403, owner: None, next_action: "lists want `--site SITE`, one of those that `gpuaas token whoami` shows; an administrator makes a token for another site, `gpuaas token add NAME --role ROLE@SITE --to FILE --reason WHY`",
    doc: "The role is given for some sites, and the operation concerns another one, or all of them",
}
TokenNotYetUsable "token_not_yet_usable" "The token cannot be used yet" {
    status: 403, owner: None, next_action: "try again: it becomes usable when MAAS reports the machine as deployed",
    doc: "A bootstrap began before the control plane saw the deployment end",
}
RunOver "run_over" "The run is over" {
    status: 409, owner: None, next_action: "`gpuaas run show RUN` says how it ended; begin another run for the node",
    doc: "The run ended, so it takes neither commands nor the callbacks of its node",
}
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
TaskNotFound "task_not_found" "There is no such task for this node" {
    status: 404, owner: None, next_action: "`gpuaas node tasks NODE` lists them",
    doc: "No task has this identifier, or it is for another node",
}
SlotMapMissing "slot_map_missing" "The node has no slot map" {
    status: 404, owner: None, next_action: "have its agent look: `gpuaas slice discover NODE --wait`",
    doc: "No agent of the node was asked for the devices that slices are made of since its system was deployed",
}
SlotMapChanged "slot_map_changed" "The slot map is another one by now" {
    status: 409, owner: None, next_action: "look at what changed, `gpuaas slice map NODE --diff`, and approve with the digest of the new map",
    doc: "An approval names the digest of the map that it is of, and the node's last discovery gave another one",
}
SlotBlocked "slot_blocked" "A slot cannot be approved" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "`gpuaas slice map NODE` says who makes each blocker go away; a slot whose blockers may be overridden is named with --slot",
    doc: "A slot or its host has a blocker that nobody can override, is in use, or has a blocker and was not named",
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
    status: 409, owner: None, next_action: "choose another name, or change the site: `gpuaas site set SITE --url URL`",
    doc: "Names of sites are unique",
}
PoolUnknown "pool_unknown" "MAAS has no resource pool of this name" {
    status: 400, owner: None, next_action: "correct the name, or make the pool in MAAS, `maas PROFILE resource-pools create name=POOL`, and put the site's machines into it, `maas PROFILE machine update SYSTEM_ID pool=POOL`",
    doc: "The site names a pool that its region does not have, so no machine would ever be the site's",
}
RegionTaken "region_taken" "Another site has machines of this region" {
    status: 409, owner: None, next_action: "use that site, `gpuaas site show SITE`, or give each of the two a resource pool of MAAS that no other has: `gpuaas site set SITE --pool POOL`, then `--pool` for the new one; `gpuaas site set SITE --url URL` gives a site another address of its region",
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
NotAMaas "not_a_maas" "What answers at this URL is not MAAS" {
    status: 502, owner: None, next_action: "give the base URL of a region, such as http://maas.example:5240/MAAS",
    doc: "Something answers at the URL of the site, and not as MAAS does",
}
MaasKeyRefused "maas_key_refused" "MAAS refuses the API key" {
    status: 422, owner: None, next_action: "print the key of an administrator: `maas apikey --username=NAME`",
    doc: "MAAS answered 401 to the API key",
}
MaasNotAdmin "maas_not_admin" "The API key is not an administrator's" {
    status: 422, owner: None, next_action: "print the key of an administrator: `maas apikey --username=NAME`",
    doc: "The key's user may not do what GPUaaS has to do",
}
MaasVersionUnsupported "maas_version_unsupported" "This version of MAAS is not supported" {
    status: 422, owner: Some(Owner::InfraOperator), next_action: "use a region with MAAS 3.4 to 3.7",
    doc: "GPUaaS is written for MAAS 3.4 to 3.7",
}
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
}
