//! Mistakes that people make, and what they have to be answered with.

/// One mistake.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mistake {
    /// What is typed, in the folder of the README's quick start.
    pub(super) typed: &'static str,
    /// Code of the answer.
    pub(super) code: &'static str,
    /// Part of its next step.
    pub(super) next: &'static str,
}

const fn mistake(typed: &'static str, code: &'static str, next: &'static str) -> Mistake {
    Mistake { typed, code, next }
}

/// All of them.
pub(super) const MISTAKES: &[Mistake] = &[
    mistake("gpuaas nod list", "command_line_invalid", "'node'"),
    mistake("gpuaas node lst", "command_line_invalid", "'list'"),
    mistake("gpuaas node list --stat active", "command_line_invalid", "--state"),
    mistake("gpuaas node list --state activ", "command_line_invalid", "--help"),
    mistake("gpuaas node list -o xml", "command_line_invalid", "--help"),
    mistake("gpuaas site add x", "command_line_invalid", "--api-key-file"),
    mistake("gpuaas run resume", "command_line_invalid", "--reason"),
    mistake("gpuaas node list --server ftp://x", "server_url_invalid", "http://127.0.0.1:8080"),
    mistake("gpuaas node list --server localhost:1", "server_unreachable", "gpuaas serve"),
    mistake("gpuaas node list --server http://127.0.0.1:5240", "unexpected_answer", "--server"),
    mistake("gpuaas node list --token wrong", "token_unknown", "gpuaas token reset"),
    mistake("gpuaas node list --token-file /no/such", "token_unreadable", "gpuaas serve"),
    mistake("cd / && gpuaas node list", "token_missing", "GPUAAS_TOKEN_FILE"),
    mistake(
        "gpuaas site add x --url http://127.0.0.1:1/MAAS --api-key-file api-key",
        "maas_unreachable",
        "curl URL/api/2.0/version/",
    ),
    mistake(
        "gpuaas site add x --url http://127.0.0.1:8080 --api-key-file api-key",
        "not_a_maas",
        "base URL",
    ),
    mistake(
        "echo a:b:c > bad-key; gpuaas site add x --url http://127.0.0.1:5240/MAAS --api-key-file bad-key",
        "maas_key_refused",
        "maas apikey",
    ),
    mistake(
        "echo abc > short-key; gpuaas site add x --url http://127.0.0.1:5240/MAAS --api-key-file short-key",
        "invalid_field",
        "maas apikey",
    ),
    mistake(
        "gpuaas site add x --url http://127.0.0.1:5240/MAAS --api-key-file nothing",
        "file_unreadable",
        "name a file",
    ),
    mistake(
        ": > empty; gpuaas site add x --url http://127.0.0.1:5240/MAAS --api-key-file empty",
        "secret_missing",
        "one line",
    ),
    mistake(
        "gpuaas site add lab --url http://127.0.0.1:5240/MAAS --api-key-file api-key",
        "site_name_taken",
        "gpuaas site set",
    ),
    mistake("gpuaas site show nowhere", "site_not_found", "gpuaas site list"),
    mistake("gpuaas profile add h200", "profile_name_taken", "gpuaas profile set"),
    mistake("gpuaas profile add p --preset h100", "preset_not_found", "h200-bare-metal"),
    mistake("gpuaas profile add p --set distro_serie=noble", "unknown_field", "distro_series"),
    mistake("gpuaas profile add p --set max_deploy_retry_attempts=many", "invalid_field", "errors"),
    mistake(
        "gpuaas profile add p --set site_bootstrap_bundle_ref=site-base@9.9.9",
        "bundle_not_found",
        "gpuaas bundle publish",
    ),
    mistake("gpuaas profile add Bad_Name", "invalid_field", "errors"),
    mistake(
        "gpuaas node onboard j22u11 --site lab --profile h200",
        "node_exists",
        "gpuaas node show j22u11",
    ),
    mistake(
        "gpuaas node onboard x1 --site lab --profile nothing",
        "profile_not_found",
        "gpuaas profile list",
    ),
    mistake("gpuaas node onboard bad_name --site lab --profile h200", "invalid_field", "errors"),
    mistake(
        "gpuaas node onboard x1 --site lab --profile h200 --mac 52:54:00",
        "invalid_field",
        "3c:ec:ef",
    ),
    mistake(
        "gpuaas node onboard x1 --site lab --profile h200 --bmc-address http://10.0.0.1",
        "invalid_field",
        "address alone",
    ),
    mistake(
        "gpuaas node onboard x1 --site lab --profile h200 --bmc-user admin",
        "command_line_invalid",
        "--bmc-address",
    ),
    mistake(
        "gpuaas node onboard x1 x2 --site lab --profile h200 --mac 52:54:00:00:00:01",
        "one_host_wanted",
        "one by one",
    ),
    mistake(
        "gpuaas node onboard x1 --site lab --profile h200 --machines hosts.json",
        "machine_not_listed",
        "j22u15",
    ),
    mistake("gpuaas node show nobody", "node_not_found", "gpuaas node list"),
    mistake("gpuaas run show 0198", "run_not_found", "gpuaas node show"),
    mistake("gpuaas run resume j22u11 --reason x", "run_not_parked", "gpuaas run show"),
    mistake("gpuaas node decommission j22u11", "not_confirmed", "--dry-run"),
    mistake("gpuaas node task j22u11 service restart ssh.service", "invalid_field", "errors"),
    mistake(
        "gpuaas node task j22u11 service reload nginx.service",
        "command_line_invalid",
        "--help",
    ),
    mistake("gpuaas batch start nothing.yaml", "file_unreadable", "name a file"),
    mistake(
        "printf 'hostname,mac\\na,b\\n' > m.csv; gpuaas batch start m.csv",
        "manifest_unreadable",
        "YAML",
    ),
    mistake(
        "printf 'name: r\\nmachines: []\\n' > broken.yaml; gpuaas batch start broken.yaml",
        "manifest_unreadable",
        "a manifest names",
    ),
    mistake("gpuaas batch start rack-22.yaml", "batch_invalid", "correct what the error names"),
    mistake(
        "printf 'name: r2\\nsite: lab\\nprofile: h200\\nmachines:\\n- {hostname: x1, mac_addresses: [\"52:54\"]}\\n' > mac.yaml; gpuaas batch start mac.yaml",
        "batch_invalid",
        "correct what the error names",
    ),
    mistake("gpuaas batch show nothing", "batch_not_found", "gpuaas batch list"),
    mistake("gpuaas bundle lint nothing", "file_unreadable", "bundle.yaml"),
    mistake("gpuaas bundle new site-net", "file_unreadable", "not there yet"),
    mistake("gpuaas serve --data other", "address_in_use", "--listen"),
    mistake("gpuaas serve --listen 127.0.0.1:0 --node-listen 127.0.0.1:0", "data_in_use", "--data"),
    mistake("gpuaas maas-sim", "address_in_use", "--listen"),
    mistake("gpuaas lab --scenario kill9", "unknown_scenario", "--scenario"),
    mistake(
        "echo hunter2 > pw; gpuaas site secret set lab h200-ib login_password_hash --file pw",
        "secret_malformed",
        "openssl passwd -6",
    ),
    mistake(
        "gpuaas site secret set lab h200-ib nothing --file api-key",
        "bundle_input_unknown",
        "gpuaas bundle show",
    ),
    mistake(
        "gpuaas serve --listen 127.0.0.1:0 --node-listen 0.0.0.0:0 --data other",
        "advertise_missing",
        "--advertise https://",
    ),
    mistake("GPUAAS_LOG=gpuaas=loud gpuaas node list", "log_filter_invalid", "gpuaas_engine=debug"),
    mistake(
        "gpuaas node onboard x1 --site lab --profile h200 --bmc-address 198.18.0.1",
        "node_exists",
        "gpuaas node show j22u11",
    ),
    mistake("gpuaas profile remove h200 --reason x --yes", "profile_in_use", "gpuaas node list"),
    mistake("gpuaas site remove lab --reason x --yes", "site_in_use", "gpuaas node list --site"),
];
