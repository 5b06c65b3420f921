//! Answers as tables, JSON or YAML.

use std::fmt::Write as _;

use gpuaas_core::elapsed::elapsed_as_text;
use gpuaas_core::step_duration;
use gpuaas_types::Timestamp;
use gpuaas_types::api::{
    Connectivity, ConnectivityState, Lateness, List, NodeDrift, NodeProblem, NodeView, Owner,
    ParkAction, ProfilePreset, ProfileResource, RoceResource, RunView, SiteResource, StuckNode,
    TimelineEvent,
};
use gpuaas_types::audit::{AuditItem, TimelineLine};
use gpuaas_types::codes::NodeProblemCode;
use gpuaas_types::explain::Explanation;
use gpuaas_types::machine::HardwareView;
use gpuaas_types::spec::SecondPersonPolicy;
use serde::Serialize;

use crate::arguments::Format;
use crate::failure::Failure;
pub use crate::rendered::{pieces, text};
pub use crate::table::{table, table_dropping};
use crate::terminal::{Style, Terminal};
use crate::waterfall;

/// Prints `value` on stdout in `format`; `table` draws it for people.
///
/// # Errors
/// When stdout cannot be written.
pub fn print<T: Serialize>(
    terminal: &mut Terminal,
    format: Format,
    value: &T,
    table: impl FnOnce(&T, Style) -> String,
) -> Result<(), Failure> {
    let text = text(terminal.style(), format, value, table)?;
    terminal.data(&text)
}

/// One `name: value` line per row, values below each other; `-` for an empty value.
#[must_use]
pub fn fields(rows: &[(&str, String)]) -> String {
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        let value = if value.is_empty() { "-" } else { value };
        // Writing to a String cannot fail.
        writeln!(text, "{:<18}{value}", format!("{name}:")).ok();
        text
    })
}

/// The text, or `-` where there is none.
#[must_use]
pub fn or_dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

fn or_empty(at: Option<Timestamp>, draw: impl Fn(Timestamp) -> String) -> String {
    at.map(draw).unwrap_or_default()
}

/// Sites, one line each.
#[must_use]
pub fn sites(list: &List<SiteResource>, style: Style) -> String {
    table_dropping(
        style,
        &["NAME", "URL", "HEALTH", "MAAS", "USER"],
        &["USER", "MAAS"],
        list.items.iter().map(|site| {
            vec![
                site.spec.name.clone(),
                site.spec.url.clone(),
                or_dash(Some(&site.status.health)),
                or_dash(Some(&site.status.maas_version)),
                or_dash(Some(&site.status.maas_user)),
            ]
        }),
    )
}

