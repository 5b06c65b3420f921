//! The operation `update_packages`: brings Debian packages to target versions within a policy.
//!
//! The policy is in the task: the packages that it names may change, those that it allows along with
//! them may too, and nothing else; those that it holds must not. apt first simulates
//! (`apt-get -s`), and the simulation decides, whatever a dependency needs. The real run has
//! `--no-remove`, so that what changed between the two cannot remove a package.

use std::collections::BTreeMap;

use gpuaas_types::agent::{Change, Finding, PackageTarget};

use super::operation::{OperationContext, OperationError, OperationOutcome};
use crate::command::{CommandError, CommandRunner};

/// Longest time of a simulation, in seconds.
const SIMULATE_SECONDS: u64 = 120;
/// Longest time of `apt-get update`, in seconds, the wait for the lock apart.
const LISTS_SECONDS: u64 = 600;
/// Longest time of an installation, in seconds, the wait for the lock apart.
const INSTALL_SECONDS: u64 = 2700;
/// Longest time of a query to dpkg, in seconds.
const QUERY_SECONDS: u64 = 20;

/// Which packages may change, and how.
pub(super) struct PackagePolicy<'a> {
    /// Packages to update, each to a version or to the newest.
    pub(super) packages: &'a [PackageTarget],
    /// Packages that may change along with them.
    pub(super) along: &'a [String],
    /// Packages that must not change.
    pub(super) hold: &'a [String],
    /// Whether `apt-get update` runs first.
    pub(super) refresh_lists: bool,
    /// How long apt waits for dpkg's lock, in seconds.
    pub(super) lock_seconds: u32,
}

/// What apt would do, as it simulates.
#[derive(Debug, Default, PartialEq, Eq)]
struct AptPlan {
    /// Name, version now if there is one, version afterwards.
    installs: Vec<(String, Option<String>, String)>,
    /// Names of the packages that apt would remove.
    removes: Vec<String>,
}

pub(super) async fn run(
    context: &OperationContext<'_>,
    policy: &PackagePolicy<'_>,
) -> Result<OperationOutcome, OperationError> {
    let runner = CommandRunner::for_host(context.host)?;
    let names: Vec<&str> = policy.packages.iter().map(|package| package.name.as_str()).collect();
    let before = versions(runner, &names).await?;
    for name in &names {
        if !before.contains_key(*name) {
            let message = format!("{name} is not installed; this task only updates packages");
            return Err(OperationError::new("package_not_installed", message));
        }
    }
    let lock = format!("DPkg::Lock::Timeout={}", policy.lock_seconds);
    if policy.refresh_lists && !context.dry_run {
        let seconds = LISTS_SECONDS + u64::from(policy.lock_seconds);
        runner
            .run("apt-get", &["-q", "-o", &lock, "update"], seconds)
            .await
            .map_err(classify_apt_error)?;
    }
    let targets: Vec<String> = policy.packages.iter().map(target).collect();
    let simulated = arguments(&["-s", "-o", &lock], &targets);
    let output =
        runner.query("apt-get", &simulated, SIMULATE_SECONDS).await.map_err(classify_apt_error)?;
    let plan = read_plan(&output.stdout);
    let mut outcome = OperationOutcome { changes: plan.changes(), ..OperationOutcome::default() };
    if let Some(error) = policy_violation(&plan, policy) {
        // Nothing was changed, and nothing will be.
        outcome.findings = plan_findings(&plan);
        outcome.changes.clear();
        return Err(error.with_partial(outcome));
    }
    if plan.installs.is_empty() {
        outcome.message = "all packages already have the requested versions".to_owned();
        return Ok(outcome);
    }
    if context.dry_run {
        outcome.message = format!("{} packages", plan.installs.len());
        return Ok(outcome);
    }
    install(runner, &lock, &targets, policy, &plan).await
}

