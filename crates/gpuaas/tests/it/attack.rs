//! A control plane under attack: a small version of `gpuaas bench attack`.

use serde_json::{Value, json};

use gpuaas_testkit::processes::{agent, gpuaas};

/// Fewer files than the attack has connections: without limits it would take all of them.
const OPEN_FILES: &str = "400";

#[test]
fn others_are_answered_while_one_address_attacks() {
    let agent = agent();
    let counts = "--silent-sockets 500 --unfinished-headers 60 --slow-bodies 10 \
                  --unread-downloads 5 --event-streams 12 --open-bodies 12 --hang-ups 20";
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
    // One caller has exactly what one caller may have, and another one has as much beside it. So few are
    // asked for that the address has a place for each connection.
    for (kind, asked) in
        [("streams_per_token", 12), ("in_flight_bodies", 12), ("legitimate_streams", 8)]
    {
        let counted = json!({ "asked": asked, "open": 8, "refused": asked - 8 });
        assert_eq!(report[kind], counted, "{report}");
    }
}
