//! Routes below `machines/`.

use crate::{
    AllocateOptions, CommissionOptions, CreateMachine, DeployOptions, MachineFilter,
    PowerParameterValue, PowerSettings, ReleaseOptions, StorageLayout, UpdateMachine,
};

use super::routes::{Args, Route, facts_of};
use super::rules::{
    Param,
    Rule::{Base64, Lower, Many, Number, Prefix, Text, Words},
    optional, required,
};

const TRUE: &[&str] = &["true"];
const COMMENT: &[Param] = &[optional("comment", Text)];

const IDS: &[Param] = &[optional("id", Many)];

const FILTERS: &[Param] = &[
    optional("id", Many),
    optional("hostname", Many),
    optional("mac_address", Lower),
    optional("status", Many),
    optional("owner", Many),
    optional("zone", Many),
    optional("pool", Many),
    optional("tags", Many),
    optional("agent_name", Many),
];

const CREATE: &[Param] = &[
    required("architecture", Text),
    optional("mac_addresses", Lower),
    optional("hostname", Text),
    optional("description", Text),
    optional("domain", Text),
    optional("zone", Text),
    optional("pool", Text),
    optional("min_hwe_kernel", Text),
    required("commission", Words(&["true", "false"])),
    optional("power_type", Text),
    optional("power_parameters_", Prefix),
];

const UPDATE: &[Param] = &[
    optional("hostname", Text),
    optional("description", Text),
    optional("domain", Text),
    optional("zone", Text),
    optional("pool", Text),
    optional("architecture", Text),
    optional("min_hwe_kernel", Text),
    optional("power_type", Text),
    optional("power_parameters_", Prefix),
];

const COMMISSION: &[Param] = &[
    optional("enable_ssh", Words(TRUE)),
    optional("skip_bmc_config", Words(TRUE)),
    optional("skip_networking", Words(TRUE)),
    optional("skip_storage", Words(TRUE)),
    optional("commissioning_scripts", Text),
    optional("testing_scripts", Text),
];

const DEPLOY: &[Param] = &[
    optional("distro_series", Text),
    optional("hwe_kernel", Text),
    optional("user_data", Base64),
    optional("enable_hw_sync", Words(TRUE)),
    optional("ephemeral_deploy", Words(TRUE)),
    optional("comment", Text),
    optional("agent_name", Text),
];

const RELEASE: &[Param] = &[
    optional("comment", Text),
    optional("erase", Words(TRUE)),
    optional("secure_erase", Words(TRUE)),
    optional("quick_erase", Words(TRUE)),
    optional("force", Words(TRUE)),
];

const LAYOUT: &[Param] = &[
    required("storage_layout", Text),
    optional("root_device", Number),
    optional("root_size", Text),
    optional("boot_size", Text),
    optional("vg_name", Text),
    optional("lv_name", Text),
    optional("lv_size", Text),
];

const ALLOCATE: &[Param] = &[
    required("system_id", Text),
    optional("agent_name", Text),
    optional("comment", Text),
    optional("dry_run", Words(TRUE)),
];

pub(crate) fn routes() -> Vec<Route> {
    let mut routes = collection();
    routes.extend(one());
    routes.extend(lifecycle());
    routes
}

fn collection() -> Vec<Route> {
    let mut list = Route::new("GET", "machines/", None, FILTERS, |c, a| {
        Box::pin(async move { facts_of(c.machines(&filter(a))).await })
    })
    .sample(&[("hostname", "sample")]);
    list.at_least_one = true;
    vec![
        list,
        Route::new("GET", "machines/", Some("power_parameters"), IDS, |c, a| {
            Box::pin(async move { facts_of(c.power_parameters_of(&a.many("id"))).await })
        }),
        Route::new("POST", "machines/", None, CREATE, |c, a| {
            Box::pin(async move { facts_of(c.create_machine(&create(a))).await })
        }),
        Route::new("POST", "machines/", Some("allocate"), ALLOCATE, |c, a| {
            Box::pin(async move { facts_of(c.allocate(&allocate(a))).await })
        })
        .sample(&[("system_id", "sample")]),
    ]
}

fn one() -> Vec<Route> {
    let mut update = Route::new("PUT", "machines/{s}/", None, UPDATE, |c, a| {
        Box::pin(async move { facts_of(c.update_machine(a.segment(0), &change(a))).await })
    })
    .sample(&[("description", "sample")]);
    update.at_least_one = true;
    vec![
        update,
        Route::new("GET", "machines/{s}/", None, &[], |c, a| {
            Box::pin(facts_of(c.machine(a.segment(0))))
        }),
        Route::new("GET", "machines/{s}/", Some("power_parameters"), &[], |c, a| {
            Box::pin(facts_of(c.power_parameters(a.segment(0))))
        }),
        Route::new("GET", "machines/{s}/", Some("query_power_state"), &[], |c, a| {
            Box::pin(facts_of(c.query_power_state(a.segment(0))))
        }),
        Route::new("DELETE", "machines/{s}/", None, &[], |c, a| {
            Box::pin(facts_of(c.delete_machine(a.segment(0))))
        }),
    ]
}

