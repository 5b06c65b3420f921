//! What a recording needs a region to be in, read from its request and its answer.

use maas_sim::{
    Fault, FaultKind, HardwareClass, MachineSpec, Region, RegionConfig, SimRequest, Status, User,
};
use serde_json::Value;

use super::{Exchange, START_US};

/// The recorded machines: two disks, two ports.
static CLASS: HardwareClass = HardwareClass {
    name: "recorded",
    nics: &[maas_sim::ETHERNET.nics[0], maas_sim::ETHERNET.nics[1]],
    disks: &[maas_sim::ETHERNET.disks[0], maas_sim::ETHERNET.disks[2]],
    tags: &[],
    ..maas_sim::ZERO
};

pub(crate) const SCRIPT: &str = "#!/bin/bash\n# --- Start MAAS 1.0 script metadata ---\n# name: gpu-burn-in\n# title: GPU burn in\n# description: demo\n# script_type: testing\n# hardware_type: node\n# timeout: 00:10:00\n# tags: gpu,burnin\n# parallel: any\n# parameters:\n#   runtime: {type: runtime, min: 10, default: 60}\n# --- End MAAS 1.0 script metadata ---\necho ok\n";

/// A region in the state that an exchange needs, and the exchange's request rewritten to the ids
/// of this region.
pub(crate) struct ReplayRegion {
    pub(crate) region: Region,
    nonce: u64,
    /// Recorded system id and the one here.
    pub(crate) ids: Vec<(String, String)>,
}

fn user(name: &str, email: &str, admin: bool, key: &str) -> User {
    User {
        name: name.to_owned(),
        password: Some(name.to_owned()),
        email: email.to_owned(),
        admin,
        keys: vec![key.to_owned()],
    }
}

impl ReplayRegion {
    pub(crate) fn new() -> Self {
        let users = vec![
            user(
                "admin",
                "admin@example.com",
                true,
                "ADMIN_CONSUMER_KEY:ADMIN_TOKEN_KEY:ADMIN_TOKEN_SECRET",
            ),
            user("alice", "alice@example.com", false, "alice-ck:alice-tk:alice-ts"),
        ];
        let config = RegionConfig { users, class: &CLASS, scale: 0.0, ..RegionConfig::default() };
        Self { region: Region::new(config), nonce: 0, ids: Vec::new() }
    }

    pub(crate) fn header(&mut self, alice: bool) -> String {
        self.nonce += 1;
        let (ck, tk, ts) = if alice {
            ("alice-ck", "alice-tk", "alice-ts")
        } else {
            ("ADMIN_CONSUMER_KEY", "ADMIN_TOKEN_KEY", "ADMIN_TOKEN_SECRET")
        };
        format!(
            "OAuth oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"{ck}\", oauth_token=\"{tk}\", oauth_signature=\"%26{ts}\", oauth_nonce=\"{}\", oauth_timestamp=\"{}\"",
            self.nonce,
            START_US / 1_000_000
        )
    }

    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        content_type: &str,
    ) -> maas_sim::SimResponse {
        let authorization = Some(self.header(false));
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = SimRequest {
            method: method.to_owned(),
            path: format!("/MAAS/api/2.0/{path}"),
            query: query.to_owned(),
            authorization,
            content_type: Some(content_type.to_owned()),
            body: body.to_vec().into(),
        };
        self.region.handle(START_US, START_US / 1_000_000, &request)
    }

    fn form(&mut self, path: &str, form: &str) -> Value {
        self.send("POST", path, form.as_bytes(), "application/x-www-form-urlencoded").body_json()
    }

    /// Adds the machine that stands for the recorded one.
    pub(crate) fn machine(&mut self, recorded: &str, spec: MachineSpec) -> String {
        let id = self.region.add_machine(spec);
        self.ids.push((recorded.to_owned(), id.clone()));
        id
    }

    pub(crate) fn read(&mut self, path: &str) -> Value {
        self.send("GET", path, b"", "").body_json()
    }
}

