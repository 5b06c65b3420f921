use std::fs;
use std::path::Path;

use gpuaas_bundle::manifest::ARCHIVED_NAME;
use gpuaas_types::agent::TaskSpec;

use super::*;
use crate::operate::test_host::{commands_run, emulated};
use crate::tasks::execute;

/// A boot as the fixture of the bundles plays it: `/run` is empty, the boot another one.
const BOOTS: &str = "[ \"$*\" != 'run systemctl reboot' ] && exit 0\n\
    rm -rf \"$D/root/run/gpuaas\"\n\
    echo second > \"$D/root/proc/sys/kernel/random/boot_id\"\n";
/// A phase that asks until the file `/mended` is there.
const PHASE: &str = "#!/bin/bash\nset -euo pipefail\nsource \"$GPUAAS_LIB\"\n\
    if [[ -e $(at /mended) ]]; then reboot_not_needed; else reboot_needed 'not mended'; fi\n";
const MANIFEST: &str = r#"{"name":"asks","version":"1.0.0","kind":"site_bootstrap","about":"x",
    "phases":[{"name":"ask","run":"phases/ask.sh","timeout_seconds":10}],
    "expects":[{"check":"file_exists","path":"/proc/sys/kernel/random/boot_id"}]}"#;

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A host with one bundle, which asks for a reboot.
fn asking(dir: &Path, emulator: &str) -> (Host, AgentEnv) {
    let host = emulated(dir, emulator);
    let root = dir.join("root");
    put(&root, "proc/sys/kernel/random/boot_id", "first\n");
    let bundle = "usr/local/share/gpuaas/site-bootstrap/asks";
    put(&root, &format!("{bundle}/{ARCHIVED_NAME}"), MANIFEST);
    put(&root, &format!("{bundle}/phases/ask.sh"), PHASE);
    put(&root, "run/gpuaas/reboot-needed.d/asks.ask", "not mended\n");
    let state = dir.join("state");
    fs::create_dir_all(&state).unwrap();
    (host, AgentEnv { state_dir: Some(state), ..AgentEnv::default() })
}

async fn reboot(host: &Host, env: &AgentEnv) -> TaskResult {
    execute(host, env, &TaskSpec::Reboot { reasons: Vec::new() }).await
}

#[tokio::test]
async fn a_reason_that_the_boot_took_away_is_gone_and_one_that_it_did_not_is_there_again() {
    for mended in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (host, env) = asking(dir.path(), BOOTS);
        if mended {
            put(&dir.path().join("root"), "mended", "");
        }
        let result = reboot(&host, &env).await;
        assert!(result.succeeded, "{result:?}");
        let last = result.findings.last().unwrap();
        let expected = (mended, if mended { "none" } else { "not mended" });
        assert_eq!((last.passed, last.seen.as_str()), (Some(expected.0), expected.1), "{result:?}");
        let booted = &result.changes[0];
        assert_eq!((booted.before.as_str(), booted.after.as_str()), ("first", "second"));
        assert_eq!(commands_run(dir.path()), ["systemctl reboot"]);
    }
}

#[tokio::test]
async fn nothing_boots_without_a_reason_and_nothing_boots_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let (host, env) = asking(dir.path(), BOOTS);
    for number in 0..MAX_REBOOTS {
        put(&dir.path().join("root"), "proc/sys/kernel/random/boot_id", "first\n");
        let result = reboot(&host, &env).await;
        assert!(result.succeeded, "{number}: {result:?}");
    }
    let refused = reboot(&host, &env).await;
    assert_eq!((refused.succeeded, refused.code.as_str()), (false, "reboots_exhausted"));
    fs::remove_dir_all(dir.path().join("root/run/gpuaas")).unwrap();
    assert!(reboot(&host, &env).await.succeeded);
    assert_eq!(commands_run(dir.path()).len(), MAX_REBOOTS as usize);
}

/// The agent that ordered the boot ended with the host: the next one knows that it was over.
#[test]
fn a_boot_is_told_from_a_restart_of_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let (host, _) = asking(dir.path(), BOOTS);
    let root = dir.path().join("root");
    let pending = PendingReboot::from_host(host.root().unwrap());
    assert_eq!(
        (pending.bundles.as_slice(), pending.why.as_str()),
        (&["asks".to_owned()][..], "not mended")
    );
    assert!(!pending.is_over(&host));
    put(&root, "proc/sys/kernel/random/boot_id", "second\n");
    assert!(pending.is_over(&host));
}
