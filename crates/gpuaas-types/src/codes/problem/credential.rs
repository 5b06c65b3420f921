//! Problems with credentials.

/// Inserts the rows of this file into a table, before the rows that it is given.
macro_rules! rows_of_credentials {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
SecondPersonNeeded "second_person_needed" "A second approver is required" {
    status: 409, owner: None, next_action: "ask an approver other than the requester to run `gpuaas approval approve ID --reason WHY`; `gpuaas approval list` shows the pending approvals",
    doc: "The site's policy requires a second person for this; the request is stored as the approval that the detail names, and nothing was done",
}
ApprovalOwnRequest "approval_own_request" "Requesters cannot approve their own request" {
    status: 403, owner: None, next_action: "ask another person to decide; a token belongs to the person who created it, unless `gpuaas token add NAME --person PERSON --role approver --to FILE --reason WHY` assigns it to someone else",
    doc: "The credential is the requester's, or another credential of the same person",
}
PersonNotCreatable "person_not_creatable" "A token cannot create a second person" {
    status: 403, owner: None, next_action: "leave out `--person`, or ask the person to sign in at the identity provider with `gpuaas login`; without an identity provider, first turn off the policy with `gpuaas site set SITE --second-person off`, which itself requires a second person",
    doc: "The site's policy requires a second person. A token for another person with a role other than viewer would let one administrator act as both",
}
TokenMissing "token_missing" "Missing bearer token" {
    status: 401, owner: None, next_action: "send the header `Authorization: Bearer TOKEN`",
    doc: "The request has no Authorization header, or one without a bearer token",
}
TokenUnknown "token_unknown" "Unknown token" {
    status: 401, owner: None, next_action: "check that the token is complete and belongs to this control plane",
    doc: "No credential of this control plane has this value",
}
TokenUsed "token_used" "The token was already used" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node certificates NODE` to see who enrolled with it; `gpuaas node reimage NODE` issues a new token",
    doc: "An enrollment token works once; until the first heartbeat, it also works again for the key that used it",
}
TokenContested "token_contested" "Another key has already enrolled with the token" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node certificates NODE` to see who enrolled, and `gpuaas explain NODE` to see what to do about the run",
    doc: "Two keys tried to enroll with one token while its run was open. GPUaaS cannot tell which one is the node, so it parks the run and revokes every certificate of the node",
}
TokenOtherMachine "token_other_machine" "The token belongs to another machine" {
    status: 403, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas explain NODE` to see the machine that the token was issued for; if its board or network interfaces were replaced, `gpuaas node reimage NODE` makes MAAS inspect it again",
    doc: "The enrolling agent runs on a host that does not match the machine in MAAS: other MAC addresses, another system UUID, or a different TPM than before",
}
TokenExpired "token_expired" "The token has expired" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas run resume RUN --reason WHY` to make it valid again, or `gpuaas node reimage NODE` to issue a new one",
    doc: "The token's run is parked, and its node was silent for too long",
}
TokenRevoked "token_revoked" "The credential was revoked" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node reimage NODE` to issue a new one",
    doc: "The token was revoked, or a newer token replaced it",
}
TokenOfOtherRun "token_of_other_run" "The token is for another run" {
    status: 403, owner: Some(Owner::PlatformOperator), next_action: "use the token of the node's latest deployment; a token works only for the run that it was issued for",
    doc: "The request is for a different run than the one that the token was issued for",
}
CertificateMissing "certificate_missing" "The client sent no node certificate" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "restart gpuaas-node-agent.service on the host; agents connect with the certificate from their enrollment",
    doc: "A connection to the node listener has no client certificate",
}
CertificateWrongAuthority "certificate_wrong_authority" "The certificate was signed by another authority" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "point the agent at its own control plane, or run `gpuaas node reimage NODE`",
    doc: "The agent belongs to another control plane, or the authority was replaced",
}
CertificateUnknown "certificate_unknown" "No node of this control plane has this certificate" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node reimage NODE`, or onboard the host again if the node no longer exists",
    doc: "The node was removed, or the database was restored from a backup that is older than the enrollment",
}
CertificateRevoked "certificate_revoked" "The certificate was revoked" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node certificates NODE` to see who revoked it and why; `gpuaas node reimage NODE` issues a new one",
    doc: "An operator revoked the certificate",
}
CertificateSuperseded "certificate_superseded" "The certificate is from an earlier enrollment of the node" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "switch off the other system, or run `gpuaas node reimage NODE`",
    doc: "Another system has enrolled as this node since, or the system with this certificate was released",
}
CertificateExpired "certificate_expired" "The certificate has expired" {
    status: 401, owner: Some(Owner::PlatformOperator), next_action: "correct the clocks of both hosts, or run `gpuaas node reimage NODE`",
    doc: "The agent could not renew its certificate in time",
}
CertificateNotYetValid "certificate_not_yet_valid" "The certificate is not valid yet" {
    status: 401, owner: Some(Owner::InfraOperator), next_action: "synchronize the control plane's clock with NTP",
    doc: "The control plane's clock is behind the clock of the host that issued the certificate",
}
CsrMissing "csr_missing" "The enrollment has no certificate signing request" {
    status: 400, owner: Some(Owner::PlatformOperator), next_action: "run an agent of the control plane's version; this control plane issues certificates",
    doc: "This control plane issues certificates, and the enrollment has no signing request",
}
CsrInvalid "csr_invalid" "Invalid certificate signing request" {
    status: 400, owner: Some(Owner::PlatformOperator), next_action: "restart the agent, which creates the request; if that does not help, read its log",
    doc: "The signing request is malformed, or its sender does not hold the key",
}
CertificatesOff "certificates_off" "This control plane issues no certificates" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "start `gpuaas serve` without `--stand-ins`",
    doc: "A control plane for simulated fleets (`--stand-ins`) has no certificate authority",
}
CertificatesTooMany "certificates_too_many" "The node has too many valid certificates" {
    status: 429, owner: Some(Owner::PlatformOperator), next_action: "wait until the older ones expire, or run `gpuaas node revoke-certificate NODE --reason WHY`",
    doc: "An agent can have only a few valid certificates, no matter how often it asks",
}
TooManyRequests "too_many_requests" "Too many requests" {
    status: 429, owner: None, next_action: "send fewer requests at once, and wait as long as the header `Retry-After` says; `gpuaas serve --limits operators.requests-per-second=N` raises the limit",
    doc: "The token or node has sent as many requests as its limit allows",
}
NoCertificate "no_certificate" "The node has no valid certificate" {
    status: 409, owner: Some(Owner::PlatformOperator), next_action: "run `gpuaas node reimage NODE`; the agent enrolls with the next deployment",
    doc: "There is no certificate to revoke",
}
AuthorityUnavailable "authority_unavailable" "The certificate authority does not answer" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "read the log for the authority's error; agents retry automatically",
    doc: "The program of `--authority-command` failed or timed out",
}
AuthorityBroken "authority_broken" "The certificate authority issued a wrong certificate" {
    status: 500, owner: Some(Owner::PlatformOperator), next_action: "read the log, and check the authority's profile for nodes",
    doc: "The certificate names another node or key, or its validity period is not the requested one",
}
TokenWrongPurpose "token_wrong_purpose" "The credential is for another purpose" {
    status: 403, owner: None, next_action: "use the credential that this endpoint accepts: operators, boot scripts, enrolling hosts and agents each have their own",
    doc: "A valid credential was sent to an endpoint that needs another kind of credential",
}
RoleMissing "role_missing" "The credential's role does not allow this" {
    status: 403, owner: None, next_action: "run `gpuaas token whoami` to see what the credential may do; an administrator can create another one with `gpuaas token add NAME --role ROLE --to FILE --reason WHY`",
    doc: "Each operation requires a role; docs/reference/access.md lists them",
}
SiteNotGranted "site_not_granted" "The credential's role does not apply to this site" {
    status: 403, owner: None, next_action: "add `--site SITE` to a list, with a site that `gpuaas token whoami` shows; an administrator can create a token for another site with `gpuaas token add NAME --role ROLE@SITE --to FILE --reason WHY`",
    doc: "The role applies only to some sites, and the operation concerns another site or all sites",
}
SignInInvalid "sign_in_invalid" "Invalid sign-in" {
    status: 401, owner: None, next_action: "sign in again with `gpuaas login`; if the detail mentions an issuer or audience, an administrator must correct the options of `gpuaas serve --oidc-issuer URL --oidc-audience NAME`",
    doc: "A token from the identity provider is invalid: its signature, key, issuer, audience or one of its claims is wrong, or it is not valid yet",
}
SignInExpired "sign_in_expired" "The sign-in has expired" {
    status: 401, owner: None, next_action: "sign in again with `gpuaas login`",
    doc: "The token from the identity provider has expired; the command line renews it automatically while the sign-in can be refreshed",
}
SignInNoRole "sign_in_no_role" "The user has no role here" {
    status: 403, owner: None, next_action: "ask an administrator to map one of the user's values to a role with `gpuaas serve --oidc-role VALUE=ROLE`, or to give the user a mapped value at the identity provider; then run `gpuaas login`",
    doc: "`--oidc-role` maps none of the values in the claim of `--oidc-roles-claim`",
}
IssuerUnreachable "issuer_unreachable" "Cannot read the identity provider's keys" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "check that the identity provider is running and reachable from the control plane, whose log has the error; until then, use a token from `gpuaas token add NAME --role ROLE --to FILE --reason WHY` or the one in DATA/admin-token",
    doc: "The provider did not answer with keys before the last known keys expired",
}
TokenNotYetUsable "token_not_yet_usable" "The token is not valid yet" {
    status: 403, owner: None, next_action: "try again: the token becomes valid when MAAS reports the machine as deployed",
    doc: "A bootstrap started before the control plane saw the end of the deployment",
}
RunOver "run_over" "The run has ended" {
    status: 409, owner: None, next_action: "run `gpuaas run show RUN` to see how it ended, then start another run for the node",
    doc: "An ended run accepts neither commands nor callbacks from its node",
}
$($rows)* } };
}
