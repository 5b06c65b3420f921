//! `docs/reference` and `docs/troubleshooting.md`: the pages that are written from the tables of this
//! crate.
//!
//! The pages are checked in, and [`pages_are_current`] fails where one of them is not what its
//! table says. `cargo test -p gpuaas-types write_reference -- --ignored`
//! writes all of them.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::access::{OPERATIONS, Role};
use crate::api::Owner;
use crate::audit_action::AUDIT_ACTIONS;
use crate::codes::{
    COMMANDS, DOCTOR_CHECKS, NODE_PROBLEMS, PARKS, PROBLEMS, SLOT_BLOCKERS, TIMELINE, WAITS,
};
use crate::filter::{FilterFieldKind, FilterLimits, FilterList};
use crate::limits::LIMITS;
use crate::metrics::METRICS;
use crate::secret_kinds::SECRETS;
use crate::spec::ProfileSpec;
use crate::steps::{CancelPolicy, KINDS, ROWS, StepOrder};
use serde_json::Value;

const COMMAND: &str = "cargo test -p gpuaas-types write_reference -- --ignored";

type Page = (&'static str, String);

fn pages() -> [Page; 16] {
    [
        ("reference/access.md", access()),
        ("reference/filters.md", filters()),
        ("reference/limits.md", limits()),
        ("reference/secrets.md", secrets()),
        ("reference/audit-actions.md", audit_actions()),
        ("reference/metrics.md", metrics()),
        ("reference/command-failures.md", command_failures()),
        ("reference/problems.md", problems()),
        ("reference/waits-and-parks.md", waits_and_parks()),
        ("reference/node-problems.md", node_problems()),
        ("reference/slot-blockers.md", slot_blockers()),
        ("reference/doctor.md", doctor_checks()),
        ("reference/timeline.md", timeline()),
        ("reference/steps.md", steps()),
        ("reference/profile-fields.md", profile_fields()),
        ("troubleshooting.md", troubleshooting()),
    ]
}

fn path(page: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)
}

#[test]
fn pages_are_current() {
    for (page, text) in pages() {
        let written = std::fs::read_to_string(path(page)).unwrap_or_default();
        assert!(written == text, "docs/{page} is stale; write it with: {COMMAND}");
    }
}

#[test]
#[ignore = "writes docs/reference and docs/troubleshooting.md"]
fn write_reference() {
    for (page, text) in pages() {
        std::fs::write(path(page), text).unwrap();
    }
}

fn header(title: &str, about: &str) -> String {
    format!("# {title}\n\n{about}\n\nWritten from the code by `{COMMAND}`.\n")
}

fn access() -> String {
    let about = "What each operation of the admin API asks of the credential that is sent with it: a role, \
                 and where that role has to hold. An operation that is not in the table is nobody's. \
                 `gpuaas token add` makes credentials; the first one, which `gpuaas serve` writes to a \
                 file, is an administrator's.";
    let mut page = header("Who may do what", about);
    let names: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
    let line: String = Role::ALL.iter().map(|_| "---|").collect();
    write!(page, "\n| operation | {} | where |\n|---|{line}---|\n", names.join(" | ")).unwrap();
    for row in OPERATIONS {
        let may = |role: &Role| if role.includes(row.role) { "yes" } else { "" };
        let may: Vec<&str> = Role::ALL.iter().map(may).collect();
        let (method, path, scope) = (row.method, row.path, row.scope.text());
        writeln!(page, "| `{method} {path}` | {} | {scope} |", may.join(" | ")).unwrap();
    }
    page
}

fn secrets() -> String {
    let about = "Where each kind of secret may be found. Tests plant one of each kind and search \
                 responses, responses that are replayed, the database, a backup, the log, traces, and the \
                 user-data that MAAS keeps. What a program reads from a file of its host alone is stored \
                 nowhere else. No secret is in the audit log, in events, metrics or logs; `gpuaas serve` \
                 and the agent write no core dumps. Secrets of every kind are in the memory of the \
                 processes that use them.";
    let mut page = header("Where secrets are", about);
    page.push_str("\n| secret | database and backup | responses | elsewhere | in the database until |\n|---|---|---|---|---|\n");
    for row in SECRETS {
        let (kind, stored, shown) = (row.kind, row.stored, row.shown);
        writeln!(page, "| {kind} | {stored} | {shown} | {} | {} |", row.elsewhere, row.until)
            .unwrap();
    }
    page
}

