//! Routes of nodes' parts, the region, tags, scripts and events.

use crate::{
    CurrentSet, EventLevel, EventQuery, LinkMode, LinkSubnet, MAX_EVENTS, NewBootResource,
    NewScript, ResultQuery, ResultType, ScriptFilter, UpdateInterface, UploadTarget,
};

use super::routes::{Args, Route, facts_of};
use super::rules::{
    Param,
    Rule::{Limit, Lower, Many, Number, Text, Words},
    optional, required,
};

const TRUE: &[&str] = &["true"];
const ONE: &[&str] = &["1"];
const KINDS: &[&str] = &["commissioning", "testing", "installation", "release"];
const LEVELS: &[&str] = &["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "AUDIT"];
const MODES: &[&str] = &["AUTO", "DHCP", "STATIC", "LINK_UP"];

pub(crate) fn routes() -> Vec<Route> {
    let mut routes = parts();
    routes.extend(results());
    routes.extend(region());
    routes.extend(boot_resources());
    routes.extend(tags());
    routes.extend(scripts());
    routes
}

fn parts() -> Vec<Route> {
    const INTERFACE: &str = "nodes/{s}/interfaces/{n}/";
    const CHANGE: &[Param] = &[
        optional("name", Text),
        optional("mac_address", Lower),
        optional("vlan", Number),
        optional("tags", Text),
        optional("mtu", Number),
    ];
    const LINK: &[Param] = &[
        required("mode", Words(MODES)),
        optional("subnet", Text),
        optional("ip_address", Text),
        optional("force", Words(TRUE)),
        optional("default_gateway", Words(TRUE)),
    ];
    const UNLINK: &[Param] = &[required("id", Number)];
    const DISK: &str = "nodes/{s}/blockdevices/{n}/";
    const FORMAT: &[Param] = &[required("fstype", Text)];
    const MOUNT: &[Param] = &[required("mount_point", Text)];
    let mut update = Route::new("PUT", INTERFACE, None, CHANGE, |c, a| {
        Box::pin(async move {
            facts_of(c.update_interface(a.segment(0), a.number_at(1), &change(a))).await
        })
    })
    .sample(&[("name", "sample")]);
    update.at_least_one = true;
    vec![
        update,
        Route::new("GET", "nodes/{s}/interfaces/", None, &[], |c, a| {
            Box::pin(facts_of(c.interfaces(a.segment(0))))
        }),
        Route::new("GET", INTERFACE, None, &[], |c, a| {
            Box::pin(facts_of(c.interface(a.segment(0), a.number_at(1))))
        }),
        Route::new("POST", INTERFACE, Some("link_subnet"), LINK, |c, a| {
            Box::pin(async move {
                facts_of(c.link_subnet(a.segment(0), a.number_at(1), &link(a))).await
            })
        }),
        Route::new("POST", INTERFACE, Some("unlink_subnet"), UNLINK, |c, a| {
            let id = a.number("id").unwrap_or(1);
            Box::pin(facts_of(c.unlink_subnet(a.segment(0), a.number_at(1), id)))
        }),
        Route::new("GET", "nodes/{s}/blockdevices/", None, &[], |c, a| {
            Box::pin(facts_of(c.block_devices(a.segment(0))))
        }),
        Route::new("POST", DISK, Some("set_boot_disk"), &[], |c, a| {
            Box::pin(facts_of(c.set_boot_disk(a.segment(0), a.number_at(1))))
        }),
        Route::new("POST", DISK, Some("format"), FORMAT, |c, a| {
            let fstype = a.text("fstype").unwrap_or_default();
            Box::pin(facts_of(c.format_block_device(a.segment(0), a.number_at(1), fstype)))
        }),
        Route::new("POST", DISK, Some("mount"), MOUNT, |c, a| {
            let target = a.text("mount_point").unwrap_or_default();
            Box::pin(facts_of(c.mount_block_device(a.segment(0), a.number_at(1), target)))
        }),
    ]
}

fn results() -> Vec<Route> {
    const ALL: &[Param] = &[
        optional("type", Words(KINDS)),
        optional("include_output", Words(ONE)),
        optional("filters", Text),
    ];
    const CURRENT: &[Param] = &[optional("include_output", Words(ONE)), optional("filters", Text)];
    vec![
        Route::new("GET", "nodes/{s}/results/", None, ALL, |c, a| {
            Box::pin(async move { facts_of(c.results(a.segment(0), &result_query(a))).await })
        }),
        Route::new("GET", "nodes/{s}/results/current-commissioning/", None, CURRENT, |c, a| {
            Box::pin(async move {
                facts_of(c.current_results(
                    a.segment(0),
                    CurrentSet::Commissioning,
                    &result_query(a),
                ))
                .await
            })
        }),
        Route::new("GET", "nodes/{s}/results/current-testing/", None, CURRENT, |c, a| {
            Box::pin(async move {
                facts_of(c.current_results(a.segment(0), CurrentSet::Testing, &result_query(a)))
                    .await
            })
        }),
        Route::new("GET", "nodes/{s}/results/current-installation/", None, CURRENT, |c, a| {
            Box::pin(async move {
                facts_of(c.current_results(
                    a.segment(0),
                    CurrentSet::Installation,
                    &result_query(a),
                ))
                .await
            })
        }),
    ]
}

fn region() -> Vec<Route> {
    const NAME: &[Param] = &[required("name", Text)];
    const EVENTS: &[Param] = &[
        optional("id", Many),
        optional("hostname", Many),
        optional("after", Number),
        optional("before", Number),
        optional("level", Words(LEVELS)),
        optional("limit", Limit(MAX_EVENTS)),
    ];
    let mut version =
        Route::new("GET", "version/", None, &[], |c, _| Box::pin(facts_of(c.version())));
    version.anonymous = true;
    let mut events = Route::new("GET", "events/", Some("query"), EVENTS, |c, a| {
        Box::pin(async move { facts_of(c.events(&events(a))).await })
    });
    events.not_both = &["after", "before"];
    vec![
        version,
        events,
        Route::new("GET", "users/", Some("whoami"), &[], |c, _| Box::pin(facts_of(c.whoami()))),
        Route::new("GET", "maas/", Some("get_config"), NAME, |c, a| {
            Box::pin(facts_of(c.get_config(a.text("name").unwrap_or_default())))
        }),
        Route::new("GET", "subnets/", None, &[], |c, _| Box::pin(facts_of(c.subnets()))),
    ]
}

fn boot_resources() -> Vec<Route> {
    const CREATE: &[Param] = &[
        required("name", Text),
        optional("title", Text),
        required("architecture", Text),
        optional("filetype", Text),
        optional("base_image", Text),
        required("sha256", Text),
        required("size", Number),
    ];
    const SAMPLE: &[(&str, &str)] = &[("name", "x"), ("architecture", "amd64/generic")];
    vec![
        Route::new("GET", "boot-resources/", None, &[], |c, _| {
            Box::pin(facts_of(c.boot_resources()))
        }),
        Route::new("GET", "boot-resources/{n}/", None, &[], |c, a| {
            Box::pin(facts_of(c.boot_resource(a.number_at(0))))
        }),
        Route::new("POST", "boot-resources/", None, CREATE, |c, a| {
            Box::pin(async move { facts_of(c.create_boot_resource(&new_image(a))).await })
        })
        .sample(SAMPLE),
        Route::new("PUT", "boot-resources/{n}/upload/{n}/", None, &[], |c, a| {
            let target = UploadTarget { resource_id: a.number_at(0), file_id: a.number_at(1) };
            let chunk = a.content.clone().into();
            Box::pin(async move { facts_of(c.upload_chunk(target, chunk)).await })
        }),
        Route::new("DELETE", "boot-resources/{n}/", None, &[], |c, a| {
            Box::pin(facts_of(c.delete_boot_resource(a.number_at(0))))
        }),
    ]
}

fn new_image(a: &Args) -> NewBootResource {
    NewBootResource {
        name: a.owned("name").unwrap_or_default(),
        title: a.owned("title"),
        architecture: a.owned("architecture").unwrap_or_default(),
        filetype: a.owned("filetype"),
        base_image: a.owned("base_image"),
        sha256: a.owned("sha256").unwrap_or_default(),
        size: a.number("size").unwrap_or_default(),
    }
}

fn tags() -> Vec<Route> {
    const CREATE: &[Param] = &[required("name", Text), optional("comment", Text)];
    const NODES: &[Param] = &[optional("add", Many), optional("remove", Many)];
    vec![
        Route::new("GET", "tags/", None, &[], |c, _| Box::pin(facts_of(c.tags()))),
        Route::new("GET", "tags/{s}/", None, &[], |c, a| Box::pin(facts_of(c.tag(a.segment(0))))),
        Route::new("POST", "tags/", None, CREATE, |c, a| {
            let name = a.text("name").unwrap_or_default();
            Box::pin(facts_of(c.create_tag(name, a.text("comment"), a.text("kernel_opts"))))
        }),
        Route::new("POST", "tags/{s}/", Some("update_nodes"), NODES, |c, a| {
            Box::pin(async move {
                facts_of(c.update_tag_nodes(a.segment(0), &a.many("add"), &a.many("remove"))).await
            })
        }),
    ]
}

fn scripts() -> Vec<Route> {
    const LIST: &[Param] = &[
        optional("type", Words(KINDS)),
        optional("filters", Text),
        optional("include_script", Words(ONE)),
    ];
    const CREATE: &[Param] =
        &[required("name", Text), required("type", Words(KINDS)), optional("comment", Text)];
    const READ: &[Param] = &[optional("include_script", Words(ONE))];
    const UPDATE: &[Param] = &[required("script", Text), optional("comment", Text)];
    let mut create = Route::new("POST", "scripts/", None, CREATE, |c, a| {
        Box::pin(async move { facts_of(c.create_script(&new_script(a))).await })
    });
    create.file_part = Some("script");
    vec![
        create,
        Route::new("GET", "scripts/", None, LIST, |c, a| {
            Box::pin(async move { facts_of(c.scripts(&script_filter(a))).await })
        }),
        Route::new("GET", "scripts/{s}", None, READ, |c, a| {
            Box::pin(facts_of(c.script(a.segment(0), a.flag("include_script"))))
        }),
        Route::new("PUT", "scripts/{s}", None, UPDATE, |c, a| {
            let content = a.text("script").unwrap_or_default();
            Box::pin(facts_of(c.update_script(a.segment(0), content, a.text("comment"))))
        }),
        Route::new("DELETE", "scripts/{s}", None, &[], |c, a| {
            Box::pin(facts_of(c.delete_script(a.segment(0))))
        }),
    ]
}

fn change(a: &Args) -> UpdateInterface {
    UpdateInterface {
        name: a.owned("name"),
        mac_address: a.owned("mac_address"),
        vlan_id: a.number("vlan"),
        tags: a.list("tags"),
        mtu: a.number("mtu"),
    }
}

fn link(a: &Args) -> LinkSubnet {
    let mode = match a.text("mode") {
        Some("DHCP") => LinkMode::Dhcp,
        Some("STATIC") => LinkMode::Static,
        Some("LINK_UP") => LinkMode::LinkUp,
        _ => LinkMode::Auto,
    };
    LinkSubnet {
        mode,
        subnet: a.owned("subnet"),
        ip_address: a.owned("ip_address"),
        force: a.flag("force"),
        default_gateway: a.flag("default_gateway"),
    }
}

fn kind(a: &Args) -> Option<ResultType> {
    a.text("type").map(|word| match word {
        "commissioning" => ResultType::Commissioning,
        "installation" => ResultType::Installation,
        "release" => ResultType::Release,
        _ => ResultType::Testing,
    })
}

fn result_query(a: &Args) -> ResultQuery {
    ResultQuery {
        kind: kind(a),
        filters: a.list("filters").unwrap_or_default(),
        include_output: a.flag("include_output"),
    }
}

fn events(a: &Args) -> EventQuery {
    let level = a.text("level").map(|word| match word {
        "CRITICAL" => EventLevel::Critical,
        "ERROR" => EventLevel::Error,
        "WARNING" => EventLevel::Warning,
        "INFO" => EventLevel::Info,
        "DEBUG" => EventLevel::Debug,
        _ => EventLevel::Audit,
    });
    EventQuery {
        after: a.number("after"),
        before: a.number("before"),
        ids: a.many("id"),
        hostnames: a.many("hostname"),
        level,
        limit: a.number("limit"),
    }
}

fn script_filter(a: &Args) -> ScriptFilter {
    ScriptFilter {
        kind: kind(a),
        filters: a.list("filters").unwrap_or_default(),
        include_script: a.flag("include_script"),
    }
}

fn new_script(a: &Args) -> NewScript {
    NewScript {
        name: a.owned("name").unwrap_or_else(|| "sample".to_owned()),
        kind: kind(a).unwrap_or(ResultType::Testing),
        content: a.content.clone(),
        comment: a.owned("comment"),
    }
}
