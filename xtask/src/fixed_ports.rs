//! Ports in tests: a test that listens on a port of its own choice fails on a machine where somebody
//! else does, such as the README's own servers. Port 0 takes a free one.

/// What binds a socket to what follows.
const BINDS: [&str; 3] = ["::bind(", "--listen", "--node-listen"];

/// Whether this line of a test listens on a port that it names.
pub(crate) fn is_fixed(path: &str, line: &str) -> bool {
    let line = line.trim_start();
    if !path.ends_with(".rs") || line.starts_with("//") {
        return false;
    }
    BINDS.iter().any(|mark| {
        // Texts for people name the usual ports behind these; a test's own arguments do not.
        let is_argument = mark.starts_with("--");
        (!is_argument || is_test(path))
            && line.match_indices(mark).any(|(at, _)| names_a_port(&line[at + mark.len()..]))
    })
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// `127.0.0.1:8080`, `[::1]:8080`, `"127.0.0.1", 8080` or `([127, 0, 0, 1], 8080)` at the begin.
fn names_a_port(rest: &str) -> bool {
    let rest = rest.trim_start_matches("SocketAddr::from");
    let rest = rest.trim_start_matches(|c| "(\"=&, ".contains(c));
    let end = |c: char| !(c.is_ascii_hexdigit() || ".:[]".contains(c));
    let address = &rest[..rest.find(end).unwrap_or(rest.len())];
    let is_address = address.contains(['.', ':']) && !address.starts_with(':');
    let port = match address.rsplit_once(':') {
        Some((_, port)) if is_address => Some(port),
        _ if is_address => rest[address.len()..].strip_prefix("\", "),
        _ if rest.starts_with('[') => rest.split_once("], ").map(|(_, port)| port),
        _ => None,
    };
    let digits = port.map_or("", |port| {
        port.split(|c: char| !(c.is_ascii_digit() || c == '_')).next().unwrap_or_default()
    });
    digits.replace('_', "").parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_names_its_port_is_seen() {
        for line in [
            "let a = TcpListener::bind(\"127.0.0.1:8080\").unwrap();",
            "std::net::TcpListener::bind((\"127.0.0.1\", 5240))",
            "TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 8443))).await",
            "UdpSocket::bind(\"[::1]:53\")",
            "rig.good(\"serve --listen 127.0.0.1:8080 --data x\");",
            "[\"serve\", \"--node-listen\", \"127.0.0.1:8443\", \"--data\"]",
        ] {
            assert!(is_fixed("crates/a/tests/b.rs", line), "{line}");
        }
    }

    #[test]
    fn free_ports_and_texts_pass() {
        for line in [
            "let a = TcpListener::bind(\"127.0.0.1:0\").unwrap();",
            "TcpListener::bind(listen).await?",
            "TcpListener::bind(([127, 0, 0, 1], 0))",
            "let server = Server::bind(address, 3);",
            "[\"serve\", \"--listen\", \"127.0.0.1:0\", \"--machines\", \"100\"]",
            "(&[\"--listen\", \"[::]:0\", \"--hosts\", \"fleet\", \"--real-hosts\", \"1\"], true),",
            "// serve --listen 127.0.0.1:8080",
        ] {
            assert!(!is_fixed("crates/a/tests/b.rs", line), "{line}");
        }
        let hint = "let serve = \"gpuaas serve --node-listen 0.0.0.0:8443\";";
        assert!(!is_fixed("crates/a/src/hint.rs", hint));
        assert!(!is_fixed("bundles/tests/x.sh", "--listen 127.0.0.1:8080"));
    }
}