fn audit_actions() -> String {
    let about = "Every action of the audit log. Its spelling does not change: programs may compare it, and \
                 `gpuaas audit list --filter action=run.resume` finds it. A refusal changed nothing; its \
                 entry has the code as the result. An entry of an earlier version keeps the spelling that \
                 it was written with.";
    let mut page = header("Actions of the audit log", about);
    page.push_str("\n| action | what was done | refusal |\n|---|---|---|\n");
    for row in AUDIT_ACTIONS {
        let refusal = if row.action.is_refusal() { "yes" } else { "" };
        writeln!(page, "| `{}` | {} | {refusal} |", row.action, row.about).unwrap();
    }
    page
}

fn filters() -> String {
    let FilterLimits { characters, values, depth } = FilterLimits::ALLOWED;
    let about = format!(
        "What `--filter` of the commands that list takes, and the parameter `filter` of the API, such as \
         `gpuaas node list --filter 'state=active site=s1,s2 updated>2026-11-01 hostname~gpu-'`: all \
         four have to hold. The database looks before it cuts pages, so a page has items as long as \
         there are some.\n\n\
         - `FIELD=VALUE` and `FIELD!=VALUE` compare the whole; `FIELD~VALUE` and `FIELD!~VALUE` look \
         for a part of a text, in the letters as they are written; `<`, `<=`, `>` and `>=` are for \
         moments and numbers.\n\
         - Values with commas between them are alternatives: `state=active,offline`; `!=` and `!~` hold \
         where none of them does.\n\
         - Conditions with a space between them have to hold all; `or` lets one do, `not` turns the \
         next one round, and parentheses say what belongs together: `site=s1 (state=offline or \
         run_status=parked)`.\n\
         - A value with a space, a comma, a parenthesis or one of `= < > ~ !` stands in double quotes, \
         within which `\\\"` and `\\\\` are the two characters. A text that is not there is `\"\"`; \
         a moment or a number that is not there is neither more nor less than anything.\n\
         - A moment is RFC 3339, `2026-11-23T14:05:00Z`, or a date, which is its midnight in UTC.\n\n\
         At most {characters} characters, {values} values, and {depth} parentheses or `not` within each \
         other. What is no filter is refused with `invalid_filter`, which names the character."
    );
    let mut page = header("Filters of lists", &about);
    for list in FilterList::ALL {
        write!(page, "\n## {list}\n\n| field | holds | meaning |\n|---|---|---|\n").unwrap();
        for field in list.fields() {
            let holds = match field.kind {
                FilterFieldKind::Text => "text".to_owned(),
                FilterFieldKind::Moment => "moment".to_owned(),
                FilterFieldKind::Number => "number".to_owned(),
                FilterFieldKind::Flag => "`true` or `false`".to_owned(),
                FilterFieldKind::Choice(values) => format!("`{}`", values.all().join("`, `")),
            };
            writeln!(page, "| `{}` | {holds} | {} |", field.name, cell(field.doc)).unwrap();
        }
    }
    page
}

fn limits() -> String {
    let about = "What each of the two listeners of a control plane allows, so that nobody who connects and \
                 does nothing, or does it slowly, keeps others from being answered. `gpuaas serve --limits \
                 operators.idle-seconds=30,nodes.connections=20000` sets others. Connections of both \
                 listeners have to fit into the process's limit of open files (`ulimit -n`), of which 128 are \
                 kept for the database and MAAS; where they do not, the counts shrink to what fits. Each \
                 control plane of several counts by itself. The command line waits where it is told 429 \
                 `too_many_requests`: it sends the request again after the seconds of `Retry-After`, at most \
                 10 times and 30 seconds in all; then it says the code and ends. Nothing was done meanwhile, so \
                 no request is carried out twice.";
    let mut page = header("Limits of the listeners", about);
    page.push_str("\n| limit | operators | nodes | lowest | meaning |\n|---|---|---|---|---|\n");
    for row in LIMITS {
        let (limit, doc) = (row.limit, cell(row.doc));
        let (operators, nodes, lowest) = (row.operators, row.nodes, row.lowest);
        writeln!(page, "| `{limit}` | {operators} | {nodes} | {lowest} | {doc} |").unwrap();
    }
    page
}

