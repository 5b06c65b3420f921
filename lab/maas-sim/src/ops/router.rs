//! From a request below the API root to its action: path, credentials, permission, faults.

use super::call::{Access, Action, Call, Resource};
use super::table;
use crate::auth::{Accounts, AuthFailure, User};
use crate::faults::{Fault, FaultKind, FaultTrigger};
use crate::region::Region;
use crate::stats::LogEntry;
use crate::wire::{FORM, HTML, Params, ResponseDelivery, SimRequest, SimResponse, TEXT_BARE};

/// Path of the API's root.
pub(crate) const API_ROOT: &str = "/MAAS/api/2.0/";
const GATEWAY_TIMEOUT: &str = "<html>\r\n<head><title>504 Gateway Time-out</title></head>\r\n<body>\r\n<center><h1>504 Gateway Time-out</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n";
const BEFORE: &[FaultKind] = &[
    FaultKind::Refused504,
    FaultKind::Unavailable503,
    FaultKind::ResetBefore,
    FaultKind::Answered,
    FaultKind::Ignored,
];
const AFTER: &[FaultKind] = &[FaultKind::Accepted504, FaultKind::ResetAfterAccept];

/// Answers a request whose path is `rest` below the API root; `path` is the whole of it.
pub(crate) fn route(
    region: &mut Region,
    request: &SimRequest,
    path: &str,
    rest: &str,
) -> SimResponse {
    let (rest, path_op) = match rest.rsplit_once('/') {
        Some((head, last)) if last.starts_with("op-") => {
            (format!("{head}/"), last.strip_prefix("op-"))
        }
        _ => (rest.to_owned(), None),
    };
    let Some((resource, parts)) = table::find(&rest) else {
        return SimResponse::text(404, format!("Unknown API endpoint: {path}."));
    };
    let user = match caller(region, resource, request) {
        Ok(user) => user,
        Err(response) => {
            let sent = (request.body.len(), response.body.len());
            region.stats.count_call("refused", sent.0, sent.1, response.status);
            return response;
        }
    };
    let query = Params::parse_query(&request.query);
    let content_type = request.content_type.as_deref();
    let mut form = Params::parse_form(content_type, &request.body);
    let op =
        query.get("op").or(path_op).or_else(|| form.get("op").filter(|_| request.method == "POST"));
    let op = op.map(str::to_owned);
    let action = match find_action(resource, &request.method, op.as_deref(), user.is_none()) {
        Ok(action) => action,
        Err(response) => return response,
    };
    if matches!(request.method.as_str(), "POST" | "PUT") {
        match Params::parse_data(content_type, &request.body) {
            // An operation reads its form only (docs/maas.md#parameters).
            Ok(all) if op.is_none() => form = all,
            Ok(_) => {}
            Err(response) => return response,
        }
    }
    if let Some(odd) = query.get("format").filter(|f| *f != "json") {
        let text = format!("Invalid output format specified '{odd}'.");
        return SimResponse::new(400, TEXT_BARE, text);
    }
    let call = Call {
        request,
        resource,
        resources: table::RESOURCES,
        parts,
        query,
        form,
        admin: user.as_ref().is_some_and(|u| u.admin),
        user: user.map(|u| u.name).unwrap_or_default(),
    };
    let shows = resource.actions.iter().find(|a| a.method == "GET" && a.op.is_none());
    run_action(region, action, shows, &call)
}

/// Who calls: `None` for nobody. What anybody may read asks for no credentials at all.
fn caller(
    region: &mut Region,
    resource: &Resource,
    request: &SimRequest,
) -> Result<Option<User>, SimResponse> {
    if resource.actions.iter().all(|a| a.access == Access::Anonymous) {
        return Ok(None);
    }
    match region.accounts.authenticate(request.authorization.as_deref(), region.wall) {
        Ok(index) => Ok(region.accounts.users.get(index).cloned()),
        Err(AuthFailure::Anonymous) => Ok(None),
        Err(AuthFailure::Refused(response)) => Err(response),
    }
}

