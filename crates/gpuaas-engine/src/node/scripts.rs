//! What MAAS says of commissioning scripts: which it has, and how they ended.
//!
//! Two calls tell of the region's scripts: a list without texts, from which follows what MAAS runs
//! by itself, and the texts of ours only (docs/maas.md#scripts). Nothing of it is shared between
//! runs: a script is read back right after it was written.

use std::collections::BTreeMap;

use gpuaas_artifact::{CommissioningScript, Digest};
use gpuaas_core::decide::commission::DEFAULT_TESTS;
use gpuaas_core::run_state::{RegionScripts, ScriptOutcome, ScriptResults};
use gpuaas_types::scripts::{ScriptKind, script_status};
use gpuaas_types::{RunId, Timestamp};
use maas_client::{
    CurrentSet, Error as MaasError, NewScript, RefusalKind, ResultQuery, ResultType, Script,
    ScriptFilter, ScriptResult,
};

use crate::run::session::RunSession;
use crate::site::{CallError, Site};

/// Longest line of a failed script's output that is kept, in characters.
const LINE_CHARACTERS: usize = 200;
/// MAAS' numbers of the kinds of scripts.
const COMMISSIONING: i64 = 0;
const TESTING: i64 = 2;

/// Names in MAAS of the scripts of the run's bundle.
fn bundle_script_names(session: &RunSession) -> Vec<String> {
    session
        .context
        .commissioning()
        .into_iter()
        .flatten()
        .map(|script| script.name.clone())
        .collect()
}

/// Reads the region's scripts.
pub(crate) async fn read_region_scripts(
    site: &Site,
    session: &mut RunSession,
    asked_at: Timestamp,
) -> Result<(), CallError> {
    let names = bundle_script_names(session);
    let all = ScriptFilter::default();
    let all = site.call(|client| async move { client.scripts(&all).await }).await?;
    let here = |name: &&String| all.iter().any(|script| script.name == **name);
    let present: Vec<String> = names.iter().filter(here).cloned().collect();
    let mut digests = BTreeMap::new();
    if !present.is_empty() {
        let ours = ScriptFilter { filters: present, include_script: true, kind: None };
        for script in site.call(|client| async move { client.scripts(&ours).await }).await? {
            let text = script.content().unwrap_or_default();
            let digest = Digest::sha256(text.as_bytes()).to_string();
            if names.contains(&script.name) {
                digests.insert(script.name, digest);
            }
        }
    }
    let mut automatic: Vec<String> = all
        .iter()
        .filter(|script| is_automatic(script))
        .map(|script| script.name.clone())
        .collect();
    automatic.sort();
    let default_tests =
        all.iter().any(|s| s.kind == TESTING && s.tags.iter().any(|tag| tag == DEFAULT_TESTS));
    let asked_at = session.read_time(asked_at);
    session.run.state.region_scripts =
        Some(RegionScripts { asked_at, digests, automatic, default_tests });
    Ok(())
}

/// Whether somebody added the script and MAAS runs it where none is selected: for no hardware in
/// particular and not tagged `noauto` (docs/maas.md#commissioning).
fn is_automatic(script: &Script) -> bool {
    script.kind == COMMISSIONING
        && !script.default
        && script.for_hardware.is_empty()
        && !script.tags.iter().any(|tag| tag == "noauto")
}

/// Reads how the scripts of the machine's last commissioning and tests ended.
pub(crate) async fn read_script_results(
    site: &Site,
    session: &mut RunSession,
    asked_at: Timestamp,
) -> Result<(), CallError> {
    let Some(system_id) = session.node.system_id.clone() else {
        return Ok(());
    };
    let names = bundle_script_names(session);
    let mut outcomes = Vec::new();
    for set in [CurrentSet::Commissioning, CurrentSet::Testing] {
        let all = current_results(site, &system_id, set, ResultQuery::default()).await?;
        let ours = |result: &ScriptResult| names.contains(&result.name);
        let failed = |result: &ScriptResult| script_status::FAILURES.contains(&result.status);
        let broken: Vec<String> =
            all.iter().filter(|r| ours(r) && failed(r)).map(|r| r.name.clone()).collect();
        let mut outputs = Vec::new();
        if !broken.is_empty() {
            let query = ResultQuery { filters: broken, include_output: true, kind: None };
            outputs = current_results(site, &system_id, set, query).await?;
        }
        for result in all.into_iter().filter(|r| ours(r) || failed(r)) {
            let output = outputs.iter().find(|o| o.id == result.id);
            outcomes.push(script_outcome(result, output));
        }
    }
    let asked_at = session.read_time(asked_at);
    session.run.state.script_results = Some(ScriptResults { asked_at, outcomes });
    Ok(())
}

/// A current set; nothing where the machine has none, which MAAS says as 400 or as 404.
async fn current_results(
    site: &Site,
    system_id: &str,
    set: CurrentSet,
    query: ResultQuery,
) -> Result<Vec<ScriptResult>, CallError> {
    let asked =
        site.call(|client| async move { client.current_results(system_id, set, &query).await });
    match asked.await {
        Ok(set) => Ok(set.results),
        Err(CallError::Maas(MaasError::Refused {
            kind: RefusalKind::NotFound | RefusalKind::BadRequest,
            ..
        })) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn script_outcome(result: ScriptResult, output: Option<&ScriptResult>) -> ScriptOutcome {
    let text = output.and_then(|result| result.output.as_deref()).unwrap_or_default();
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    ScriptOutcome {
        name: result.name,
        status: result.status,
        status_name: result.status_name,
        exit_status: result.exit_status,
        runtime: result.runtime.unwrap_or_default(),
        last_line: last
            .chars()
            .filter(|c| !gpuaas_types::text::is_invisible(*c))
            .take(LINE_CHARACTERS)
            .collect(),
    }
}

/// A script as it is sent to MAAS.
pub(crate) fn maas_script(script: &CommissioningScript, run: RunId) -> NewScript {
    NewScript {
        name: script.script.name.clone(),
        kind: match script.script.kind {
            ScriptKind::Commissioning => ResultType::Commissioning,
            ScriptKind::Testing => ResultType::Testing,
        },
        content: script.text.clone().into_bytes(),
        comment: Some(format!("GPUaaS run {run}")),
    }
}