fn metrics() -> String {
    let about = "What `GET /metrics` shows Prometheus, in the text form of OpenMetrics, on the listener of \
                 operators. It asks for a token whose role lets it look everywhere: `gpuaas token add \
                 prometheus --role viewer --to FILE --reason WHY`, FILE as the `credentials_file` of the \
                 scrape's `authorization`. What all control planes of one database show alike is the same \
                 from each: take one of them, `max without (instance) (...)`.";
    let mut page = header("Metrics", about);
    page.push_str("\n| metric | kind | labels | of | what it says |\n|---|---|---|---|---|\n");
    for row in METRICS {
        let (name, kind, help) = (row.series(), row.kind, cell(row.help));
        let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
        let of = if row.shared { "the database" } else { "the process" };
        writeln!(page, "| `{name}` | {kind} | {} | {of} | {help} |", labels.join(", ")).unwrap();
    }
    page
}

fn who(owner: Option<Owner>) -> &'static str {
    match owner {
        None => "",
        Some(Owner::InfraOperator) => "infra operator",
        Some(Owner::PlatformOperator) => "platform operator",
        Some(Owner::BundleOwner) => "bundle owner",
    }
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn command_failures() -> String {
    let mut page = header(
        "Failures of commands",
        "What stops a command on this side of the API: the command line, this machine, the way to the \
         control plane, the waiting. The code is the second word of the error text. Refusals of the \
         control plane have the codes of [problems.md](problems.md), runs that stopped those of \
         [waits-and-parks.md](waits-and-parks.md). `gpuaas --help` lists the exit codes.",
    );
    page.push_str("\n| code | what is wrong | when |\n|---|---|---|\n");
    for row in COMMANDS {
        writeln!(page, "| `{}` | {} | {} |", row.code, cell(row.title), cell(row.doc)).unwrap();
    }
    page
}

fn slot_blockers() -> String {
    let mut page = header(
        "Blockers of slots",
        "What keeps a slot, or a whole host, from having slices, as the slot map names it. Where the \
         column *approve anyway* says no, one tenant could reach another one, find what another one \
         left, or get less than a slot is: nobody can approve such a slot.",
    );
    page.push_str(
        "\n| code | what is wrong | when | who | approve anyway | next action |\n|---|---|---|---|---|---|\n",
    );
    for row in SLOT_BLOCKERS {
        let (title, doc, next) = (cell(row.title), cell(row.doc), cell(row.next_action));
        let anyway = if row.overridable { "yes" } else { "no" };
        let (code, who) = (row.code, row.fixed_by);
        writeln!(page, "| `{code}` | {title} | {doc} | {who} | {anyway} | {next} |").unwrap();
    }
    page
}

fn doctor_checks() -> String {
    let mut page = header(
        "Checks of gpuaas doctor",
        "What `gpuaas doctor` looks at on the host of a control plane, and what to do where a check finds \
         a fault.",
    );
    page.push_str("\n| code | what is looked at | fault when | next action |\n|---|---|---|---|\n");
    for row in DOCTOR_CHECKS {
        let (title, doc, next) = (cell(row.title), cell(row.doc), cell(row.next_action));
        writeln!(page, "| `{}` | {title} | {doc} | {next} |", row.code).unwrap();
    }
    page
}

fn problems() -> String {
    let mut page = header(
        "Problems",
        "Every refusal of the HTTP API is a problem body (RFC 9457) with one of these codes. The hint \
         of a problem is its next action where the place that refuses knows nothing more. Where the \
         column *who* is empty, whoever sent the request has to act.",
    );
    page.push_str(
        "\n| code | status | title | when | who | next action |\n|---|---|---|---|---|---|\n",
    );
    for row in PROBLEMS {
        let (title, doc, next) = (cell(row.title), cell(row.doc), cell(row.next_action));
        let (code, status, who) = (row.code, row.status, who(row.owner));
        writeln!(page, "| `{code}` | {status} | {title} | {doc} | {who} | {next} |").unwrap();
    }
    page
}

