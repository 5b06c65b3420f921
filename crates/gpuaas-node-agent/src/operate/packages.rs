//! Debian packages, brought to the wanted versions within a policy.
//!
//! The policy is the task itself: the packages that it names may change, those that it lets come
//! along may too, and nothing else; those that it holds back must not. apt is first asked what it
//! would do (`apt-get -s`), and that answer decides, whatever a dependency wants. The real run has
//! `--no-remove`, so that what changed between the two cannot take a package away.

use std::collections::BTreeMap;

use gpuaas_types::agent::{Change, Finding, PackageTarget};

use super::{Fault, Outcome, Work};
use crate::tools::{ToolError, Tools};

const SIMULATE_SECONDS: u64 = 120;
const LISTS_SECONDS: u64 = 600;
const INSTALL_SECONDS: u64 = 2700;
const QUERY_SECONDS: u64 = 20;

/// What an operator wants.
pub(super) struct Wanted<'a> {
    pub(super) packages: &'a [PackageTarget],
    pub(super) along: &'a [String],
    pub(super) hold: &'a [String],
    pub(super) refresh_lists: bool,
    pub(super) lock_seconds: u32,
}

/// What apt would do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Name, version now if there is one, version then.
    installs: Vec<(String, Option<String>, String)>,
    removes: Vec<String>,
}

pub(super) async fn carry_out(work: &Work<'_>, wanted: &Wanted<'_>) -> Result<Outcome, Fault> {
    let tools = Tools::of(work.host)?;
    let names: Vec<&str> = wanted.packages.iter().map(|package| package.name.as_str()).collect();
    let before = versions(tools, &names).await?;
    for name in &names {
        if !before.contains_key(*name) {
            let message = format!("{name} is not installed, and this task only updates");
            return Err(Fault::new("package_not_installed", message));
        }
    }
    let lock = format!("DPkg::Lock::Timeout={}", wanted.lock_seconds);
    if wanted.refresh_lists && !work.dry_run {
        let seconds = LISTS_SECONDS + u64::from(wanted.lock_seconds);
        tools.run("apt-get", &["-q", "-o", &lock, "update"], seconds).await.map_err(apt)?;
    }
    let targets: Vec<String> = wanted.packages.iter().map(target).collect();
    let simulated = arguments(&["-s", "-o", &lock], &targets);
    let said = tools.ask("apt-get", &simulated, SIMULATE_SECONDS).await.map_err(apt)?;
    let plan = read_plan(&said.out);
    let mut outcome = Outcome { changes: plan.changes(), ..Outcome::default() };
    if let Some(fault) = judge(&plan, wanted) {
        // Nothing was changed, and nothing will be.
        outcome.findings = refused(&plan);
        outcome.changes.clear();
        return Err(fault.after(outcome));
    }
    if plan.installs.is_empty() {
        outcome.message = "every package is at the wanted version already".to_owned();
        return Ok(outcome);
    }
    if work.dry_run {
        outcome.message = format!("{} packages", plan.installs.len());
        return Ok(outcome);
    }
    install(tools, &lock, &targets, wanted, &plan).await
}

async fn install(
    tools: Tools<'_>,
    lock: &str,
    targets: &[String],
    wanted: &Wanted<'_>,
    plan: &Plan,
) -> Result<Outcome, Fault> {
    let touched: Vec<&str> = plan.installs.iter().map(|(name, ..)| name.as_str()).collect();
    let before = versions(tools, &touched).await?;
    let keep = [
        "-y",
        "-q",
        "-o",
        lock,
        "-o",
        "Dpkg::Options::=--force-confdef",
        "-o",
        "Dpkg::Options::=--force-confold",
    ];
    let real = arguments(&keep, targets);
    let seconds = INSTALL_SECONDS + u64::from(wanted.lock_seconds);
    let ran = tools.run("apt-get", &real, seconds).await;
    let after = versions(tools, &touched).await?;
    let mut outcome = Outcome::default();
    for (name, _, then) in &plan.installs {
        let of = |versions: &BTreeMap<String, String>| {
            versions.get(name).cloned().unwrap_or_else(|| "not installed".to_owned())
        };
        let (was, is) = (of(&before), of(&after));
        let passed = Some(is == *then);
        outcome.findings.push(Finding { name: name.clone(), passed, seen: is.clone() });
        if was != is {
            outcome.changes.push(Change { what: name.clone(), before: was, after: is });
        }
    }
    match ran {
        Err(error) => Err(apt(error).after(outcome)),
        Ok(_) if outcome.findings.iter().any(|finding| finding.passed == Some(false)) => {
            let message = "apt ended well, and not every package has the version that it promised";
            Err(Fault::new("packages_not_in_effect", message).after(outcome))
        }
        Ok(_) => {
            outcome.message = format!("{} packages", outcome.changes.len());
            Ok(outcome)
        }
    }
}

fn arguments<'a>(options: &[&'a str], targets: &'a [String]) -> Vec<&'a str> {
    let fixed = ["--no-remove", "--no-install-recommends", "--only-upgrade", "install", "--"];
    options.iter().copied().chain(fixed).chain(targets.iter().map(String::as_str)).collect()
}