/// Texts of refusals and the state that they speak of.
const BY_TEXT: &[(&str, Status)] = &[
    ("Machine is not locked", Status::Deployed),
    ("Machine is already locked", Status::Deployed),
    ("Can't lock, node is not deployed", Status::Ready),
    ("hasn't been allocated", Status::New),
    ("Can't mark a non-broken", Status::New),
    ("Unable to override", Status::Ready),
    ("not in a deployment state", Status::New),
    ("storage layout on a machine that is not Ready", Status::Allocated),
    ("must be in a ready or failed testing state", Status::Allocated),
    ("Cannot set as boot disk because the machine is not Ready", Status::Deployed),
    ("Commission is not available", Status::Deploying),
    ("Test is not available", Status::Deploying),
    ("Cannot update interface interface because", Status::Commissioning),
    ("Cannot link subnet interface because", Status::Deployed),
    ("Cannot disconnect interface because", Status::Deployed),
    ("Failed to power off", Status::Deployed),
    ("No machine with system ID", Status::New),
];

/// What an accepted operation starts from, where that is not what its answer shows.
fn before(op: &str, shown: Status, body: &Value) -> Status {
    let probed = body["blockdevice_set"].as_array().is_some_and(|l| !l.is_empty());
    match op {
        "commission" | "test" if probed => Status::Ready,
        "commission" | "test" => Status::New,
        "allocate" => Status::Ready,
        "deploy" => Status::Ready,
        "release" if shown == Status::Ready && body["power_type"] != "manual" => Status::Ready,
        "release" => Status::Deployed,
        "mark_broken" => Status::Allocated,
        "mark_fixed" => Status::Broken,
        "rescue_mode" => Status::Deployed,
        "exit_rescue_mode" => Status::RescueMode,
        "power_on" if shown == Status::Deploying => Status::Allocated,
        "override_failed_testing" => Status::FailedTesting,
        _ => shown,
    }
}

fn quoted_label(text: &str) -> Option<Status> {
    let quoted = text.split('\'').skip(1).find_map(Status::from_label);
    quoted.or_else(|| {
        text.split("is in state ").nth(1).and_then(|t| Status::from_label(t.trim_end_matches('.')))
    })
}

/// The machine that the exchange is about: recorded id and what it must be.
pub(crate) fn spec(exchange: &Exchange) -> Option<(String, MachineSpec, bool)> {
    let id = exchange.system_id()?;
    let op = exchange.op().unwrap_or_default();
    let text = exchange.text();
    let body = match &exchange.body {
        Value::Array(list) => list.first().unwrap_or(&Value::Null),
        other => other,
    };
    let shown = Some(&body["status"])
        .filter(|_| body["hostname"].is_string())
        .and_then(Value::as_i64)
        .and_then(Status::from_code);
    let by_text = BY_TEXT.iter().find(|(t, _)| text.contains(t)).map(|(_, s)| *s);
    let forbidden = exchange.status == 403 && !exchange.alice;
    let (status, known) = match (exchange.status, shown) {
        (200, Some(shown)) if body["hostname"].is_string() => (before(&op, shown, body), true),
        (200, _) if op == "get_curtin_config" => (Status::Deploying, true),
        (200, _) if exchange.path.contains("/results/current-installation") => {
            (Status::FailedDeployment, true)
        }
        (200, _) if exchange.path.contains("/results") => (Status::Ready, true),
        (200 | 204, _) => (Status::Ready, true),
        _ if forbidden && op == "mark_broken" => (Status::Ready, true),
        _ if forbidden => (Status::Deployed, true),
        (403, _) if matches!(op.as_str(), "deploy" | "release") => (Status::Allocated, true),
        (403 | 404, _) => (Status::Ready, true),
        _ => match by_text.or_else(|| quoted_label(&text)) {
            Some(status) => (status, true),
            None => (
                Status::Ready,
                exchange.status < 500
                    || text.contains("rack")
                    || text.contains("IPMI")
                    || text.contains("BMC"),
            ),
        },
    };
    let mut spec = MachineSpec::new("rec01b", status);
    spec.locked = text.contains("already locked")
        || (forbidden && op != "mark_broken")
        || body["locked"] == true && op != "lock";
    if matches!(op.as_str(), "unlock") && exchange.status == 200 {
        spec.locked = true;
    }
    let manual = body["power_type"] == "manual" && exchange.method != "PUT"
        || body == &Value::Null && op == "power_off"
        || body["state"] == "unknown";
    if manual {
        spec.power_type = "manual".to_owned();
    }
    spec.macs = vec!["00:16:3e:00:01:01".to_owned(), "00:16:3e:00:01:02".to_owned()];
    if body["enable_hw_sync"] == true {
        spec.hw_sync = true;
    }
    // A released or broken machine may or may not have been probed; the body says.
    if body["blockdevice_set"].as_array().is_some_and(|l| !l.is_empty()) {
        spec.commissioned = Some(true);
    }
    if text.contains("is not available for") || op == "details" && exchange.body_bytes < 40 {
        spec.commissioned = Some(op != "details");
    }
    if op == "details" && exchange.body_bytes < 40 {
        spec.status = Status::New;
    }
    Some((id, spec, known))
}

