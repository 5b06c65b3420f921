//! A control plane under attack: a small version of `gpuaas bench attack`.

use serde_json::Value;

use crate::rig::{agent, gpuaas};

/// Fewer files than the attack has connections: without limits it would take all of them.
const OPEN_FILES: &str = "400";

#[test]
fn others_are_answered_while_one_address_attacks() {
    let agent = agent();
    let counts =
        "--silent-sockets 500 --unfinished-headers 60 --slow-bodies 10 --unread-downloads 5";
    let output = gpuaas()
        .args(["bench", "attack", "--json", "--seconds", "0.5", "--open-files", OPEN_FILES])
        .args(counts.split(' '))
        .args(["--agent-binary", agent.to_str().unwrap()])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["open_files_limit"], 400, "{report}");
    assert!(report["legitimate_requests"].as_u64().unwrap() >= 20, "{report}");
    assert_eq!(report["legitimate_failed"], 0, "{report}");
    assert!(report["extra_rss_bytes"].as_u64().unwrap() < 50_000_000, "{report}");
}