fn target(package: &PackageTarget) -> String {
    match &package.version {
        Some(version) => format!("{}={version}", package.name),
        None => package.name.clone(),
    }
}

/// Why the plan does not fit the policy.
fn judge(plan: &Plan, wanted: &Wanted<'_>) -> Option<Fault> {
    if !plan.removes.is_empty() {
        let message = format!("apt would remove {}", plan.removes.join(", "));
        return Some(Fault::new("packages_removed", message));
    }
    for (name, now, then) in &plan.installs {
        if wanted.hold.contains(name) {
            let message = format!("{name} is held back, and apt would bring it to {then}");
            return Some(Fault::new("package_held", message));
        }
        let target = wanted.packages.iter().find(|package| package.name == *name);
        if target.is_none() && !wanted.along.contains(name) {
            let what = if now.is_some() { "change" } else { "install" };
            let message = format!("apt would {what} {name} too ({then}), which is not allowed");
            return Some(Fault::new("package_outside_policy", message));
        }
        let exact = target.and_then(|package| package.version.as_ref());
        if let Some(version) = exact.filter(|version| *version != then) {
            let message = format!("{name} {version} is wanted, and apt would take {then}");
            return Some(Fault::new("package_version_mismatch", message));
        }
    }
    None
}

fn refused(plan: &Plan) -> Vec<Finding> {
    let install = |(name, now, then): &(String, Option<String>, String)| Finding {
        name: name.clone(),
        passed: None,
        seen: format!("{} -> {then}", now.as_deref().unwrap_or("not installed")),
    };
    let remove = |name: &String| Finding {
        name: name.clone(),
        passed: Some(false),
        seen: "would be removed".to_owned(),
    };
    plan.installs.iter().map(install).chain(plan.removes.iter().map(remove)).collect()
}

impl Plan {
    fn changes(&self) -> Vec<Change> {
        let change = |(name, now, then): &(String, Option<String>, String)| Change {
            what: name.clone(),
            before: now.clone().unwrap_or_else(|| "not installed".to_owned()),
            after: then.clone(),
        };
        self.installs.iter().map(change).collect()
    }
}

/// Lines of `apt-get -s`: `Inst NAME [NOW] (THEN ORIGIN [ARCH])` and `Remv NAME [NOW]`.
fn read_plan(text: &str) -> Plan {
    let mut plan = Plan::default();
    for line in text.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some("Inst"), Some(name)) => {
                let inside = |open: char, close: char| {
                    let rest = line.split_once(open)?.1;
                    Some(rest.split_once(close)?.0.to_owned())
                };
                let head = line.split('(').next().unwrap_or_default();
                let now = head.contains('[').then(|| inside('[', ']')).flatten();
                let then = inside('(', ')').unwrap_or_default();
                let then = then.split(' ').next().unwrap_or_default().to_owned();
                plan.installs.push((plain(name), now, then));
            }
            (Some("Remv"), Some(name)) => plan.removes.push(plain(name)),
            _ => {}
        }
    }
    plan
}

/// A foreign architecture is named behind a colon.
fn plain(name: &str) -> String {
    name.split(':').next().unwrap_or(name).to_owned()
}

/// Installed versions; what is not installed is not in it.
async fn versions(tools: Tools<'_>, names: &[&str]) -> Result<BTreeMap<String, String>, Fault> {
    let mut arguments = vec!["-W", "-f=${Package}\\t${db:Status-Abbrev}\\t${Version}\\n", "--"];
    arguments.extend(names);
    let said = match tools.ask("dpkg-query", &arguments, QUERY_SECONDS).await {
        Ok(said) => said.out,
        // It ends badly when it knows one of them not at all, and says the others.
        Err(ToolError::Failed { .. }) => {
            let mut all = String::new();
            for name in names {
                let one = [&arguments[..3], &[*name]].concat();
                if let Ok(said) = tools.ask("dpkg-query", &one, QUERY_SECONDS).await {
                    all.push_str(&said.out);
                }
            }
            all
        }
        Err(error) => return Err(error.into()),
    };
    let mut versions = BTreeMap::new();
    for line in said.lines() {
        let mut fields = line.split('\t');
        if let (Some(name), Some(status), Some(version)) =
            (fields.next(), fields.next(), fields.next())
            && status.starts_with("ii")
        {
            versions.insert(name.to_owned(), version.to_owned());
        }
    }
    Ok(versions)
}

/// apt's words for what an operator can do something about.
fn apt(error: ToolError) -> Fault {
    let text = error.to_string();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let code = if has(&["Could not get lock", "Unable to acquire", "Unable to lock"]) {
        "dpkg_locked"
    } else if has(&["dpkg was interrupted", "dpkg --configure -a"]) {
        "dpkg_interrupted"
    } else if has(&["No space left on device"]) {
        "disk_full"
    } else if has(&["Unable to locate package", "was not found", "has no installation candidate"]) {
        "package_not_available"
    } else if has(&["Packages need to be removed", "remove is disabled"]) {
        "packages_removed"
    } else if has(&["Packages were downgraded"]) {
        "package_downgrade"
    } else {
        error.code()
    };
    Fault::new(code, text)
}

#[cfg(test)]
mod tests;
