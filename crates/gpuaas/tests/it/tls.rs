//! Operators over TLS: what a client has to trust, and what it is told where it does not.

use std::process::Output;

use gpuaas_testkit::processes::{Server, agent, gpuaas};

#[test]
fn a_client_trusts_the_control_plane_by_the_file_of_its_data_folder() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (data, agent) = (path("data"), agent());
    let line = ["serve", "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0", "--tls"];
    let rest = ["--agent-binary", agent.to_str().unwrap(), "--data", &data];
    let server = Server::start(&[&line[..], &rest].concat(), dir.path().join("serve.log"), "nodes");
    let url = server.value("listening").to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");

    let (token, ca) = (format!("{data}/admin-token"), format!("{data}/ca.pem"));
    let run = |arguments: &[&str]| -> Output { gpuaas().args(arguments).output().unwrap() };
    let list = ["site", "list", "--token-file", &token, "--server"];
    let trusted = run(&[&list[..], &[&url, "--server-ca-file", &ca]].concat());
    assert!(trusted.status.success(), "{}", String::from_utf8_lossy(&trusted.stderr));

    let plain = url.replace("https://", "http://");
    for (url, code, next) in
        [(&url, "server_untrusted", "--server-ca-file"), (&plain, "server_silent", "https://")]
    {
        let refused = run(&[&list[..], &[url]].concat());
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(stderr.contains(&format!("error {code}: ")) && stderr.contains(next), "{stderr}");
    }

    let home = format!("--config-home={}", path("settings"));
    let add = [
        "context",
        "add",
        "lab",
        "--server",
        &url,
        "--token-file",
        &token,
        "--server-ca-file",
        &ca,
    ];
    let added = run(&[&add[..], &[&home]].concat());
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let listed = run(&["site", "list", &home]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
}