async fn install(
    runner: CommandRunner<'_>,
    lock: &str,
    targets: &[String],
    policy: &PackagePolicy<'_>,
    plan: &AptPlan,
) -> Result<OperationOutcome, OperationError> {
    let touched: Vec<&str> = plan.installs.iter().map(|(name, ..)| name.as_str()).collect();
    let before = versions(runner, &touched).await?;
    let options = [
        "-y",
        "-q",
        "-o",
        lock,
        "-o",
        "Dpkg::Options::=--force-confdef",
        "-o",
        "Dpkg::Options::=--force-confold",
    ];
    let real = arguments(&options, targets);
    let seconds = INSTALL_SECONDS + u64::from(policy.lock_seconds);
    let ran = runner.run("apt-get", &real, seconds).await;
    let after = versions(runner, &touched).await?;
    let mut outcome = OperationOutcome::default();
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
        Err(error) => Err(classify_apt_error(error).with_partial(outcome)),
        Ok(_) if outcome.findings.iter().any(|finding| finding.passed == Some(false)) => {
            let message = "apt succeeded, but some packages do not have the planned version";
            Err(OperationError::new("packages_not_in_effect", message).with_partial(outcome))
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

/// Why the plan is not within the policy; `None` where it is.
fn policy_violation(plan: &AptPlan, policy: &PackagePolicy<'_>) -> Option<OperationError> {
    if !plan.removes.is_empty() {
        let message = format!("apt would remove {}", plan.removes.join(", "));
        return Some(OperationError::new("packages_removed", message));
    }
    for (name, now, then) in &plan.installs {
        if policy.hold.contains(name) {
            let message = format!("{name} is held, but apt would change it to {then}");
            return Some(OperationError::new("package_held", message));
        }
        let target = policy.packages.iter().find(|package| package.name == *name);
        if target.is_none() && !policy.along.contains(name) {
            let what = if now.is_some() { "change" } else { "install" };
            let message = format!("apt would also {what} {name} ({then}), which is not allowed");
            return Some(OperationError::new("package_outside_policy", message));
        }
        let exact = target.and_then(|package| package.version.as_ref());
        if let Some(version) = exact.filter(|version| *version != then) {
            let message = format!("apt would install {name} {then}, expected {version}");
            return Some(OperationError::new("package_version_mismatch", message));
        }
    }
    None
}

fn plan_findings(plan: &AptPlan) -> Vec<Finding> {
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

impl AptPlan {
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
fn read_plan(text: &str) -> AptPlan {
    let mut plan = AptPlan::default();
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
                plan.installs.push((without_architecture(name), now, then));
            }
            (Some("Remv"), Some(name)) => plan.removes.push(without_architecture(name)),
            _ => {}
        }
    }
    plan
}

/// `libx` of `libx:i386`.
fn without_architecture(name: &str) -> String {
    name.split(':').next().unwrap_or(name).to_owned()
}

/// Installed versions by name, of those of `names` that are installed.
async fn versions(
    runner: CommandRunner<'_>,
    names: &[&str],
) -> Result<BTreeMap<String, String>, OperationError> {
    let mut arguments = vec!["-W", "-f=${Package}\\t${db:Status-Abbrev}\\t${Version}\\n", "--"];
    arguments.extend(names);
    let listed = match runner.query("dpkg-query", &arguments, QUERY_SECONDS).await {
        Ok(output) => output.stdout,
        // dpkg-query fails where it does not know one of the names.
        Err(CommandError::Failed { .. }) => {
            let mut all = String::new();
            for name in names {
                let one = [&arguments[..3], &[*name]].concat();
                if let Ok(output) = runner.query("dpkg-query", &one, QUERY_SECONDS).await {
                    all.push_str(&output.stdout);
                }
            }
            all
        }
        Err(error) => return Err(error.into()),
    };
    let mut versions = BTreeMap::new();
    for line in listed.lines() {
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

/// Gives an error of apt the code of its cause, where an operator can act on that.
fn classify_apt_error(error: CommandError) -> OperationError {
    let text = error.to_string();
    let has = |texts: &[&str]| texts.iter().any(|part| text.contains(part));
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
    OperationError::new(code, text)
}

#[cfg(test)]
mod tests;