fn waits_and_parks() -> String {
    let mut page = header(
        "Waits and parks",
        "A run that rests waits for something or is parked. A wait ends without help; its next action is \
         for when it takes longer than expected. A parked run continues once its owner has acted. \
         Where the column *looks again* says so, MAAS shows the cause, and the run continues automatically \
         once it is gone: it looks a minute after it parked, and then ever more rarely, at least every \
         quarter of an hour.",
    );
    page.push_str("\n## Waits\n\n| code | waits for | meaning | who | when it is late |\n|---|---|---|---|---|\n");
    for row in WAITS {
        let (title, doc, next) = (cell(row.title), cell(row.doc), cell(row.next_action));
        let who = who(Some(row.owner));
        writeln!(page, "| `{}` | {title} | {doc} | {who} | {next} |", row.code).unwrap();
    }
    page.push_str(
        "\n## Parks\n\n| code | reason | meaning | who | looks again | next action |\n|---|---|---|---|---|---|\n",
    );
    for row in PARKS {
        let (title, doc, next) = (cell(row.title), cell(row.doc), cell(row.next_action));
        let who = who(Some(row.owner));
        let again = if row.looked_at_again { "yes" } else { "no" };
        writeln!(page, "| `{}` | {title} | {doc} | {who} | {again} | {next} |", row.code).unwrap();
    }
    page
}

fn node_problems() -> String {
    let mut page = header(
        "Problems of nodes",
        "What is wrong with a node, as `problems` of `gpuaas node show -o json`, `gpuaas explain` and \
         `gpuaas node list --stuck` name it, the first to act on first. A command with `--wait` ends \
         with exit code 7 where the node is active and has one. A problem says since when it is \
         there, when it was last seen, and whether that is too long ago to rely on (`stale`).",
    );
    page.push_str("\n| code | title | meaning | who | next action |\n|---|---|---|---|---|\n");
    for row in NODE_PROBLEMS {
        let (title, doc, next) = (cell(row.title), cell(row.doc), cell(row.next_action));
        let who = who(Some(row.owner));
        writeln!(page, "| `{}` | {title} | {doc} | {who} | {next} |", row.code).unwrap();
    }
    page
}

fn timeline() -> String {
    let mut page = header(
        "Timeline",
        "The lines of a node's history, as `gpuaas node show` and `gpuaas run show` print them.",
    );
    page.push_str("\n| code | title | meaning | who | next action |\n|---|---|---|---|---|\n");
    for row in TIMELINE {
        let (title, doc, next) = (cell(row.title), cell(row.doc), cell(row.next_action));
        writeln!(page, "| `{}` | {title} | {doc} | {} | {next} |", row.code, who(row.owner))
            .unwrap();
    }
    page
}