fn find_action<'t>(
    resource: &'t Resource,
    method: &str,
    op: Option<&str>,
    anonymous: bool,
) -> Result<&'t Action, SimResponse> {
    let open = resource.actions.iter().any(|a| a.access == Access::Anonymous);
    if anonymous && !resource.with_anonymous && !open {
        return Err(Accounts::anonymous_refusal());
    }
    if !resource.actions.iter().any(|a| a.method == method) {
        let mut methods: Vec<&str> = resource.actions.iter().map(|a| a.method).collect();
        methods.sort_unstable();
        methods.dedup();
        return Err(SimResponse::new(405, HTML, "").header("Allow", methods.join(", ")));
    }
    let found = resource.actions.iter().find(|a| a.method == method && a.op == op);
    found.filter(|a| !anonymous || a.access == Access::Anonymous).ok_or_else(|| {
        let op = op.unwrap_or("None");
        SimResponse::text(400, format!("Unrecognised signature: method={method} op={op}"))
    })
}

fn check_access(action: &Action, call: &Call<'_>) -> Result<(), SimResponse> {
    match action.access {
        Access::Admin if !call.admin => {
            Err(SimResponse::text(403, "This method is reserved for admin users."))
        }
        Access::AdminEmptyBody if !call.admin => Err(SimResponse::forbidden()),
        _ => Ok(()),
    }
}

/// A fault of one of these kinds that meets the request on its way, before the region looks at it.
pub(crate) fn trigger_on_the_way(
    region: &mut Region,
    kinds: &[FaultKind],
    request: &SimRequest,
) -> Option<Fault> {
    let (resource, parts) = table::find(request.path.strip_prefix(API_ROOT)?)?;
    let query = Params::parse_query(&request.query);
    let form = Params::parse_form(request.content_type.as_deref(), &request.body);
    let op = query.get("op").or_else(|| form.get("op").filter(|_| request.method == "POST"));
    let op = op.map(str::to_owned);
    let action = find_action(resource, &request.method, op.as_deref(), false).ok()?;
    let (resources, user) = (table::RESOURCES, String::new());
    let call = Call { request, resource, resources, parts, query, form, user, admin: true };
    let (_, hostname, system_id, host) = call_target(region, &call);
    let at = FaultTrigger {
        endpoint: Some(action.label),
        hostname: hostname.as_deref(),
        system_id: system_id.as_deref(),
        host: host.as_deref(),
        scripts: &[],
    };
    region.faults.trigger(kinds, at)
}

/// Names under which a fault may be scoped to the machine of this call.
fn call_target(
    region: &Region,
    call: &Call<'_>,
) -> (Option<u32>, Option<String>, Option<String>, Option<String>) {
    let first = call.part(0);
    let key = region
        .key_of(first)
        .or_else(|| call.params().get("system_id").and_then(|id| region.key_of(id)));
    match key.and_then(|k| region.machine(k)) {
        Some(m) => (
            key,
            Some(m.hostname.clone()),
            Some(m.system_id.clone()),
            region.hosts.get(m.host).map(|h| h.name.clone()),
        ),
        None => (None, call.params().get("hostname").map(str::to_owned), None, None),
    }
}

