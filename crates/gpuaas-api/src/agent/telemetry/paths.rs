//! What may be asked of a host through the control plane: the list of the edge, but for loose files
//! of a dashboard. A path with an escape or a dot segment is refused and not decoded: none of these
//! paths has one.

use std::net::SocketAddrV4;

const LONGEST: usize = 1024;
/// What only reads, below `/api/vN/`.
const READS: [&str; 23] = [
    "alarm_count",
    "alarm_log",
    "alarm_variables",
    "alarms",
    "alarms_values",
    "alert_transitions",
    "alerts",
    "allmetrics",
    "badge.svg",
    "chart",
    "charts",
    "context",
    "contexts",
    "data",
    "dbengine_stats",
    "info",
    "node_instances",
    "nodes",
    "q",
    "search",
    "variable",
    "versions",
    "weights",
];
/// Not even as a part of a dashboard's path.
const NEVER: [&str; 6] = ["stream", "mcp", "sse", "ws", "netdata.conf", "registry"];

/// Whether a path, without the slash that it begins with, may be asked for.
pub(super) fn allowed(path: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:@+,=/".contains(c);
    if path.len() > LONGEST {
        return Err("it is too long");
    }
    if !path.chars().all(plain) {
        return Err("it contains an escape or a character that is not allowed");
    }
    let mut segments: Vec<&str> = path.split('/').collect();
    if segments.last() == Some(&"") {
        segments.pop();
    }
    if segments.iter().any(|segment| matches!(*segment, "" | "." | "..")) {
        return Err("it contains an empty, `.` or `..` segment");
    }
    let never = |segment: &&str| NEVER.contains(&segment.to_ascii_lowercase().as_str());
    if segments.iter().any(never) {
        return Err("it streams data or manages Netdata");
    }
    match segments.as_slice() {
        [] | ["gpuaas", "telemetry", "health" | "netdata"] => Ok(()),
        // Netdata takes what follows for a path of its own, its API's as well.
        ["v1" | "v2" | "v3", rest @ ..] if !rest.iter().any(|s| s.eq_ignore_ascii_case("api")) => {
            Ok(())
        }
        ["api", "v1" | "v2" | "v3", name] if READS.contains(name) => Ok(()),
        ["api", ..] => Err("it is not a read-only call to Netdata's API"),
        _ => Err("the edge has no such path"),
    }
}

/// Where a redirect of the host leads, below our own path.
pub(super) fn below(
    prefix: &str,
    asked: &str,
    location: &str,
    at: SocketAddrV4,
) -> Result<String, String> {
    let foreign = || "it is on another host".to_owned();
    let place = match location.strip_prefix("http://") {
        Some(rest) => {
            let own = rest.strip_prefix(&at.to_string()).ok_or_else(foreign)?;
            if !(own.is_empty() || own.starts_with(['/', '?', '#'])) {
                return Err(foreign());
            }
            format!("/{}", own.trim_start_matches('/'))
        }
        None if location.starts_with("//") => return Err(foreign()),
        None if location.starts_with('/') => location.to_owned(),
        None if location.split(['/', '?', '#']).next().is_some_and(|s| s.contains(':')) => {
            return Err(foreign());
        }
        None => {
            let folder = asked.rsplit_once('/').map_or("", |(folder, _)| folder);
            if folder.is_empty() { format!("/{location}") } else { format!("/{folder}/{location}") }
        }
    };
    let end = place.find(['?', '#']).unwrap_or(place.len());
    allowed(&place[1..end])?;
    Ok(format!("{prefix}{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_all_there_is() {
        for good in [
            "",
            "gpuaas/telemetry/health",
            "gpuaas/telemetry/netdata",
            "gpuaas/telemetry/netdata/",
            "api/v1/info",
            "api/v3/data",
            "v1/",
            "v3/spaces/j22u11/rooms/local/overview",
            "v2/static/app.0f3a.js",
        ] {
            assert_eq!(allowed(good), Ok(()), "{good}");
        }
        for bad in [
            "gpuaas/telemetry/x",
            "gpuaas/telemetry/health/x",
            "api/v1/manage/health",
            "api/v2/claim",
            "api/v2/config",
            "api/v1/functions",
            "api/v1/registry",
            "api/v4/info",
            "api/v1/info/x",
            "api/v1",
            "api/v1/INFO",
            "host/a/api/v1/info",
            "netdata.conf",
            "v1/../api/v1/manage",
            "v1/./x",
            "v1//x",
            "/api/v1/info",
            "v1/%2e%2e/netdata.conf",
            "v1/..%2fstream",
            "v1/%252e%252e/x",
            "v1/stream",
            "v1/api/v1/manage/health",
            "v3/API/v3/settings",
            "api/v3/stream_info",
            "api/v3/stream_path",
            "v2/SSE/x",
            "v3/ws",
            "v1/a\\..\\b",
            "v1/a;b",
            "v1/ä",
        ] {
            assert!(allowed(bad).is_err(), "{bad}");
        }
        assert!(allowed(&format!("v1/{}", "x".repeat(LONGEST))).is_err());
    }

    /// The edge of a host asks for the same calls, and refuses the same.
    #[test]
    fn the_edge_has_the_same_list() {
        let edge = include_str!("../../../../../bundles/h200-ib/files/gpuaas-netdata-edge");
        let listed = |begin: &str| {
            let line = edge.lines().find_map(|line| line.trim().strip_prefix(begin)).unwrap();
            let words = line.split(')').next().unwrap().split('|');
            words.map(|word| word.replace('\\', "")).collect::<Vec<_>>()
        };
        assert_eq!(listed("\"~^/api/v[123]/("), READS);
        assert_eq!(listed("\"~*^[^?]*/("), NEVER);
    }

    #[test]
    fn a_redirect_stays_below_our_path() {
        let at: SocketAddrV4 = "10.0.0.5:19999".parse().unwrap();
        let to = |location: &str| below("/t", "gpuaas/telemetry/netdata/", location, at).ok();
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(to("/v1/"), is("/t/v1/"));
        assert_eq!(to("/v3/spaces/h/x?a=/b#c"), is("/t/v3/spaces/h/x?a=/b#c"));
        assert_eq!(to("http://10.0.0.5:19999/v1/"), is("/t/v1/"));
        assert_eq!(to("http://10.0.0.5:19999"), is("/t/"));
        assert_eq!(to("health"), None, "gpuaas/telemetry/netdata/health is none");
        assert_eq!(below("/t", "v1/a", "b", at), Ok("/t/v1/b".to_owned()));
        for bad in [
            "http://10.0.0.5/v1/",
            "http://10.0.0.5:199990/v1/",
            "http://10.0.0.5:19999@evil/v1/",
            "https://evil/",
            "//evil/v1/",
            "/\\evil",
            "javascript:alert(1)",
            "/netdata.conf",
            "../../../api/v1/manage",
            "/v1/../../../nodes",
        ] {
            assert_eq!(to(bad), None, "{bad}");
        }
    }
}