/// One site.
#[must_use]
pub fn site(site: &SiteResource, style: Style) -> String {
    let vlan = site
        .spec
        .pxe_vlan
        .map_or_else(|| "any VLAN that MAAS serves".to_owned(), |v| v.to_string());
    let images = if site.spec.approved_images.is_empty() {
        "images synced by MAAS and approved uploads".to_owned()
    } else {
        site.spec.approved_images.join(", ")
    };
    let bandwidth = site.spec.image_bandwidth_mbit_per_second;
    let reference = site.spec.api_key_ref.as_ref();
    let key = reference.map_or_else(|| "sealed".to_owned(), ToString::to_string);
    fields(&[
        ("name", site.spec.name.clone()),
        ("id", site.id.to_string()),
        ("url", site.spec.url.clone()),
        ("api key", key),
        ("pool", site.spec.pool.clone().unwrap_or_else(|| "all machines of the region".to_owned())),
        ("pxe vlan", vlan),
        ("images", images),
        ("deploys at once", number(site.spec.batch_max_parallel, "", "no limit")),
        ("image bandwidth", number(bandwidth, " Mbit/s", "unknown")),
        ("idle poll", number(site.spec.idle_poll_seconds, " s", "5 s")),
        ("second person", second_person(&site.spec.second_person)),
        ("health", site.status.health.clone()),
        ("health detail", site.status.health_detail.clone()),
        ("maas version", site.status.maas_version.clone()),
        ("maas user", site.status.maas_user.clone()),
        ("maas answered", or_empty(site.status.answered_at, |at| style.exact_moment(at))),
        ("region", site.status.region.clone()),
        ("region's past", site.status.past.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("missed work", site.status.missed_work.to_string()),
        ("revision", site.revision.to_string()),
    ])
}

/// What waits for another person, as `gpuaas site set --second-person` takes it.
fn second_person(policy: &SecondPersonPolicy) -> String {
    let erasing = policy.erasing_above.map(|most| format!("erasing-above={most}"));
    let bundles = policy.bundle_approvals.then(|| "bundle-approvals".to_owned());
    let agents = policy.agent_updates.then(|| "agent-updates".to_owned());
    let images = policy.image_approvals.then(|| "image-approvals".to_owned());
    let all: Vec<String> = [erasing, bundles, agents, images].into_iter().flatten().collect();
    if all.is_empty() { "off".to_owned() } else { all.join(",") }
}

fn number(number: u32, unit: &str, zero: &str) -> String {
    if number == 0 { zero.to_owned() } else { format!("{number}{unit}") }
}

/// Profiles, one line each.
#[must_use]
pub fn profiles(list: &List<ProfileResource>, style: Style) -> String {
    table_dropping(
        style,
        &["NAME", "REVISION", "IMAGE", "BUNDLE"],
        &["REVISION"],
        list.items.iter().map(|profile| {
            vec![
                profile.status.name.clone(),
                profile.revision.to_string(),
                profile.spec.distro_series.clone(),
                or_dash(Some(&profile.spec.site_bootstrap_bundle_ref)),
            ]
        }),
    )
}

/// Presets, one line each.
#[must_use]
pub fn presets(list: &List<ProfilePreset>, style: Style) -> String {
    table(
        style,
        &["PRESET", "FOR"],
        list.items.iter().map(|preset| vec![preset.name.clone(), preset.description.clone()]),
    )
}

/// One profile with every field.
#[must_use]
pub fn profile(profile: &ProfileResource, _style: Style) -> String {
    let mut text = fields(&[
        ("name", profile.status.name.clone()),
        ("id", profile.id.to_string()),
        ("revision", profile.revision.to_string()),
        ("bundle digest", profile.status.site_bootstrap_bundle_digest.clone()),
    ]);
    if let Ok(serde_json::Value::Object(spec)) = serde_json::to_value(&profile.spec) {
        for (name, value) in spec {
            let written = |value: &serde_json::Value| {
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            };
            let value = match value.as_array() {
                Some(items) => items.iter().map(written).collect::<Vec<_>>().join(","),
                None => written(&value),
            };
            writeln!(text, "  {name}={value}").ok();
        }
    }
    text
}

/// Fabric addresses, one line each.
#[must_use]
pub fn roces(list: &List<RoceResource>, style: Style) -> String {
    table(
        style,
        &["SITE", "HOST", "INTERFACE", "SUBNET", "ADDRESS"],
        list.items.iter().map(|roce| {
            let spec = &roce.spec;
            [&spec.site, &spec.hostname, &spec.interface, &spec.subnet_cidr, &spec.ip_address]
                .map(Clone::clone)
                .to_vec()
        }),
    )
}

/// One fabric address.
#[must_use]
pub fn roce(roce: &RoceResource, style: Style) -> String {
    roces(&List::whole(vec![roce.clone()]), style)
}

/// Nodes, one line each.
#[must_use]
pub fn nodes(list: &List<NodeView>, style: Style) -> String {
    table_dropping(
        style,
        &["NODE", "SITE", "STATE", "STEP", "RUN", "MAAS SAYS", "WAITING FOR"],
        &["RUN", "MAAS SAYS", "SITE", "STEP"],
        list.items.iter().map(|node| {
            let run = node.run.as_ref();
            vec![
                node.hostname.clone(),
                node.site.clone(),
                node.state.to_string(),
                or_dash(run.map(|run| run.step.as_str())),
                or_dash(run.map(|run| run.status.as_str())),
                or_dash(node.maas.status_name.as_deref()),
                or_dash(attention(node)),
            ]
        }),
    )
}

/// Nodes that do not go on as expected, one line each.
#[must_use]
pub fn stuck(list: &List<StuckNode>, style: Style) -> String {
    table_dropping(
        style,
        &["NODE", "MARK", "STEP", "SINCE", "EXPECTED BY", "OWNER", "WAITING FOR", "NEXT ACTION"],
        &["EXPECTED BY", "SINCE", "OWNER", "STEP"],
        list.items.iter().map(|node| {
            vec![
                node.node.clone(),
                node.mark.map_or("problem", mark).to_owned(),
                or_dash(node.step.map(gpuaas_types::Step::as_str)),
                style.moment(node.since),
                or_dash(node.expected_by.map(|at| style.moment(at)).as_deref()),
                owner(node.owner).to_owned(),
                with_number_of_others(&node.waiting_for, node.problems.len()),
                node.next_action.clone(),
            ]
        }),
    )
}

/// The first of a node's problems, and how many others there are.
fn with_number_of_others(first: &str, all: usize) -> String {
    match all.saturating_sub(1) {
        0 => first.to_owned(),
        more => format!("{first} (and {more} more)"),
    }
}

/// Differences between nodes and their machines, one line each.
#[must_use]
pub fn drift(list: &List<NodeDrift>, style: Style) -> String {
    table_dropping(
        style,
        &["NODE", "KIND", "FOUND", "REMEMBERED", "ACTION", "SINCE", "NEXT ACTION"],
        &["SINCE", "ACTION", "REMEMBERED"],
        list.items.iter().map(|item| {
            vec![
                item.node.clone(),
                item.drift.kind.to_string(),
                item.drift.found.clone(),
                item.drift.expected.clone(),
                item.drift.action.to_string(),
                style.moment(item.drift.since),
                item.next_action.clone(),
            ]
        }),
    )
}

const fn mark(mark: Lateness) -> &'static str {
    match mark {
        Lateness::Slow => "slow",
        Lateness::Stuck => "stuck",
        Lateness::Parked => "parked",
    }
}

