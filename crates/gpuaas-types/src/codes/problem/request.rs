//! Refusals of requests and of bundles.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_requests {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
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
ApprovalNotFound "approval_not_found" "There is no such approval" {
    status: 404, owner: None, next_action: "`gpuaas approval list --all` shows those that are there", doc: "No approval has this identifier",
}
ApprovalDecided "approval_decided" "Somebody has decided" {
    status: 409, owner: None, next_action: "`gpuaas approval show ID` says who, and what came of it", doc: "An approval is decided once",
}
ApprovalExpired "approval_expired" "Nobody decided in time" {
    status: 409, owner: None, next_action: "have it asked again", doc: "An approval waits for a day",
}
ApprovalOutdated "approval_outdated" "What was agreed to is not what it was" {
    status: 409, owner: None, next_action: "have it asked again; what is asked then is as it is now",
    doc: "The node, the profile, the bundle, the agent or the policy that an approval is about has changed since it was asked, or the token that asked was taken back; nothing was done",
}
GateNotSkippable "gate_not_skippable" "A completion gate cannot be overridden" {
    status: 409, owner: None, next_action: "correct what the gate names, `gpuaas explain NODE` shows it, then `gpuaas run resume RUN --reason WHY`",
    doc: "A node is active only if all seven completion gates pass, so none of them can be left out",
}
InvalidFilter "invalid_filter" "The filter of the list cannot be understood" {
    status: 422, owner: None, next_action: "correct the filter at the character that the detail names; docs/reference/filters.md has the language and the fields of each list",
    doc: "The parameter `filter` is not written as filters are, or names what the list has no field for",
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
$($rows)* } };
}