/// Faults that lead to the exchange's answer.
pub(crate) fn faults(exchange: &Exchange) -> Vec<Fault> {
    let text = exchange.text();
    if text.contains("any rack controller") || text.contains("BMC task queue") {
        return vec![Fault::new(FaultKind::NoRack)];
    }
    if exchange.status == 500
        && (text.contains("Failed to power") || text.contains("could not be queried"))
    {
        let mut fault = Fault::new(FaultKind::BmcError);
        fault.message = Some(text);
        return vec![fault];
    }
    Vec::new()
}

/// Everything else that must be there first: tags, keys, scripts, images, other machines.
pub(crate) fn prepare_objects(replay_region: &mut ReplayRegion, exchange: &Exchange) {
    let text = exchange.text();
    let path = exchange.path.as_str();
    if path.starts_with("tags/") && exchange.status != 404 {
        let name = path.split('/').nth(1).filter(|n| !n.is_empty()).unwrap_or("rack-a");
        if path != "tags/" || exchange.method == "GET" || text.contains("already exists") {
            replay_region.form("tags/", &format!("name={name}&comment=rack A"));
        }
        if path != "tags/" && exchange.op().as_deref() == Some("machines") {
            let id = replay_region.machine("tagged", MachineSpec::new("rec01b", Status::Ready));
            replay_region.form(path, &format!("op=update_nodes&add={id}"));
        }
    }
    if path.starts_with("account/prefs/sshkeys") && exchange.body_bytes > 2
        || exchange.method == "DELETE" && path.contains("sshkeys")
    {
        let key = exchange
            .form_value("key")
            .unwrap_or_else(|| "ssh-ed25519 AAAA demo@example".to_owned());
        if exchange.method != "POST" || exchange.status == 400 {
            let key = key.replace('+', "%2B").replace(' ', "+");
            replay_region.form("account/prefs/sshkeys/", &format!("key={key}"));
        }
    }
    if path.starts_with("scripts/") && exchange.status != 404 {
        let wanted = path.trim_start_matches("scripts/");
        if exchange.method != "POST" || text.contains("already exists") {
            let name = if wanted.is_empty() { "gpu-burn-in" } else { wanted };
            let script = SCRIPT.replace("gpu-burn-in", name);
            let form = format!("name={name}&script={}", quote(&script));
            replay_region.form("scripts/", &form);
        }
    }
    if exchange.op().as_deref() == Some("test") {
        let form = format!("name=gpu-burn-in&script={}", quote(SCRIPT));
        replay_region.form("scripts/", &form);
    }
    if path == "machines/" && exchange.method == "POST" && exchange.status >= 400 {
        replay_region.form(
            "machines/",
            "architecture=amd64&hostname=rec01&commission=false&mac_addresses=00:16:3e:00:01:01&power_type=ipmi&power_parameters_power_address=10.99.0.21&power_parameters_power_user=maas&power_parameters_power_pass=secret",
        );
    }
    let custom = exchange.form_value("distro_series").filter(|_| exchange.status == 200);
    if let Some(name) = custom {
        replay_region.region.preload_image(name.trim_start_matches("custom/"));
    }
    if path.starts_with("boot-resources/")
        && exchange.status != 404
        && exchange.status != 500
        && exchange.method == "DELETE"
    {
        replay_region.region.preload_image("myimage");
    }
}

pub(crate) fn quote(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}
