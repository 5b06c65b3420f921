//! Refusals of credentials.

/// The rows of this file, put between what it is given of a table and the rows after it.
macro_rules! rows_of_credentials {
    ($next:ident! { $($head:tt)* } $($rows:tt)*) => { $next! { $($head)*
SecondPersonNeeded "second_person_needed" "Another person has to agree" {
    status: 409, owner: None, next_action: "`gpuaas approval list` shows what waits; another person than the one who asked lets it go on with `gpuaas approval approve ID --reason WHY`",
    doc: "The site's policy wants another person's word for this; the request is kept as the approval that the detail names, and nothing was done",
}
ApprovalOwnRequest "approval_own_request" "Who asked cannot agree" {
    status: 403, owner: None, next_action: "have another person do it; a token stands for whoever had it made, unless `gpuaas token add NAME --person PERSON --role approver --to FILE --reason WHY` says whose it is",
    doc: "The credential is of the person who sent the request, or another one of that person's",
}
PersonNotCreatable "person_not_creatable" "A token cannot create a second person" {
    status: 403, owner: None, next_action: "leave `--person` out, or have the person sign in at the identity provider: `gpuaas login`; without one, turn the policy off first with `gpuaas site set SITE --second-person off`, which waits for a second person",
    doc: "The site's policy asks for a second person, and a token for another person with a role other than viewer would let one administrator be both",
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
    doc: "The agent that asks to enroll runs on a host that is not the machine as MAAS knows it: other MAC addresses, another system UUID, or another TPM than the node had before",
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
SignInInvalid "sign_in_invalid" "The sign-in cannot be taken" {
    status: 401, owner: None, next_action: "sign in again: `gpuaas login`; where the detail speaks of an issuer or an audience, an administrator corrects what `gpuaas serve --oidc-issuer URL --oidc-audience NAME` is started with",
    doc: "A token of the identity provider does not count: its signature, its key, its issuer, its audience or one of its claims is wrong, or it does not count yet",
}
SignInExpired "sign_in_expired" "The sign-in is over" {
    status: 401, owner: None, next_action: "sign in again: `gpuaas login`",
    doc: "The token of the identity provider has expired; the command line gets another one by itself as long as its sign-in can be refreshed",
}
SignInNoRole "sign_in_no_role" "Whoever signed in has no role here" {
    status: 403, owner: None, next_action: "an administrator gives one of the values a role, `gpuaas serve --oidc-role VALUE=ROLE`, or gives the person a value that has one at the identity provider; then `gpuaas login`",
    doc: "No value of the claim of `--oidc-roles-claim` is one that `--oidc-role` names",
}
IssuerUnreachable "issuer_unreachable" "The identity provider's keys cannot be read" {
    status: 503, owner: Some(Owner::PlatformOperator), next_action: "look whether the identity provider runs and is reached from the control plane, whose log has its words; a token of `gpuaas token add NAME --role ROLE --to FILE --reason WHY` is taken meanwhile, as is the one in DATA/admin-token",
    doc: "The provider did not answer, or not with keys, for as long as the last known keys count",
}
TokenNotYetUsable "token_not_yet_usable" "The token cannot be used yet" {
    status: 403, owner: None, next_action: "try again: it becomes usable when MAAS reports the machine as deployed",
    doc: "A bootstrap began before the control plane saw the deployment end",
}
RunOver "run_over" "The run is over" {
    status: 409, owner: None, next_action: "`gpuaas run show RUN` says how it ended; begin another run for the node",
    doc: "The run ended, so it takes neither commands nor the callbacks of its node",
}
$($rows)* } };
}