/// Does what the call asks, unless a fault has it otherwise. `shows` reads the same resource.
fn run_action(
    region: &mut Region,
    action: &Action,
    shows: Option<&Action>,
    call: &Call<'_>,
) -> SimResponse {
    let (key, hostname, system_id, host) = call_target(region, call);
    let at = FaultTrigger {
        endpoint: Some(action.label),
        hostname: hostname.as_deref(),
        system_id: system_id.as_deref(),
        host: host.as_deref(),
        scripts: &[],
    };
    let arrived = region.now;
    let slow = region
        .faults
        .trigger(&[FaultKind::Slow], at)
        .map_or(0, |f| (f.seconds.unwrap_or(30.0) * 1e6) as i64);
    let before = region.faults.trigger(BEFORE, at);
    let after = if before.is_none() { region.faults.trigger(AFTER, at) } else { None };
    let mut response = match before {
        Some(fault) if fault.kind == FaultKind::Ignored => {
            let shown = (shows.unwrap_or(action).run)(region, call);
            shown.unwrap_or_else(|refusal| refusal)
        }
        Some(fault) => apply_wire_fault(SimResponse::text(200, ""), &fault),
        None => match check_access(action, call).and_then(|()| (action.run)(region, call)) {
            Ok(response) | Err(response) => response,
        },
    };
    if action.method != "GET" {
        let status = response.status;
        let entry = LogEntry::Call { at_us: arrived, endpoint: action.label, status };
        let target = host.or_else(|| created_host(region, key, &response));
        if let Some(name) = target {
            region.stats.machine_mut(&name).log.push(entry);
        }
    }
    if let Some(fault) = after {
        response = apply_wire_fault(response, &fault);
    }
    response = response.delayed(slow);
    if let Some(rest) = &mut response.rest {
        rest.label = action.label;
    }
    region.stats.count_call(
        action.label,
        call.request.body.len(),
        response.body.len(),
        response.status,
    );
    if !response.headers.iter().any(|(k, _)| *k == "Vary")
        && response.delivery == ResponseDelivery::Send
    {
        response.headers.push(("Vary", "Authorization, Cookie".to_owned()));
        response.headers.push(("X-Frame-Options", "DENY".to_owned()));
    }
    response
}

/// Name of the host that a create has just bound to a record.
fn created_host(region: &Region, key: Option<u32>, response: &SimResponse) -> Option<String> {
    let key = match key {
        Some(key) => key,
        None if response.status == 200 => *region.machines.keys().next_back()?,
        None => return None,
    };
    region.machine(key).and_then(|m| region.hosts.get(m.host)).map(|h| h.name.clone())
}

fn apply_wire_fault(response: SimResponse, fault: &Fault) -> SimResponse {
    let wait = (fault.seconds.unwrap_or(0.0) * 1e6) as i64;
    let mut out = match fault.kind {
        FaultKind::Unavailable503 => {
            let text = fault.message.clone().unwrap_or_else(|| {
                format!(
                    "Unable to connect to any rack controller {}; no connections available.",
                    crate::network::RACK
                )
            });
            SimResponse::text(503, text).header("Retry-After", "10")
        }
        FaultKind::Accepted504 | FaultKind::Refused504 => {
            SimResponse::new(504, "text/html", GATEWAY_TIMEOUT)
        }
        FaultKind::Answered => answered(fault),
        _ => {
            let mut lost = SimResponse::text(500, "");
            lost.delivery = ResponseDelivery::Reset;
            lost
        }
    };
    out.delay_us = response.delay_us + wait;
    out
}

/// What somebody answers in MAAS' place: a form's refusal as JSON, a page of a proxy, or text.
fn answered(fault: &Fault) -> SimResponse {
    let text = fault.message.clone().unwrap_or_default();
    let status = fault.status.unwrap_or(403);
    match text.chars().next() {
        Some('{') => SimResponse::new(status, "application/json", text),
        Some('<') => SimResponse::new(status, "text/html", text),
        _ => SimResponse::text(status, text),
    }
}

/// Does what `user` asks, without credentials and uncounted.
pub(crate) fn as_user(region: &mut Region, request: &SimRequest, user: &str) -> SimResponse {
    let rest = request.path.strip_prefix(API_ROOT).unwrap_or("");
    let Some((resource, parts)) = table::find(rest) else {
        return SimResponse::not_found("resource");
    };
    let form = Params::parse_form(Some(FORM), &request.body);
    let op = form.get("op").map(str::to_owned);
    let query = Params::parse_query(&request.query);
    match find_action(resource, &request.method, op.as_deref(), false) {
        Ok(action) => {
            let (resources, user) = (table::RESOURCES, user.to_owned());
            let call = Call { request, resource, resources, parts, query, form, user, admin: true };
            match (action.run)(region, &call) {
                Ok(response) | Err(response) => response,
            }
        }
        Err(response) => response,
    }
}
