//! The telemetry edge as the bundle's phase writes it, served by the real nginx.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use tokio::net::{TcpListener, TcpStream};

use crate::rig::Rig;
use crate::telemetry::{INFO, fault, node_at, probe};

/// The running nginx; dropping it kills the process.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).ok();
    }
}

/// The edge as the bundle's phase writes it, served by the real nginx.
#[tokio::test]
async fn the_bundles_own_edge_is_read_through_the_real_nginx() {
    let missing: Vec<&str> =
        ["bash", "nginx", "dpkg-query"].into_iter().filter(|t| !found(t)).collect();
    if !missing.is_empty() {
        test_report::skip("tool", format!("there is no {}", missing.join(", no ")));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let netdata = backend.local_addr().unwrap().port();
    let lives = tokio::spawn(async move {
        let page = |request: Request| async move {
            match request.uri().path() {
                "/api/v1/info" => INFO.into_response(),
                "/v1/" => "<html>".into_response(),
                _ => StatusCode::NOT_FOUND.into_response(),
            }
        };
        axum::serve(backend, Router::new().fallback(page)).await.unwrap();
    });
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let _nginx = nginx(folder.path(), netdata, port).await;
    let rig = Rig::with_site().await;
    node_at(&rig, "j22u11", port).await;
    let report = rig.get("/api/v1/nodes/j22u11/telemetry").await.ok();
    assert_eq!(report["verdict"], "ok", "{report:#}");
    assert_eq!(probe(&report, "health")["seen"], "HTTP 200 from nginx");
    let moved = rig.get("/api/v1/nodes/j22u11/telemetry/gpuaas/telemetry/netdata/").await;
    let place = moved.headers["location"].to_str().unwrap();
    assert_eq!(place, "/api/v1/nodes/j22u11/telemetry/v1/");
    assert_eq!(rig.get(place).await.bytes, b"<html>");
    let missing = rig.get("/api/v1/nodes/j22u11/telemetry/api/v1/chart?chart=x").await;
    assert_eq!(missing.status, 404);
    lives.abort();
    assert!(lives.await.unwrap_err().is_cancelled());
    let report = fault(&rig, "j22u11", "telemetry_backend_down").await;
    assert_eq!(probe(&report, "health")["seen"], "HTTP 502 from nginx");
}

fn found(tool: &str) -> bool {
    let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    folders.iter().any(|folder| Path::new(folder).join(tool).is_file())
}

/// Has the bundle's phase write the edge's site for a host that is a folder, and serves it.
async fn nginx(folder: &Path, netdata: u16, port: u16) -> Nginx {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let bundle = crates.parent().unwrap().join("bundles/h200-ib");
    let root = folder.join("root");
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    let package = "Package: nginx-light\nStatus: install ok installed\nVersion: 1\n\
                   Architecture: all\nMaintainer: x\nDescription: x\n\n";
    fs::write(root.join("var/lib/dpkg/status"), package).unwrap();
    let said = Command::new("bash")
        .arg(bundle.join("phases/telemetry-edge.sh"))
        .env("GPUAAS_LIB", crates.join("gpuaas-node-agent/src/bundle/host.sh"))
        .env("GPUAAS_BUNDLE_DIR", &bundle)
        .env("GPUAAS_HOST_ROOT", &root)
        .env("GPUAAS_HOSTNAME", "j22u11")
        .env("H200_ENABLE_NETDATA", "1")
        .env("H200_NETDATA_REQUIRED", "1")
        .env("H200_NETDATA_BIND", format!("127.0.0.1:{netdata}"))
        .env("H200_NETDATA_EDGE_LISTEN", format!("127.0.0.1:{port}"))
        .env("H200_TELEMETRY_ALLOW", "10.177.0.0/16")
        .env("H200_TELEMETRY_DENY", "")
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let site = root.join("etc/nginx/sites-available/gpuaas-netdata-edge");
    let at = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
        .concat();
    let conf = format!(
        "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log {at}/log;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}include {};\n}}\n",
        site.display()
    );
    fs::write(folder.join("nginx.conf"), conf).unwrap();
    let program =
        ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|p| Path::new(p).is_file());
    let server = Command::new(program.unwrap())
        .args(["-q", "-c"])
        .arg(folder.join("nginx.conf"))
        .stderr(fs::File::create(folder.join("said")).unwrap())
        .spawn()
        .unwrap();
    let nginx = Nginx(server);
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    let mut left = 1000;
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        left -= 1;
        let said = || fs::read_to_string(folder.join("said"));
        assert!(left > 0, "nginx does not listen: {:?}", said());
        looks.tick().await;
    }
    nginx
}
