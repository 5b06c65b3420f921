//! The commissioning script of the control plane's own: whether a host reaches it.
//!
//! The control plane that asks itself proves little: between it and the nodes are routes, firewalls
//! and certificates. A machine that MAAS commissions is in the network of nodes before anything is
//! deployed on it. So every profile with a commissioning bundle has this script run beside those of
//! the bundle; its text holds the address and the certificates that nodes are told, so another
//! address is another script, which has no result yet.

use gpuaas_artifact::CommissioningScript;
use gpuaas_artifact::scripts::parse_script;
use gpuaas_core::record::RunRecord;
use gpuaas_types::api::CheckResult;
use gpuaas_types::scripts::MaasScript;
use serde_json::Value;

const TEMPLATE: &str = include_str!("reach_script.sh");
/// What the script is called.
const LABEL: &str = "control-plane";

/// Whether hosts are answered here.
pub(crate) fn health_url(advertise_url: &str) -> String {
    format!("{advertise_url}/bootstrap/v1/health")
}

/// The script that asks for the health of the control plane at `advertise_url`. `trusted_pem`: whom
/// nodes trust for that; none: those whom the system trusts.
///
/// # Errors
/// What is wrong with it as a script.
pub(crate) fn reach_script(
    advertise_url: &str,
    trusted_pem: Option<&str>,
) -> Result<CommissioningScript, String> {
    // A string of JSON is one of Python with the same characters.
    let literal = |text: &str| Value::from(text).to_string();
    let text = TEMPLATE
        .replace("@URL@", &literal(&health_url(advertise_url)))
        .replace("@TRUSTED@", &literal(trusted_pem.unwrap_or_default()));
    parse_script(&text)
}

/// What the run's host said of it while it was commissioned; none: nobody asked it.
pub(crate) fn answer_of_host<'a>(
    run: &'a RunRecord,
    scripts: &[CommissioningScript],
) -> Option<&'a CheckResult> {
    let own = scripts.iter().map(|one| &one.script).find(|script| script.label == LABEL)?;
    run.state.checks.get(&MaasScript::check_name(own))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs the script as MAAS would. None: there is no Python here.
    fn run(advertise_url: &str) -> Option<(bool, String)> {
        if Command::new("python3").arg("--version").output().is_err() {
            test_report::skip("python3", "no python3");
            return None;
        }
        let script = reach_script(advertise_url, None).unwrap().text;
        let script = script.replace("PAUSE_SECONDS = 5", "PAUSE_SECONDS = 0");
        let ended = Command::new("sh").arg("-c").arg(script).output().unwrap();
        let said = String::from_utf8(ended.stdout).unwrap();
        Some((ended.status.success(), said.lines().last().unwrap_or_default().to_owned()))
    }

    #[test]
    fn a_host_that_is_answered_passes_and_says_from_where() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                // The first one only looks for its own address.
                let asked = connection.read(&mut [0; 4096]).unwrap_or_default();
                if asked > 0 {
                    connection
                        .write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
                        .unwrap();
                }
            }
        });
        let Some((passed, said)) = run(&url) else { return };
        assert!(passed, "{said}");
        assert_eq!(said, format!("{url}/bootstrap/v1/health answered 127.0.0.1 with 200"));
    }

    #[test]
    fn a_host_that_is_not_answered_fails_and_its_last_line_says_so() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let Some((passed, said)) = run(&format!("http://127.0.0.1:{port}")) else { return };
        assert!(!passed && said.contains("cannot be reached from this host"), "{said}");
    }

    /// From the network of nodes, and not over loopback: in network namespaces of its own, which the
    /// superuser may make.
    #[test]
    fn a_host_in_another_network_says_whether_it_is_answered() {
        let has = |tool: &str, arguments: &[&str]| {
            Command::new(tool).args(arguments).output().is_ok_and(|ended| ended.status.success())
        };
        let tools = [
            has("unshare", &["--net", "--pid", "--fork", "--mount-proc", "true"]),
            has("ip", &["-V"]),
            has("python3", &["--version"]),
        ];
        if tools.contains(&false) {
            test_report::skip("kernel", "no network namespaces, no ip or no python3");
            return;
        }
        let script = reach_script("http://10.77.0.1:8080", None).unwrap().text;
        let script = script.replace("PAUSE_SECONDS = 5", "PAUSE_SECONDS = 0");
        let ask = |link: &str| {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/predeploy/reach_namespaces.sh");
            let mut namespaces = Command::new("bash")
                .args([path, link])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            namespaces.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            let ended = namespaces.wait_with_output().unwrap();
            let said = String::from_utf8(ended.stdout).unwrap();
            (ended.status.success(), said.lines().last().unwrap_or_default().to_owned())
        };
        let url = "http://10.77.0.1:8080/bootstrap/v1/health";
        assert_eq!(ask("up"), (true, format!("{url} answered 10.77.0.2 with 200")));
        let (passed, said) = ask("down");
        assert!(!passed && said.starts_with(&format!("{url} cannot be reached from")), "{said}");
    }

    #[test]
    fn another_address_or_authority_is_another_script() {
        let name = |url: &str, pem| reach_script(url, pem).unwrap().script.name;
        let first = name("https://10.0.0.1:8443", Some("-----BEGIN\n\"x\"\n"));
        assert!(first.starts_with("gpuaas-control-plane-"), "{first}");
        assert_ne!(first, name("https://10.0.0.2:8443", Some("-----BEGIN\n\"x\"\n")));
        assert_ne!(first, name("https://10.0.0.1:8443", None));
    }
}