fn lifecycle() -> Vec<Route> {
    const PATH: &str = "machines/{s}/";
    const BROKEN: &[Param] = &[required("comment", Text)];
    const OFF: &[Param] = &[optional("comment", Text), optional("stop_mode", Words(&["soft"]))];
    vec![
        Route::new("POST", PATH, Some("commission"), COMMISSION, |c, a| {
            Box::pin(async move { facts_of(c.commission(a.segment(0), &commission(a))).await })
        }),
        Route::new("POST", PATH, Some("deploy"), DEPLOY, |c, a| {
            Box::pin(async move { facts_of(c.deploy(a.segment(0), &deploy(a))).await })
        }),
        Route::new("POST", PATH, Some("release"), RELEASE, |c, a| {
            Box::pin(async move { facts_of(c.release(a.segment(0), &release(a))).await })
        }),
        Route::new("POST", PATH, Some("set_storage_layout"), LAYOUT, |c, a| {
            Box::pin(async move { facts_of(c.set_storage_layout(a.segment(0), &layout(a))).await })
        }),
        Route::new("POST", PATH, Some("abort"), COMMENT, |c, a| {
            Box::pin(facts_of(c.abort(a.segment(0), a.text("comment"))))
        }),
        Route::new("POST", PATH, Some("mark_broken"), BROKEN, |c, a| {
            Box::pin(facts_of(c.mark_broken(a.segment(0), a.text("comment").unwrap_or_default())))
        }),
        Route::new("POST", PATH, Some("mark_fixed"), COMMENT, |c, a| {
            Box::pin(facts_of(c.mark_fixed(a.segment(0), a.text("comment"))))
        }),
        Route::new("POST", PATH, Some("power_on"), COMMENT, |c, a| {
            Box::pin(facts_of(c.power_on(a.segment(0), a.text("comment"))))
        }),
        Route::new("POST", PATH, Some("power_off"), OFF, |c, a| {
            let soft = a.text("stop_mode").is_some();
            Box::pin(facts_of(c.power_off(a.segment(0), soft, a.text("comment"))))
        }),
        Route::new("POST", PATH, Some("lock"), COMMENT, |c, a| {
            Box::pin(facts_of(c.lock(a.segment(0), a.text("comment"))))
        }),
        Route::new("POST", PATH, Some("unlock"), COMMENT, |c, a| {
            Box::pin(facts_of(c.unlock(a.segment(0), a.text("comment"))))
        }),
        Route::new("POST", PATH, Some("override_failed_testing"), COMMENT, |c, a| {
            Box::pin(facts_of(c.override_failed_testing(a.segment(0), a.text("comment"))))
        }),
    ]
}

fn filter(a: &Args) -> MachineFilter {
    MachineFilter {
        ids: a.many("id"),
        hostnames: a.many("hostname"),
        mac_addresses: a.many("mac_address"),
        statuses: a.many("status"),
        owners: a.many("owner"),
        zones: a.many("zone"),
        pools: a.many("pool"),
        tags: a.many("tags"),
        agent_names: a.many("agent_name"),
        not_hostnames: a.many("not_hostname"),
        not_tags: a.many("not_tags"),
        power_states: a.many("power_state"),
    }
}

fn power(a: &Args) -> Option<PowerSettings> {
    let secret = |(name, value): (String, String)| (name, PowerParameterValue::new(value));
    let parameters = a.prefixed("power_parameters_").into_iter().map(secret).collect();
    a.owned("power_type").map(|power_type| PowerSettings { power_type, parameters })
}

fn create(a: &Args) -> CreateMachine {
    CreateMachine {
        architecture: a.owned("architecture").unwrap_or_default(),
        mac_addresses: a.many("mac_addresses"),
        hostname: a.owned("hostname"),
        description: a.owned("description"),
        domain: a.owned("domain"),
        zone: a.owned("zone"),
        pool: a.owned("pool"),
        min_hwe_kernel: a.owned("min_hwe_kernel"),
        power: power(a),
        commission: a.flag("commission"),
    }
}

fn change(a: &Args) -> UpdateMachine {
    UpdateMachine {
        hostname: a.owned("hostname"),
        description: a.owned("description"),
        domain: a.owned("domain"),
        zone: a.owned("zone"),
        pool: a.owned("pool"),
        architecture: a.owned("architecture"),
        min_hwe_kernel: a.owned("min_hwe_kernel"),
        power: power(a),
    }
}

fn commission(a: &Args) -> CommissionOptions {
    CommissionOptions {
        enable_ssh: a.flag("enable_ssh"),
        skip_bmc_config: a.flag("skip_bmc_config"),
        skip_networking: a.flag("skip_networking"),
        skip_storage: a.flag("skip_storage"),
        commissioning_scripts: a.list("commissioning_scripts").unwrap_or_default(),
        testing_scripts: a.list("testing_scripts"),
    }
}

fn allocate(a: &Args) -> AllocateOptions {
    AllocateOptions {
        system_id: a.owned("system_id").unwrap_or_default(),
        agent_name: a.owned("agent_name"),
        comment: a.owned("comment"),
        dry_run: a.flag("dry_run"),
    }
}

fn deploy(a: &Args) -> DeployOptions {
    use base64::Engine as _;
    let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    DeployOptions {
        distro_series: a.owned("distro_series"),
        hwe_kernel: a.owned("hwe_kernel"),
        user_data: a.text("user_data").map(decode),
        enable_hw_sync: a.flag("enable_hw_sync"),
        comment: a.owned("comment"),
        agent_name: a.owned("agent_name"),
        ephemeral_deploy: a.flag("ephemeral_deploy"),
    }
}

fn release(a: &Args) -> ReleaseOptions {
    ReleaseOptions {
        comment: a.owned("comment"),
        erase: a.flag("erase"),
        secure_erase: a.flag("secure_erase"),
        quick_erase: a.flag("quick_erase"),
        force: a.flag("force"),
    }
}

fn layout(a: &Args) -> StorageLayout {
    StorageLayout {
        layout: a.owned("storage_layout").unwrap_or_default(),
        root_device: a.number("root_device"),
        root_size: a.owned("root_size"),
        boot_size: a.owned("boot_size"),
        vg_name: a.owned("vg_name"),
        lv_name: a.owned("lv_name"),
        lv_size: a.owned("lv_size"),
    }
}
