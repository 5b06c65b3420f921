//! `gpuaas doctor`: what is wrong with a control plane, looked at from its own host, whether it runs
//! or not. Each check is a row of [`gpuaas_types::codes::DOCTOR_CHECKS`]; nothing is changed.

mod database;
mod finding;
mod host;
mod sites;

use std::sync::Arc;

use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_engine::{Clock, ReadKey, RealClock};
use gpuaas_types::codes::CommandCode;
use serde::Serialize;

use self::finding::{Finding, FindingState};
use crate::args::DoctorArgs;
use crate::vault::VaultKeys;

/// What was seen, check by check.
#[derive(Debug, Serialize)]
struct DoctorReport {
    healthy: bool,
    checks: Vec<Finding>,
}

/// `gpuaas doctor`.
///
/// # Errors
/// `faults_found`, which names the checks.
pub(crate) async fn run(args: DoctorArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let report = examine(&args).await;
    output::print(terminal, args.format, &report, table)?;
    let faults = report.checks.iter().filter(|finding| finding.state == FindingState::Fault);
    let mut codes: Vec<&str> = faults.map(|finding| finding.code.as_str()).collect();
    codes.dedup();
    if codes.is_empty() {
        return Ok(());
    }
    Err(Failure::local(CommandCode::FaultsFound, codes.join(", "))
        .hint("follow the next step of each fault in the table, then run `gpuaas doctor` again"))
}

async fn examine(args: &DoctorArgs) -> DoctorReport {
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let mut checks = host::check(args, clock.now()).await;
    if let Some(store) = database::check(args, &mut checks).await {
        let vault = args.master_key.sources().vault;
        let keys = vault.map(|vault| Arc::new(VaultKeys::new(vault)) as Arc<dyn ReadKey>);
        sites::check(&store, &clock, keys, &mut checks).await;
        store.close().await;
    }
    let healthy = checks.iter().all(|finding| finding.state != FindingState::Fault);
    DoctorReport { healthy, checks }
}

fn table(report: &DoctorReport, style: Style) -> String {
    let rows = report.checks.iter().map(|finding| {
        vec![
            finding.state.as_str().to_owned(),
            finding.code.clone(),
            finding.subject.clone(),
            finding.seen.clone(),
            finding.next_step.clone().unwrap_or_default(),
        ]
    });
    output::table(style, &["STATE", "CHECK", "OF", "SEEN", "NEXT STEP"], rows)
}

#[cfg(test)]
mod tests;
