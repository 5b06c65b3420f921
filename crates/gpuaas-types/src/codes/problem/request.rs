//! Problems with requests and bundles.

/// Inserts the rows of this file into a table, before the rows that it is given.
macro_rules! rows_of_requests {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
MalformedJson "malformed_json" "The request body is not valid JSON" {
    status: 400, owner: None, next_action: "send one JSON object, as the endpoint's documentation shows",
    doc: "The body is not a JSON value, or the connection closed before the body was complete",
}
UnknownField "unknown_field" "Unknown field in the request" {
    status: 400, owner: None, next_action: "correct the field that `errors` names; the message may suggest the right name",
    doc: "Unknown fields are refused, so that a misspelled field is not silently ignored",
}
MissingField "missing_field" "A required field is missing" {
    status: 400, owner: None, next_action: "add the field that `errors` names", doc: "A field without a default was left out",
}
InvalidField "invalid_field" "Invalid field in the request" {
    status: 400, owner: None, next_action: "correct the field that `errors` names; the message says what the field accepts",
    doc: "A value has the wrong type, format or range, or conflicts with another field",
}
InvalidQuery "invalid_query" "Invalid query parameter" {
    status: 400, owner: None, next_action: "leave out the parameters and values that this endpoint does not accept",
    doc: "A query parameter is unknown, or its value is not one that it accepts",
}
ApprovalNotFound "approval_not_found" "Approval not found" {
    status: 404, owner: None, next_action: "run `gpuaas approval list --all` to see all approvals", doc: "No approval has this identifier",
}
ApprovalDecided "approval_decided" "The approval has already been decided" {
    status: 409, owner: None, next_action: "run `gpuaas approval show ID` to see who decided and with what result", doc: "An approval can be decided only once",
}
ApprovalExpired "approval_expired" "The approval has expired" {
    status: 409, owner: None, next_action: "send the request again", doc: "A pending approval expires after a day",
}
ApprovalOutdated "approval_outdated" "The approval is outdated" {
    status: 409, owner: None, next_action: "send the request again; it will use the current revision",
    doc: "The node, profile, bundle, agent or policy of the approval has changed since the request, or the requester's token was revoked; nothing was done",
}
GateNotSkippable "gate_not_skippable" "Completion gates cannot be overridden" {
    status: 409, owner: None, next_action: "fix the cause that `gpuaas explain NODE` shows for the gate, then run `gpuaas run resume RUN --reason WHY`",
    doc: "A node becomes active only if all seven completion gates pass, so none of them can be skipped",
}
InvalidFilter "invalid_filter" "Invalid filter" {
    status: 422, owner: None, next_action: "correct the filter at the character that the detail names; docs/reference/filters.md describes the syntax and the fields of each list",
    doc: "The parameter `filter` has a syntax error, or names a field that the list does not have",
}
InvalidIdempotencyKey "invalid_idempotency_key" "Invalid idempotency key" {
    status: 400, owner: None, next_action: "send 1 to 200 printable ASCII characters, such as a UUID",
    doc: "The header `Idempotency-Key` is empty, too long or not printable",
}
BundleNotFound "bundle_not_found" "Bundle not found" {
    status: 400, owner: None, next_action: "run `gpuaas bundle list` to see the bundles; `gpuaas bundle publish DIR` adds one",
    doc: "No bundle has this name and version, or this digest",
}
BundleRefInvalid "bundle_ref_invalid" "Invalid bundle reference" {
    status: 400, owner: None, next_action: "write NAME@VERSION or the digest", doc: "The reference is neither NAME@VERSION nor a digest",
}
BundleMalformed "bundle_malformed" "Not a bundle archive" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "run `gpuaas bundle build DIR` to create the archive from a folder",
    doc: "The content is not a gzipped tar archive of a bundle",
}
BundleEntryRefused "bundle_entry_refused" "The archive contains a forbidden entry" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "run `gpuaas bundle lint DIR` to find the entry",
    doc: "The archive contains a link, a device, a path that points outside it, or a similar entry",
}
BundleTooLarge "bundle_too_large" "The bundle is too large" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "leave out what the phases do not need, and fetch large files from an artifact store",
    doc: "The archive or its unpacked content exceeds the size limit for bundles",
}
BundleManifestInvalid "bundle_manifest_invalid" "Invalid bundle manifest" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "run `gpuaas bundle lint DIR` to see what is wrong with the manifest",
    doc: "`bundle.yaml` does not match the schema, or names something that is not in the archive",
}
BundleInvalid "bundle_invalid" "Invalid bundle" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "run `gpuaas bundle lint DIR` to see what is wrong with the folder",
    doc: "The bundle breaks a rule for bundles",
}
BundleCircle "bundle_circle" "Circular bundle requirements" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "remove one of the requirements that the detail names",
    doc: "Bundles require each other in a cycle, so none of them could run first",
}
BundleInputUnknown "bundle_input_unknown" "The bundle has no such input" {
    status: 422, owner: None, next_action: "run `gpuaas bundle show BUNDLE` to see its inputs",
    doc: "A value is set for an input that the bundle does not declare",
}
BundleInputMissing "bundle_input_missing" "A required bundle input has no value" {
    status: 422, owner: None, next_action: "set it in the profile with `gpuaas profile set PROFILE --input INPUT=VALUE`, or in the site's `bundle_inputs`",
    doc: "The input has no default, and no value is set",
}
BundleInputInvalid "bundle_input_invalid" "Invalid value for a bundle input" {
    status: 422, owner: None, next_action: "run `gpuaas bundle show BUNDLE` to see what the input accepts",
    doc: "The value has the wrong type or format for the input",
}
BundleInputNotPassedOn "bundle_input_not_passed_on" "The requiring bundle sets this input" {
    status: 422, owner: None, next_action: "remove the value with `gpuaas site set SITE --host-input HOST:BUNDLE.INPUT=`; `gpuaas bundle show BUNDLE` lists the inputs of the requiring bundle",
    doc: "A host's value is for an input of a required bundle, but the requiring bundle does not pass this input on",
}
BundleInputNotOfOneHost "bundle_input_not_of_one_host" "Each host needs its own value for this input" {
    status: 422, owner: None, next_action: "set it for one host at a time with `gpuaas site set SITE --host-input HOST:BUNDLE.INPUT=VALUE`",
    doc: "A site or profile sets one value for an input that no two hosts can share, such as an address",
}
BundleInputShared "bundle_input_shared" "Two hosts would have the same value" {
    status: 422, owner: None, next_action: "set a different value for one of the hosts with `gpuaas site set SITE --host-input HOST:BUNDLE.INPUT=VALUE`",
    doc: "Each host needs its own value, but the values of two hosts, or values that their bundle derives from them, are the same",
}
BundleSecretMissing "bundle_secret_missing" "A secret of the bundle is not set" {
    status: 422, owner: None, next_action: "run `gpuaas site secret set SITE BUNDLE INPUT --file FILE` or `gpuaas profile secret set PROFILE BUNDLE INPUT --file FILE`; `--file -` reads stdin",
    doc: "A secret input has no value for the site or the profile",
}
BundleSecretInOpen "bundle_secret_in_open" "A secret cannot be set where its value is visible" {
    status: 422, owner: None, next_action: "set it with `gpuaas site secret set SITE BUNDLE INPUT --file FILE`",
    doc: "A secret input was set where its value can be read back",
}
BundleInputNotSecret "bundle_input_not_secret" "The bundle input is not a secret" {
    status: 422, owner: None, next_action: "set it in the profile with `gpuaas profile set PROFILE --input INPUT=VALUE`",
    doc: "A value was set as a secret, but the manifest does not mark the input as one",
}
BundleSecretGivenAway "bundle_secret_given_away" "The bundle would expose a secret" {
    status: 422, owner: Some(Owner::BundleOwner), next_action: "remove the secret from the text that the detail names",
    doc: "The bundle uses a secret input in a place that the host or the control plane shows",
}
SignatureMalformed "signature_malformed" "Malformed signature" {
    status: 422, owner: None, next_action: "sign the bundle again with `gpuaas bundle build DIR --key FILE`",
    doc: "The envelope of the signature cannot be parsed",
}
SignatureKeyUnknown "signature_key_unknown" "No trusted signature" {
    status: 422, owner: Some(Owner::PlatformOperator), next_action: "trust the key with `gpuaas bundle trust KEY --name NAME`, or sign with a key that `gpuaas bundle keys` lists",
    doc: "The signature was made with a key that this control plane does not trust",
}
SignatureForged "signature_forged" "The signature does not match its key" {
    status: 422, owner: None, next_action: "sign the bundle again with the key that the signature names",
    doc: "The signature cannot be verified with the trusted key that it names",
}
SignatureKeyRetired "signature_key_retired" "The signing key has been revoked" {
    status: 422, owner: Some(Owner::PlatformOperator), next_action: "sign with a key that `gpuaas bundle keys` lists",
    doc: "The control plane no longer trusts the key that made the signature",
}
SignatureExpired "signature_expired" "The signature has expired" {
    status: 422, owner: None, next_action: "sign the bundle again", doc: "The expiry time of the signature has passed",
}
SignatureNotYetValid "signature_not_yet_valid" "The signature is dated in the future" {
    status: 422, owner: Some(Owner::InfraOperator), next_action: "synchronize the clocks of the signer and the control plane with NTP",
    doc: "The signature's date is later than the current time",
}
BundleDigestMismatch "bundle_digest_mismatch" "The signature is for different content" {
    status: 422, owner: None, next_action: "sign this content, or send the content that was signed", doc: "The digest in the signature differs from the digest of the content",
}
BundleNameMismatch "bundle_name_mismatch" "The signature is for another bundle" {
    status: 422, owner: None, next_action: "sign this bundle, or send the one that was signed",
    doc: "The signature names another bundle or another version",
}
BundleVersionTaken "bundle_version_taken" "This version is already published with different content" {
    status: 409, owner: None, next_action: "publish the bundle as a new version; a published version never changes",
    doc: "Different content was published under this name and version",
}
BundleNotApproved "bundle_not_approved" "The bundle is not approved for the site" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas bundle approve BUNDLE --site SITE --reason WHY`",
    doc: "A bundle runs on a site's hosts only after an operator has approved it for that site",
}
AgentSourceForeign "agent_source_foreign" "Agents can come only from the control plane's own store" {
    status: 422, owner: None, next_action: "publish a bundle of kind node_agent with `gpuaas bundle publish DIR`, approve it with `gpuaas bundle approve BUNDLE --site SITE --reason WHY`, then run `gpuaas node task NODE agent-update --bundle BUNDLE`",
    doc: "The update names a URL, digest or version instead of a published and approved agent",
}
TokenNameTaken "token_name_taken" "A token with this name already exists" {
    status: 409, owner: None, next_action: "choose another name, or revoke the existing token with `gpuaas token revoke NAME --reason WHY`",
    doc: "Names of active tokens are unique, because the audit log shows them",
}
AgentDowngrade "agent_downgrade" "An agent cannot be replaced by an older version" {
    status: 409, owner: None, next_action: "publish a newer agent; `gpuaas bundle list` shows the agents",
    doc: "The version is lower than the one that the node's agent reports, and might bring back a fixed fault",
}
$($rows)* } };
}