/// What a reader should know first: why it stopped, else what it waits for, else what is wrong.
#[must_use]
pub fn attention(node: &NodeView) -> Option<&str> {
    let park = node.park.as_ref().map(|park| park.text.as_str());
    let problem = node.problems.first().map(|problem| problem.text.as_str());
    park.or(node.waiting_for.as_deref()).or(problem)
}

/// One node with its history.
#[must_use]
pub fn node(node: &NodeView, style: Style) -> String {
    let mut text = summary(node, style);
    if !node.timeline.is_empty() {
        text.push('\n');
        if node.timeline_is_cut {
            writeln!(text, "Earlier events: `gpuaas node timeline {}`", node.hostname).ok();
        }
        text.push_str(&timeline(&node.timeline, "%H:%M:%S%.3f", style));
    }
    text
}

/// A page of a node's history.
#[must_use]
pub fn timeline_page(list: &List<TimelineLine>, style: Style) -> String {
    timeline(list.items.iter().map(|line| &line.event), "%Y-%m-%d %H:%M:%S%.3f", style)
}

fn timeline<'e>(
    events: impl IntoIterator<Item = &'e TimelineEvent>,
    moment: &str,
    style: Style,
) -> String {
    let rows = events.into_iter().map(|event| {
        vec![
            event.at.to_chrono().format(moment).to_string(),
            source(event.source).to_owned(),
            or_dash(event.step.map(gpuaas_types::Step::as_str)),
            event.text.clone(),
        ]
    });
    table_dropping(style, &["AT", "SOURCE", "STEP", "WHAT"], &["SOURCE", "STEP"], rows)
}

/// Entries of the audit log, one line each.
#[must_use]
pub fn audit(list: &List<AuditItem>, style: Style) -> String {
    let rows = list.items.iter().map(|entry| {
        vec![
            entry.at.to_chrono().format("%Y-%m-%d %H:%M:%S").to_string(),
            entry.actor.clone(),
            entry.action.clone(),
            entry.hostname.clone().unwrap_or_else(|| entry.subject.clone()),
            or_dash(entry.site.as_deref()),
            facts(&entry.detail),
        ]
    });
    let header = ["AT", "ACTOR", "ACTION", "SUBJECT", "SITE", "DETAIL"];
    table_dropping(style, &header, &["DETAIL", "SITE"], rows)
}

