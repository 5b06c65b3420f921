//! The listener on a bridge of its own, with a guest in a network namespace.

use std::process::Command;
use std::process::Stdio;

use gpuaas_types::slice::slice_folder;
use host_facts::HostRoot;

use super::guest_call::{self, GuestCallSettings};
use super::guest_listener::GuestCallListener;
use crate::host::Host;

/// Set in the namespace that is the host's.
const INSIDE: &str = "GPUAAS_TEST_GUEST_BRIDGE";
/// A bridge with one guest behind it. Prints the guest's process.
const NETWORK: &str = r"
set -euo pipefail
ip link set lo up
ip link add ovsbr0 type bridge
ip addr add 10.100.0.1/24 dev ovsbr0
ip link set ovsbr0 up
mkfifo fifo
unshare --net bash -c 'echo ready >fifo; exec sleep 60' >&2 &
guest=$!
read -r _ <fifo
ip link add tap1 type veth peer name eth0 netns $guest
ip link set tap1 master ovsbr0 up
nsenter --target $guest --net -- ip addr add 10.100.0.11/24 dev eth0
nsenter --target $guest --net -- ip link set eth0 up
echo $guest
";
/// Posts to the path and prints the status; prints nothing where nobody listens.
const POST: &str = r#"
exec 8<>/dev/tcp/10.100.0.1/18775 || exit 0
printf 'POST %s HTTP/1.1\r\nContent-Length: 3\r\n\r\na=b' "$0" >&8
read -r line <&8; printf '%s' "${line%$'\r'}"
"#;

/// Standard output of bash, in the guest's namespace where one is named.
async fn bash(folder: &std::path::Path, guest: Option<&str>, arguments: &[&str]) -> String {
    let mut command = Command::new(if guest.is_some() { "nsenter" } else { "bash" });
    if let Some(guest) = guest {
        command.args(["--target", guest, "--net", "--", "timeout", "20", "bash"]);
    }
    command.current_dir(folder).stdin(Stdio::null()).arg("-c").args(arguments);
    let ended = tokio::task::spawn_blocking(move || {
        // The guest's process keeps the pipe of errors.
        command.stderr(Stdio::null()).output()
    });
    String::from_utf8(ended.await.unwrap().unwrap().stdout).unwrap().trim().to_owned()
}

/// Starts the test below in namespaces of its own, where they can be made.
#[test]
fn a_guest_reaches_the_listener_over_the_bridge_while_it_is_expected() {
    let namespaces = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let can = Command::new("unshare").args(namespaces).args(["ip", "link"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        test_report::skip("kernel", "no network namespace can be made, or there is no ip");
        return;
    }
    let inside = "slice::guest_bridge_tests::inside_of_the_namespace";
    let output = Command::new("unshare")
        .args(namespaces)
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", inside, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{wrong}");
}

#[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

#[tokio::test]
#[ignore = "changes the network: the test above starts it in a namespace"]
async fn inside_of_the_namespace() {
    assert!(is_inside(), "only in a namespace of its own");
    let dir = tempfile::tempdir().unwrap();
    let guest = bash(dir.path(), None, &[NETWORK]).await;
    assert!(guest.parse::<u32>().is_ok(), "no guest: {guest:?}");
    let root = HostRoot::new(dir.path());
    std::fs::create_dir_all(dir.path().join("etc/gpuaas")).unwrap();
    let settings = "GPUAAS_SLICE_BRIDGE=ovsbr0\nGPUAAS_SLICE_GATEWAY=10.100.0.1/24\n\
                    GPUAAS_SLICE_GUEST_CALL_PORT=18775\n";
    std::fs::write(dir.path().join("etc/gpuaas/slice.env"), settings).unwrap();
    let claim = "01913f6e-7c00-7000-8000-000000000001".parse().unwrap();
    let folder = root.join(slice_folder(claim).trim_start_matches('/'));
    std::fs::create_dir_all(&folder).unwrap();
    let settings = GuestCallSettings::read(&root).unwrap().unwrap();
    let seed = guest_call::expect_call(&folder, claim, &settings).unwrap();
    let path = seed.split_once(":18775").unwrap().1.lines().next().unwrap().to_owned();
    let (host, listener) = (Host::Root(root), GuestCallListener::default());
    let from_guest = async || bash(dir.path(), Some(&guest), &[POST, &path]).await;
    assert_eq!(from_guest().await, "", "nobody listens yet");
    listener.update(&host).await.unwrap();
    assert_eq!(from_guest().await, "HTTP/1.1 204 No Content");
    let call = guest_call::received_call(&folder).unwrap();
    assert!(call.starts_with("the guest called from 10.100.0.11 at "), "{call}");
    listener.update(&host).await.unwrap();
    assert_eq!(from_guest().await, "", "nobody is expected any more");
    // A bridge that is not there is said, and not found out by waiting.
    guest_call::expect_call(&folder, claim, &settings).unwrap();
    bash(dir.path(), None, &["ip link del ovsbr0"]).await;
    assert_eq!(listener.update(&host).await.unwrap_err().code, "guest_call_unbound");
}
