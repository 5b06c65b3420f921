//! The table of resources.

use super::actions::{create, delete, get, post, read, resource, update, with_anonymous};
use super::call::Resource;
use super::{
    abort, accounts, broken, commission, config, deploy, describe, event_query, groups, images,
    interface_create, interfaces, locks, machines, machines_many, network_writes, networks,
    partitions, power, release, rescue, results, rows, scripts, storage, tags,
};

/// All resources of the API.
pub(crate) const RESOURCES: &[&[Resource]] = &[MAIN, super::table_small::SMALL];

const MAIN: &[Resource] = &[
    resource("VersionHandler", "version/", &[read("version", config::version).for_anonymous()]),
    resource(
        "DescribeHandler",
        "describe/",
        &[read("describe", describe::describe).for_anonymous()],
    ),
    resource(
        "UsersHandler",
        "users/",
        &[
            read("users.list", accounts::users),
            get("whoami", "users.whoami", accounts::whoami),
            create("users.create", accounts::create_user).admin(),
        ],
    ),
    resource(
        "UserHandler",
        "users/{username}/",
        &[read("user.read", accounts::user), delete("user.delete", accounts::delete_user).admin()],
    ),
    resource(
        "AccountHandler",
        "account/",
        &[
            get("list_authorisation_tokens", "account.tokens", accounts::tokens),
            post("create_authorisation_token", "account.create_token", accounts::create_token),
            post("delete_authorisation_token", "account.delete_token", accounts::delete_token),
            post("update_token_name", "account.update_token", accounts::update_token_name),
        ],
    ),
    resource(
        "SSLKeysHandler",
        "account/prefs/sslkeys/",
        &[read("sslkeys.list", accounts::ssl_keys)],
    ),
    resource(
        "SSHKeysHandler",
        "account/prefs/sshkeys/",
        &[
            read("sshkeys.list", accounts::ssh_keys),
            create("sshkeys.create", accounts::create_ssh_key),
        ],
    ),
    resource(
        "SSHKeyHandler",
        "account/prefs/sshkeys/{id}/",
        &[
            read("sshkey.read", accounts::ssh_key),
            delete("sshkey.delete", accounts::delete_ssh_key),
        ],
    ),
    resource(
        "MaasHandler",
        "maas/",
        &[
            get("get_config", "maas.get_config", config::get_config),
            post("set_config", "maas.set_config", config::set_config).admin_empty_body(),
        ],
    ),
    with_anonymous(
        "MachinesHandler",
        "machines/",
        &[
            read("machines.list", machines::list),
            create("machines.create", machines::create).for_anonymous(),
            get("power_parameters", "machines.power_parameters", machines::all_power_parameters)
                .admin(),
            get("list_allocated", "machines.list_allocated", machines::list_allocated),
            post("allocate", "machines.allocate", deploy::allocate),
            post("release", "machines.release", release::release_many),
            post("accept", "machines.accept", machines_many::accept).admin(),
            post("accept_all", "machines.accept_all", machines_many::accept).admin(),
            post("set_zone", "machines.set_zone", machines_many::set_zone).admin(),
            post("add_chassis", "machines.add_chassis", machines_many::add_chassis).admin(),
            post("clone", "machines.clone", machines_many::clone).admin(),
        ],
    ),
    with_anonymous(
        "MachineHandler",
        "machines/{system_id}/",
        &[
            read("machine.read", machines::read),
            update("machine.update", machines::update),
            delete("machine.delete", machines::delete),
            get("power_parameters", "machine.power_parameters", machines::power_parameters),
            get("query_power_state", "machine.query_power_state", power::query_power_state),
            get("details", "machine.details", results::details),
            get("get_token", "machine.get_token", machines::token).admin_empty_body(),
            get("get_curtin_config", "machine.get_curtin_config", deploy::curtin_config),
            post("commission", "machine.commission", commission::commission),
            post("test", "machine.test", commission::test),
            post(
                "override_failed_testing",
                "machine.override_failed_testing",
                commission::override_failed_testing,
            ),
            post("abort", "machine.abort", abort::abort),
            post("deploy", "machine.deploy", deploy::deploy),
            post("release", "machine.release", release::release),
            post("lock", "machine.lock", locks::lock),
            post("unlock", "machine.unlock", locks::unlock),
            post("mark_broken", "machine.mark_broken", broken::mark_broken),
            post("mark_fixed", "machine.mark_fixed", broken::mark_fixed),
            post("rescue_mode", "machine.rescue_mode", rescue::rescue_mode),
            post("exit_rescue_mode", "machine.exit_rescue_mode", rescue::exit_rescue_mode),
            post("power_on", "machine.power_on", power::power_on),
            post("power_off", "machine.power_off", power::power_off),
            post("set_storage_layout", "machine.set_storage_layout", storage::set_layout),
            post("restore_storage_configuration", "machine.restore_storage", storage::restore),
            post(
                "restore_networking_configuration",
                "machine.restore_networking",
                interfaces::restore,
            ),
            post(
                "restore_default_configuration",
                "machine.restore_default",
                interfaces::restore_default,
            ),
            post(
                "set_workload_annotations",
                "machine.set_workload_annotations",
                machines::annotate,
            ),
            post("clear_default_gateways", "machine.clear_gateways", interfaces::clear_gateways),
            post("mount_special", "machine.mount_special", storage::special),
            post("unmount_special", "machine.unmount_special", storage::special),
            post("set_owner_data", "machine.set_owner_data", machines::annotate),
        ],
    ),
    with_anonymous(
        "NodesHandler",
        "nodes/",
        &[
            read("nodes.list", machines::nodes),
            get("is_registered", "nodes.is_registered", machines::is_registered).for_anonymous(),
        ],
    ),
    resource(
        "NodeHandler",
        "nodes/{system_id}/",
        &[
            read("node.read", machines::read),
            delete("node.delete", machines::delete),
            get("power_parameters", "node.power_parameters", machines::power_parameters),
            get("details", "node.details", results::details),
        ],
    ),
    resource(
        "BlockDevicesHandler",
        "nodes/{system_id}/blockdevices/",
        &[read("blockdevices.list", storage::list)],
    ),
    resource(
        "BlockDeviceHandler",
        "nodes/{system_id}/blockdevices/{id}/",
        &[
            read("blockdevice.read", storage::read),
            post("set_boot_disk", "blockdevice.set_boot_disk", storage::set_boot_disk),
            update("blockdevice.update", storage::update),
            delete("blockdevice.delete", storage::delete),
            post("format", "blockdevice.format", storage::format),
            post("unformat", "blockdevice.unformat", storage::unformat),
            post("mount", "blockdevice.mount", storage::mount),
            post("unmount", "blockdevice.unmount", storage::unmount),
            post("add_tag", "blockdevice.add_tag", storage::tag),
            post("remove_tag", "blockdevice.remove_tag", storage::tag),
        ],
    ),
    resource(
        "PartitionsHandler",
        "nodes/{system_id}/blockdevices/{device_id}/partitions/",
        &[
            read("partitions.list", partitions::list),
            create("partitions.create", partitions::create),
        ],
    ),
    resource(
        "PartitionHandler",
        "nodes/{system_id}/blockdevices/{device_id}/partition/{id}",
        &[
            read("partition.read", partitions::read),
            delete("partition.delete", partitions::delete),
            post("format", "partition.format", partitions::format),
            post("unformat", "partition.unformat", partitions::unformat),
            post("mount", "partition.mount", partitions::mount),
            post("unmount", "partition.unmount", partitions::unmount),
        ],
    ),
    resource("RaidsHandler", "nodes/{system_id}/raids/", &[read("raids.list", storage::no_groups)]),
    resource(
        "VolumeGroupsHandler",
        "nodes/{system_id}/volume-groups/",
        &[read("volume_groups.list", storage::no_groups)],
    ),
    resource(
        "BcachesHandler",
        "nodes/{system_id}/bcaches/",
        &[read("bcaches.list", storage::no_groups)],
    ),
    resource(
        "BcacheCacheSetsHandler",
        "nodes/{system_id}/bcache-cache-sets/",
        &[read("cache_sets.list", storage::no_groups)],
    ),
    resource(
        "VmfsDatastoresHandler",
        "nodes/{system_id}/vmfs-datastores/",
        &[read("datastores.list", storage::no_groups)],
    ),
    resource(
        "InterfacesHandler",
        "nodes/{system_id}/interfaces/",
        &[
            read("interfaces.list", interfaces::list),
            post("create_physical", "interfaces.create_physical", interface_create::physical),
            post("create_bond", "interfaces.create_bond", interface_create::bond),
            post("create_vlan", "interfaces.create_vlan", interface_create::tagged),
            post("create_bridge", "interfaces.create_bridge", interface_create::bridge),
        ],
    ),
    resource(
        "InterfaceHandler",
        "nodes/{system_id}/interfaces/{id}/",
        &[
            read("interface.read", interfaces::read),
            update("interface.update", interfaces::update),
            delete("interface.delete", interfaces::delete),
            post("link_subnet", "interface.link_subnet", interfaces::link),
            post("unlink_subnet", "interface.unlink_subnet", interfaces::unlink),
            post("disconnect", "interface.disconnect", interfaces::disconnect),
            post(
                "set_default_gateway",
                "interface.set_default_gateway",
                interfaces::set_default_gateway,
            ),
            post("add_tag", "interface.add_tag", interfaces::add_tag),
            post("remove_tag", "interface.remove_tag", interfaces::remove_tag),
        ],
    ),
    resource(
        "NodeResultsHandler",
        "nodes/{system_id}/results/",
        &[read("results.list", results::list)],
    ),
    resource(
        "NodeResultHandler",
        "nodes/{system_id}/results/{id}/",
        &[
            read("result.read", results::read),
            update("result.update", results::update).admin(),
            delete("result.delete", results::delete).admin(),
            get("download", "result.download", results::download),
        ],
    ),
    resource(
        "CommissioningResultsHandler",
        "installation-results/",
        &[read("installation_results.list", results::installation_results)],
    ),
    resource(
        "EventsHandler",
        "events/",
        &[get("query", "events.query", event_query::query_events)],
    ),
    resource(
        "TagsHandler",
        "tags/",
        &[
            read("tags.list", tags::tags),
            create("tags.create", tags::create_tag).admin_empty_body(),
        ],
    ),
    resource(
        "TagHandler",
        "tags/{name}/",
        &[
            read("tag.read", tags::tag),
            update("tag.update", tags::update_tag).admin_empty_body(),
            delete("tag.delete", tags::delete_tag).admin_empty_body(),
            get("machines", "tag.machines", tags::tag_machines),
            get("nodes", "tag.nodes", tags::tag_machines),
            get("devices", "tag.devices", tags::tag_others),
            get("rack_controllers", "tag.rack_controllers", tags::tag_others),
            get("region_controllers", "tag.region_controllers", tags::tag_others),
            post("rebuild", "tag.rebuild", tags::rebuild_tag),
            post("update_nodes", "tag.update_nodes", tags::tag_nodes),
        ],
    ),
    resource(
        "ZonesHandler",
        "zones/",
        &[read("zones.list", groups::zones), create("zones.create", groups::create_zone).admin()],
    ),
    resource(
        "ZoneHandler",
        "zones/{name}/",
        &[
            read("zone.read", groups::zone),
            update("zone.update", groups::update_zone).admin(),
            delete("zone.delete", groups::delete_zone).admin(),
        ],
    ),
    resource(
        "ResourcePoolsHandler",
        "resourcepools/",
        &[read("pools.list", groups::pools), create("pools.create", groups::create_pool).admin()],
    ),
    resource(
        "ResourcePoolHandler",
        "resourcepool/{id}/",
        &[
            read("pool.read", groups::pool),
            update("pool.update", groups::update_pool).admin(),
            delete("pool.delete", groups::delete_pool).admin(),
        ],
    ),
    resource(
        "DomainsHandler",
        "domains/",
        &[read("domains.list", networks::domains), create("domains.create", rows::create).admin()],
    ),
    resource(
        "DomainHandler",
        "domains/{id}/",
        &[
            read("domain.read", networks::domain),
            update("domain.update", rows::update).admin(),
            delete("domain.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "RegionControllersHandler",
        "regioncontrollers/",
        &[read("regioncontrollers.list", networks::regions)],
    ),
    resource(
        "FabricsHandler",
        "fabrics/",
        &[
            read("fabrics.list", networks::fabrics),
            create("fabrics.create", network_writes::create_fabric).admin(),
        ],
    ),
    resource(
        "FabricHandler",
        "fabrics/{id}/",
        &[
            read("fabric.read", networks::fabric),
            update("fabric.update", network_writes::update_fabric).admin(),
            delete("fabric.delete", network_writes::delete_fabric).admin(),
        ],
    ),
    resource(
        "VlansHandler",
        "fabrics/{fabric_id}/vlans/",
        &[
            read("vlans.list", networks::vlans),
            create("vlans.create", network_writes::create_vlan).admin(),
        ],
    ),
    resource(
        "VlanHandler",
        "fabrics/{fabric_id}/vlans/{vid}/",
        &[
            read("vlan.read", networks::vlan),
            update("vlan.update", network_writes::update_vlan).admin(),
            delete("vlan.delete", network_writes::delete_vlan).admin(),
        ],
    ),
    resource(
        "VlanByIdHandler",
        "vlans/{id}/",
        &[
            read("vlan.read_by_id", networks::vlan_by_id),
            update("vlan.update", network_writes::update_vlan).admin(),
            delete("vlan.delete", network_writes::delete_vlan).admin(),
        ],
    ),
    resource(
        "SpacesHandler",
        "spaces/",
        &[read("spaces.list", networks::spaces), create("spaces.create", rows::create).admin()],
    ),
    resource(
        "SpaceHandler",
        "spaces/{id}/",
        &[
            read("space.read", networks::space),
            update("space.update", rows::update).admin(),
            delete("space.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "SubnetsHandler",
        "subnets/",
        &[
            read("subnets.list", networks::subnets),
            create("subnets.create", network_writes::create_subnet).admin(),
        ],
    ),
    resource(
        "SubnetHandler",
        "subnets/{id}/",
        &[
            read("subnet.read", networks::subnet),
            update("subnet.update", network_writes::update_subnet).admin(),
            delete("subnet.delete", network_writes::delete_subnet).admin(),
            get("reserved_ip_ranges", "subnet.reserved", networks::reserved),
            get("unreserved_ip_ranges", "subnet.unreserved", networks::unreserved),
            get("statistics", "subnet.statistics", networks::statistics),
            get("ip_addresses", "subnet.ip_addresses", networks::addresses),
        ],
    ),
    resource(
        "IPRangesHandler",
        "ipranges/",
        &[
            read("ipranges.list", networks::ranges),
            create("ipranges.create", network_writes::create_range),
        ],
    ),
    resource(
        "IPRangeHandler",
        "ipranges/{id}/",
        &[
            read("iprange.read", network_writes::read_range),
            update("iprange.update", network_writes::update_range),
            delete("iprange.delete", network_writes::delete_range),
        ],
    ),
    resource(
        "DiscoveriesHandler",
        "discovery/",
        &[
            read("discovery.list", networks::discoveries),
            get("by_unknown_mac", "discovery.by_unknown_mac", networks::discoveries),
            get("by_unknown_ip", "discovery.by_unknown_ip", networks::discoveries),
            get("by_unknown_ip_and_mac", "discovery.by_unknown_ip_and_mac", networks::discoveries),
            post("scan", "discovery.scan", networks::scan),
        ],
    ),
    resource(
        "RackControllersHandler",
        "rackcontrollers/",
        &[read("rackcontrollers.list", networks::racks)],
    ),
    resource(
        "BootResourcesHandler",
        "boot-resources/",
        &[
            read("images.list", images::list),
            create("images.create", images::create).admin(),
            get("is_importing", "images.is_importing", images::is_importing),
            post("import", "images.import", images::import).admin(),
            post("stop_import", "images.stop_import", images::stop_import).admin(),
        ],
    ),
    resource(
        "BootResourceHandler",
        "boot-resources/{id}/",
        &[read("image.read", images::read), delete("image.delete", images::delete).admin()],
    ),
    resource(
        "BootResourceFileUploadHandler",
        "boot-resources/{id}/upload/{file_id}/",
        &[update("image.upload", images::upload).admin()],
    ),
    resource(
        "NodeScriptsHandler",
        "scripts/",
        &[read("scripts.list", scripts::list), create("scripts.create", scripts::create).admin()],
    ),
    resource(
        "NodeScriptHandler",
        "scripts/{name}",
        &[
            read("script.read", scripts::read),
            update("script.update", scripts::update).admin(),
            delete("script.delete", scripts::delete).admin(),
            get("download", "script.download", scripts::download),
            post("revert", "script.revert", scripts::revert).admin(),
            post("add_tag", "script.add_tag", scripts::add_tag).admin(),
            post("remove_tag", "script.remove_tag", scripts::remove_tag).admin(),
        ],
    ),
];

/// The resource of a path below the API root, with the path's parameters.
pub(super) fn find(path: &str) -> Option<(&'static Resource, Vec<String>)> {
    let wanted: Vec<&str> = path.split('/').collect();
    RESOURCES
        .iter()
        .copied()
        .flatten()
        .find_map(|resource| matched(resource.uri, &wanted).map(|parts| (resource, parts)))
}

fn matched(uri: &str, wanted: &[&str]) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut count = 0;
    for (i, piece) in uri.split('/').enumerate() {
        let given = wanted.get(i)?;
        if piece.starts_with('{') {
            if given.is_empty() {
                return None;
            }
            parts.push(crate::wire::unquote(given));
        } else if piece != *given {
            return None;
        }
        count = i + 1;
    }
    (count == wanted.len()).then_some(parts)
}