/// The members of an object as `name=value`.
fn facts(detail: &serde_json::Value) -> String {
    let serde_json::Value::Object(members) = detail else { return "-".to_owned() };
    let member = |(name, value): (&String, &serde_json::Value)| match value {
        serde_json::Value::String(text) => format!("{name}={text}"),
        value => format!("{name}={value}"),
    };
    let text: Vec<String> =
        members.iter().filter(|(_, value)| !value.is_null()).map(member).collect();
    or_dash(Some(&text.join(" ")))
}

const fn source(source: gpuaas_types::api::Source) -> &'static str {
    use gpuaas_types::api::Source;
    match source {
        Source::ControlPlane => "gpuaas",
        Source::Maas => "maas",
        Source::Bootstrap => "bootstrap",
        Source::Agent => "agent",
        Source::Operator => "operator",
    }
}

/// What a node waits for, in sentences that say whose view they are, and what was seen.
#[must_use]
pub fn explanation(explanation: &Explanation, _style: Style) -> String {
    let mut text = explanation.text.join("\n");
    text.push('\n');
    if let Some(who) = explanation.owner {
        writeln!(text, "Owner: {}.", owner(who)).ok();
    }
    if !explanation.evidence.is_empty() {
        text.push_str("Evidence:\n");
    }
    for line in &explanation.evidence {
        writeln!(text, "  - {line}").ok();
    }
    if !explanation.actions.is_empty() {
        text.push_str("Commands:\n");
        text.push_str(&commands(&explanation.actions));
    }
    text
}

/// Commands, one a line, each below what it needs.
fn commands(actions: &[ParkAction]) -> String {
    let mut text = String::new();
    for ParkAction { command, needs } in actions {
        if !needs.is_empty() {
            writeln!(text, "  # {needs}").ok();
        }
        writeln!(text, "  {command}").ok();
    }
    text
}

fn summary(node: &NodeView, style: Style) -> String {
    let run = node.run.as_ref().map_or_else(
        || "no run".to_owned(),
        |run| format!("{} {} at {} (run {})", run.kind, run.status, run.step, run.id),
    );
    let maas = match (&node.maas.system_id, &node.maas.status_name) {
        (Some(id), Some(status)) => {
            let age = node.maas.observed_seconds_ago.unwrap_or_default();
            format!("{status}, {} ago (machine {id})", elapsed_as_text(age))
        }
        (Some(id), None) => format!("not read yet (machine {id})"),
        _ => "no machine is bound yet".to_owned(),
    };
    let agent = agent(node, style);
    let mut text = fields(&[
        ("node", format!("{} (site {}, profile {})", node.hostname, node.site, node.profile)),
        ("machine", machine(&node.hardware)),
        ("state", node.state.to_string()),
        ("run", run),
        ("MAAS", maas),
        ("agent", agent),
    ]);
    for gate in &node.gates {
        text.push_str(&fields(&[("gate", gate.text.clone())]));
    }
    if let Some(wait) = &node.wait {
        let at = |at: Option<Timestamp>| or_empty(at, |at| style.exact_moment(at));
        let from = wait.expected_from.filter(|_| wait.expected_by.is_some());
        let from = from
            .map(|from| format!(" ({})", step_duration::basis_as_text(from)))
            .unwrap_or_default();
        let expected = at(wait.expected_by) + &from;
        text.push_str(&fields(&[
            ("waiting for", format!("{} ({})", wait.text, wait.code)),
            ("since", style.exact_moment(wait.since)),
            ("expected by", expected),
            ("deadline", at(wait.deadline)),
        ]));
    }
    if let Some(park) = &node.park {
        text.push_str(&parked(park, style));
    }
    let of_run = |problem: &&NodeProblem| {
        problem.code == NodeProblemCode::RunParked || problem.code == NodeProblemCode::RunLate
    };
    for problem in node.problems.iter().filter(|problem| !of_run(problem)) {
        text.push_str(&problem_fields(problem, style));
    }
    text
}

