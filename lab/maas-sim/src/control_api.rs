//! The control API below `/sim/v1/`: faults, statistics, people. No MAAS has it; it takes no
//! credentials, and its calls are not counted.
//!
//! | path | method | what |
//! |---|---|---|
//! | `stats` | GET | [`crate::Stats`] |
//! | `stats` | DELETE | forget the counters |
//! | `machines` | GET | the inventory: [`crate::HostView`] |
//! | `uploads` | GET | `appended_bytes`: of all images, as far as they came |
//! | `faults` | GET, POST, DELETE | list, add ([`crate::Fault`], one or a list), clear |
//! | `human` | POST | [`crate::HumanAction`] |

use serde_json::{Value, json};

use crate::faults::parse_faults;
use crate::human_action::HumanAction;
use crate::region::Region;
use crate::stats::Stats;
use crate::wire::{SimRequest, SimResponse};

fn bad(text: impl std::fmt::Display) -> SimResponse {
    SimResponse::text(400, text.to_string())
}

fn value(of: &impl serde::Serialize) -> SimResponse {
    serde_json::to_value(of).map_or_else(bad, |v| SimResponse::json(&v))
}

pub(crate) fn handle(region: &mut Region, request: &SimRequest, path: &str) -> SimResponse {
    let what = path.strip_prefix("/sim/v1/").unwrap_or("").trim_end_matches('/');
    match (request.method.as_str(), what) {
        ("GET", "stats") => {
            let mut out = serde_json::to_value(&region.stats).unwrap_or(Value::Null);
            out["now_us"] = json!(region.now);
            out["calls"] = json!(region.stats.calls());
            out["bytes"] = json!(region.stats.bytes());
            out["double_deploys"] = json!(region.stats.double_deploys());
            SimResponse::json(&out)
        }
        ("DELETE", "stats") => {
            region.stats = Stats::default();
            SimResponse::text(200, "OK")
        }
        ("GET", "machines") => value(&region.hosts()),
        ("GET", "uploads") => value(&json!({"appended_bytes": region.uploaded_bytes()})),
        ("GET", "faults") => {
            let rows: Vec<Value> = region
                .faults
                .all()
                .map(|(fault, fired)| json!({"fault": fault, "fired": fired}))
                .collect();
            SimResponse::json(&Value::Array(rows))
        }
        ("POST", "faults") => add_faults(region, request),
        ("DELETE", "faults") => {
            region.clear_faults();
            SimResponse::text(200, "OK")
        }
        ("POST", "human") => match serde_json::from_slice::<HumanAction>(&request.body) {
            Ok(action) => match region.apply_human_action(region.now, &action) {
                Ok(()) => SimResponse::text(200, "OK"),
                Err(error) => SimResponse::text(409, error.to_string()),
            },
            Err(error) => bad(error),
        },
        _ => SimResponse::text(
            404,
            "unknown path: expected stats, machines, uploads, faults or human",
        ),
    }
}

fn add_faults(region: &mut Region, request: &SimRequest) -> SimResponse {
    let text = String::from_utf8_lossy(&request.body).into_owned();
    let single = text.trim_start().starts_with('{') && !text.contains("\"faults\"");
    let list = parse_faults(&if single { format!("[{text}]") } else { text });
    match list {
        Ok(faults) => {
            let ids: Vec<u64> = faults.into_iter().map(|f| region.inject(f)).collect();
            SimResponse::json(&json!(ids))
        }
        Err(error) => bad(error),
    }
}
