//! A control plane under attack: a small version of `gpuaas bench attack`.

use serde_json::Value;

use gpuaas_testkit::processes::{agent, gpuaas};

/// Fewer files than the attack has connections: without limits it would take all of them.
const OPEN_FILES: &str = "400";

#[test]
fn others_are_answered_while_one_address_attacks() {
    let agent = agent();
    let counts = "--silent-sockets 500 --unfinished-headers 60 --slow-bodies 10 \
                  --unread-downloads 5 --event-streams 20 --open-bodies 30 --hang-ups 20";
    let output = gpuaas()
        .args(["bench", "attack", "--json", "--seconds", "0.5", "--open-files", OPEN_FILES])
        .args(counts.split_whitespace())
        .args(["--agent-binary", agent.to_str().unwrap()])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["open_files_limit"], 400, "{report}");
    assert!(report["legitimate_requests"].as_u64().unwrap() >= 20, "{report}");
    assert_eq!(report["legitimate_failed"], 0, "{report}");
    assert!(report["extra_rss_bytes"].as_u64().unwrap() < 60_000_000, "{report}");
    assert_eq!(report["hang_up"]["requests"], 20, "{report}");
    assert!(report["hang_up"]["effects"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["hang_up"]["effects"], report["hang_up"]["entries"], "{report}");
    // A connection may also be lost to the attack itself, so fewer may be open.
    for (kind, asked) in [("streams_per_token", 20), ("in_flight_bodies", 30)] {
        assert_eq!(report[kind]["asked"], asked, "{report}");
        assert!(report[kind]["open"].as_u64().unwrap() <= 8, "{report}");
    }
}