/// By what the machine is known and switched.
fn machine(hardware: &HardwareView) -> String {
    let HardwareView { mac_addresses, bmc_address, power_type, .. } = hardware;
    let macs = if mac_addresses.is_empty() {
        "no MAC address known".to_owned()
    } else {
        format!("MAC {}", mac_addresses.join(", "))
    };
    let bmc = bmc_address.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
    format!("{macs}; power {power_type}{bmc}")
}

/// Whether the agent is heard, and since when.
fn agent(node: &NodeView, style: Style) -> String {
    let Some(heartbeat_at) = node.heartbeat_at else { return "no heartbeat yet".to_owned() };
    let Connectivity { state, since, .. } = node.connectivity;
    let since = or_empty(since, |at| format!(" since {}", style.exact_moment(at)));
    let heartbeat_at = style.moment(heartbeat_at);
    match state {
        ConnectivityState::Never => format!("heartbeat {heartbeat_at}"),
        _ => format!("heartbeat {heartbeat_at} ({state}{since})"),
    }
}

/// A problem of a node with its age, its owner and its commands.
fn problem_fields(problem: &NodeProblem, style: Style) -> String {
    let age = elapsed_as_text(problem.observed_seconds_ago);
    let old = if problem.stale { ", too old to rely on" } else { "" };
    let mut text = fields(&[
        ("problem", format!("{} ({})", problem.text, problem.code)),
        ("since", format!("{}; last seen {age} ago{old}", style.exact_moment(problem.since))),
        ("owner", owner(problem.owner).to_owned()),
        ("next action", problem.next_action.clone()),
    ]);
    text.push_str(&commands(&problem.actions));
    text
}

fn parked(park: &gpuaas_types::api::Park, style: Style) -> String {
    let mut text = fields(&[
        ("parked", format!("{} ({})", park.text, park.code)),
        ("since", style.exact_moment(park.since)),
        ("owner", owner(park.owner).to_owned()),
    ]);
    for line in &park.evidence {
        writeln!(text, "  - {line}").ok();
    }
    if let Some(at) = park.looks_again_at {
        let at = style.exact_moment(at);
        text.push_str(&fields(&[("next check", format!("automatic, {at}"))]));
    }
    text.push_str(&fields(&[("next action", park.next_action.clone())]));
    text.push_str(&commands(&park.actions));
    text
}

const fn owner(owner: Owner) -> &'static str {
    match owner {
        Owner::InfraOperator => "the operator of MAAS and the racks",
        Owner::PlatformOperator => "the GPUaaS operator",
        Owner::BundleOwner => "the owner of the site bootstrap bundle",
    }
}

/// One run: waterfall, what was tried, what was checked.
#[must_use]
pub fn run(run: &RunView, style: Style) -> String {
    let mut text = waterfall::draw(run, style);
    if let Some(wait) = &run.wait {
        writeln!(text, "\nwaiting for {} ({})", wait.text, wait.code).ok();
    }
    if let Some(park) = &run.park {
        text.push('\n');
        text.push_str(&parked(park, style));
    }
    if !run.attempts.is_empty() {
        let rows = run.attempts.iter().map(|attempt| {
            vec![
                attempt.effect.to_string(),
                attempt.number.to_string(),
                attempt.step.to_string(),
                attempt.outcome.clone().unwrap_or_else(|| "in flight".to_owned()),
                attempt.detail.clone(),
            ]
        });
        text.push('\n');
        text.push_str(&table_dropping(
            style,
            &["EFFECT", "TRY", "STEP", "OUTCOME", "ANSWER"],
            &["STEP", "TRY"],
            rows,
        ));
    }
    if !run.checks.is_empty() {
        let rows = run.checks.iter().map(|check| {
            vec![check.name.clone(), check.verdict().to_owned(), check.evidence.clone()]
        });
        text.push('\n');
        text.push_str(&table(style, &["CHECK", "RESULT", "EVIDENCE"], rows));
    }
    text
}

#[cfg(test)]
mod tests;