/// A page per symptom, for an operator who has a code and wants to know what to do.
fn troubleshooting() -> String {
    let about = "What to do when something does not continue. Every entry has the code that the command line, \
                 the console, the API and the metrics show. The same facts as tables are in \
                 [Waits and parks](reference/waits-and-parks.md), [Problems of nodes](reference/node-problems.md) \
                 and [Problems](reference/problems.md).";
    let mut page = header("Troubleshooting", about);
    page.push_str(
        "\n## Start here\n\n\
         ```sh\n\
         gpuaas node list --stuck\n\
         gpuaas explain j22u11\n\
         gpuaas explain prerequisite_missing\n\
         gpuaas doctor\n\
         ```\n\n\
         1. `gpuaas node list --stuck` lists every node whose run stopped, takes longer than expected, or that \
         is active and has a problem.\n\
         2. `gpuaas explain NODE` shows what is known of one node, who has to act, and the commands that help, \
         with the run's ID filled in.\n\
         3. `gpuaas explain CODE` prints the entry of this page for one code.\n\
         4. `gpuaas doctor` checks the control plane's own host, its database and the regions. Run it on that \
         host.\n\n\
         In the commands below, `RUN`, `NODE` and `SITE` are placeholders, and `WHY` is your reason, which \
         is stored in the history.\n",
    );
    let parks = |again: bool| PARKS.iter().filter(move |row| row.looked_at_again == again);
    page.push_str(
        "\n## The run is parked, and GPUaaS checks again automatically\n\n\
         Fix the cause in MAAS. GPUaaS reads the machine a minute after the run parked, then less and less \
         often, at least every 15 minutes, and continues when the cause is fixed. The command makes it check \
         at once.\n",
    );
    for row in parks(true) {
        entry(&mut page, row.code.as_str(), row.title, row.doc, row.owner, row.next_action);
    }
    page.push_str(
        "\n## The run is parked until a person acts\n\nGPUaaS does not check these again. The run continues, or \
         ends, with the command.\n",
    );
    for row in parks(false) {
        entry(&mut page, row.code.as_str(), row.title, row.doc, row.owner, row.next_action);
    }
    page.push_str(
        "\n## The run waits longer than expected\n\nA wait ends without a command. Act only if it takes longer \
         than `gpuaas explain` expects.\n",
    );
    for row in WAITS {
        let title = format!("Waits for: {}", row.title);
        entry(&mut page, row.code.as_str(), &title, row.doc, row.owner, row.next_action);
    }
    page.push_str(
        "\n## The node has a problem\n\nThe run has ended, or the problem is not the run's. The order is the one \
         in which to act.\n",
    );
    for row in NODE_PROBLEMS {
        entry(&mut page, row.code.as_str(), row.title, row.doc, row.owner, row.next_action);
    }
    page.push_str(
        "\n## A request was refused\n\nThe code is the second word of the error. The hint of the error is more \
         exact than this table if the two differ.\n",
    );
    for (title, statuses) in REFUSALS {
        write!(
            page,
            "\n### {title}\n\n| code | status | what is wrong | what to do |\n|---|---|---|---|\n"
        )
        .unwrap();
        for row in PROBLEMS.iter().filter(|row| statuses.contains(&row.status)) {
            let (code, status, title) = (row.code, row.status, cell(row.title));
            writeln!(page, "| `{code}` | {status} | {title} | {} |", cell(row.next_action))
                .unwrap();
        }
    }
    page
}

/// Headings of refusals, with the HTTP statuses below each.
const REFUSALS: [(&str, std::ops::RangeInclusive<u16>); 6] = [
    ("The request is malformed or invalid (400)", 400..=400),
    ("The credentials do not permit it (401 to 403)", 401..=403),
    ("It does not exist (404 to 406)", 404..=406),
    ("The state does not permit it (407 to 412)", 407..=412),
    ("The request is too large, invalid or too frequent (413 to 499)", 413..=499),
    ("The control plane or something it depends on failed (500 to 599)", 500..=599),
];

fn entry(page: &mut String, code: &str, title: &str, doc: &str, owner: Owner, next: &str) {
    let who = who(Some(owner));
    write!(
        page,
        "\n### `{code}`\n\n{title}. {doc}.\n\n**Who acts:** {who}. **What to do:** {next}.\n"
    )
    .unwrap();
}

#[test]
fn every_refusal_is_on_the_troubleshooting_page() {
    let page = troubleshooting();
    for row in PROBLEMS {
        assert!(
            page.contains(&format!("\n| `{}` |", row.code)),
            "{}: status {}",
            row.code,
            row.status
        );
    }
}

/// Name, type and documentation of each field of a profile, from its source.
fn documented_fields() -> Vec<(String, String, String)> {
    let source = include_str!("../spec.rs");
    let (_, body) = source.split_once("pub struct ProfileSpec {").unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let mut fields = Vec::new();
    let mut doc = Vec::new();
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            doc.push(text);
        } else if let Some(field) = line.strip_prefix("pub ") {
            let (name, kind) = field.trim_end_matches(',').split_once(": ").unwrap();
            fields.push((name.to_owned(), kind.to_owned(), doc.join(" ")));
            doc.clear();
        }
    }
    fields
}

fn kind(rust: &str) -> &'static str {
    match rust {
        "bool" => "true or false",
        "u32" => "number",
        "String" => "text",
        "BetweenTenants" => "`reimage`, `soft_reset` or `storage_cleanup`",
        "FabricMode" => "`ethernet`, `roce` or `ib`",
        "ReleaseMode" => "`managed` or `handoff`",
        "BTreeMap<String, String>" => "texts by name",
        "Vec<String>" => "names with commas between them",
        other => panic!("say what {other} is in profile-fields.md"),
    }
}

fn profile_fields() -> String {
    let mut page = header(
        "Fields of profiles",
        "What `gpuaas profile add --set FIELD=VALUE` and `gpuaas profile set` take. A change makes a \
         new revision; a run keeps the one that it pinned, until an operator lets it go on with \
         `--latest-profile`.",
    );
    page.push_str("\n| field | type | default | meaning |\n|---|---|---|---|\n");
    let defaults = serde_json::to_value(ProfileSpec::default()).unwrap();
    for (name, rust, doc) in documented_fields() {
        let default = match defaults.get(&name) {
            None | Some(Value::Null) => "none".to_owned(),
            Some(Value::String(text)) if text.is_empty() => "empty".to_owned(),
            Some(Value::String(text)) => format!("`{text}`"),
            Some(Value::Array(items)) if items.is_empty() => "none".to_owned(),
            Some(other) => format!("`{other}`"),
        };
        writeln!(page, "| `{name}` | {} | {default} | {} |", kind(&rust), cell(&doc)).unwrap();
    }
    page
}

#[test]
fn every_field_of_a_profile_is_documented() {
    let defaults = serde_json::to_value(ProfileSpec::default()).unwrap();
    let fields = documented_fields();
    for name in defaults.as_object().unwrap().keys() {
        let field = fields.iter().find(|field| field.0 == *name);
        assert!(field.is_some_and(|field| !field.2.is_empty()), "{name}");
    }
}

fn steps() -> String {
    let mut page = header(
        "Steps and kinds of runs",
        "A run is a list of steps, and a step means the same in every kind of run. *Expected* is what \
         a step normally takes at most, until earlier runs teach better; after its *deadline* the run \
         parks. Both are seconds. A *side* step is entered only when a decision asks for it.",
    );
    page.push_str(
        "\n## Steps\n\n| step | order | bucket | expected | deadline | a cancel | state of the node | \
         may ask of MAAS |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in ROWS {
        let order = match row.order {
            StepOrder::Main => "main",
            StepOrder::Side => "side",
        };
        let cancel = match row.cancel {
            CancelPolicy::Now => "ends it at once",
            CancelPolicy::AfterEffect => "ends it once the outcome of a call under way is known",
            CancelPolicy::NeedsRelease => "releases the machine first",
        };
        let state = row.node_state.map_or_else(String::new, |state| format!("`{state}`"));
        let effects: Vec<String> = row.effects.iter().map(|kind| format!("`{kind}`")).collect();
        let (expected, deadline) = (row.expected_seconds, row.deadline_seconds);
        let (step, bucket, effects) = (row.step, row.bucket, effects.join(", "));
        writeln!(
            page,
            "| `{step}` | {order} | `{bucket}` | {expected} | {deadline} | {cancel} | {state} | {effects} |"
        )
        .unwrap();
    }
    page.push_str(
        "\n## Kinds\n\n| kind | begins in | ends in | needs MAAS | steps |\n|---|---|---|---|---|\n",
    );
    for row in KINDS {
        let begins: Vec<String> = row.begins_in.iter().map(|state| format!("`{state}`")).collect();
        let begins = if begins.is_empty() { "a new node".to_owned() } else { begins.join(", ") };
        let steps: Vec<String> = row.steps.iter().map(|step| format!("`{step}`")).collect();
        let (kind, ends, steps) = (row.kind, row.ends_in, steps.join(", "));
        let needs_maas = if row.needs_maas { "yes" } else { "no" };
        writeln!(page, "| `{kind}` | {begins} | `{ends}` | {needs_maas} | {steps} |").unwrap();
    }
    page
}
