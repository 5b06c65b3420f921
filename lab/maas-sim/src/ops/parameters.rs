//! What each operation takes, for `describe/`: the command line of MAAS builds its arguments from
//! it. Names are listed by the label of the operation; a name with `!` must be given.

/// Parameters by label.
pub(super) const PARAMETERS: &[(&str, &str)] = &[
    ("users.create", "username! email! password! is_superuser!"),
    ("user.delete", "transfer_resources_to"),
    ("account.create_token", "name"),
    ("account.delete_token", "token_key!"),
    ("account.update_token", "token! name!"),
    ("sshkeys.create", "key!"),
    ("maas.get_config", "name!"),
    ("maas.set_config", "name! value"),
    (
        "machines.list",
        "id hostname mac_address domain zone pool agent_name owner status power_state arch tags not_tags cpu_count mem fabrics vlans subnets link_speed pod devices interfaces storage",
    ),
    ("nodes.list", "id hostname mac_address domain zone pool agent_name owner status"),
    ("nodes.is_registered", "mac_address!"),
    (
        "machines.create",
        "architecture! mac_addresses! hostname domain description zone pool subarchitecture min_hwe_kernel power_type power_parameters power_parameters_power_address power_parameters_power_user power_parameters_power_pass power_parameters_power_driver power_parameters_skip_check commission deployed is_dpu enable_ssh skip_bmc_config skip_networking skip_storage commissioning_scripts testing_scripts",
    ),
    (
        "machine.update",
        "hostname domain description zone pool architecture min_hwe_kernel power_type power_parameters power_parameters_power_address power_parameters_power_user power_parameters_power_pass power_parameters_power_driver power_parameters_skip_check swap_size cpu_count memory is_dpu",
    ),
    ("machine.delete", "force"),
    ("machines.power_parameters", "id"),
    (
        "machines.allocate",
        "name system_id arch cpu_count mem tags not_tags zone not_in_zone pool not_in_pool pod storage interfaces fabrics subnets vlans agent_name comment bridge_all bridge_type bridge_stp bridge_fd dry_run verbose",
    ),
    ("machines.release", "machines comment"),
    ("machines.accept", "machines"),
    ("machines.set_zone", "nodes! zone!"),
    ("machines.add_chassis", "chassis_type! hostname! username password prefix_filter"),
    ("machines.clone", "source! destinations! interfaces storage"),
    (
        "machine.commission",
        "enable_ssh skip_bmc_config skip_networking skip_storage commissioning_scripts testing_scripts",
    ),
    ("machine.test", "enable_ssh testing_scripts"),
    ("machine.override_failed_testing", "comment"),
    ("machine.abort", "comment"),
    (
        "machine.deploy",
        "distro_series osystem hwe_kernel user_data agent_name comment bridge_all bridge_type bridge_stp bridge_fd install_kvm install_rackd register_vmhost ephemeral_deploy enable_hw_sync enable_kernel_crash_dump vcenter_registration license_key",
    ),
    ("machine.release", "comment erase secure_erase quick_erase force scripts"),
    ("machine.lock", "comment"),
    ("machine.unlock", "comment"),
    ("machine.mark_broken", "comment"),
    ("machine.mark_fixed", "comment"),
    ("machine.power_on", "user_data comment"),
    ("machine.power_off", "stop_mode comment"),
    (
        "machine.set_storage_layout",
        "storage_layout! boot_size root_size root_device vg_name lv_name lv_size cache_device cache_mode cache_size cache_no_part",
    ),
    ("machine.set_workload_annotations", "key"),
    ("machine.set_owner_data", "key"),
    ("machine.mount_special", "fstype! mount_point! mount_options"),
    ("machine.unmount_special", "mount_point!"),
    ("blockdevice.update", "name size"),
    ("blockdevice.format", "fstype! uuid"),
    ("blockdevice.mount", "mount_point! mount_options"),
    ("blockdevice.add_tag", "tag!"),
    ("blockdevice.remove_tag", "tag!"),
    ("partitions.create", "size uuid bootable"),
    ("partition.format", "fstype! uuid label"),
    ("partition.mount", "mount_point! mount_options"),
    ("interfaces.create_physical", "mac_address! name vlan tags mtu"),
    ("interfaces.create_bond", "name! parents! mac_address vlan tags bond_mode mtu"),
    ("interfaces.create_vlan", "parent! vlan! tags mtu"),
    ("interfaces.create_bridge", "name! parent! mac_address vlan tags bridge_type mtu"),
    ("interface.update", "name mac_address vlan tags mtu accept_ra link_connected"),
    ("interface.link_subnet", "mode! subnet ip_address force default_gateway"),
    ("interface.unlink_subnet", "id!"),
    ("interface.set_default_gateway", "link_id"),
    ("interface.add_tag", "tag!"),
    ("interface.remove_tag", "tag!"),
    ("results.list", "type hardware_type include_output filters"),
    ("result.read", "hardware_type include_output filters"),
    ("result.update", "suppressed"),
    ("result.download", "hardware_type filters output filetype"),
    ("installation_results.list", "system_id name result_type"),
    (
        "events.query",
        "id hostname mac_address zone domain agent_name owner level limit after before",
    ),
    ("tags.create", "name! comment definition kernel_opts"),
    ("tag.update", "name comment definition kernel_opts"),
    ("tag.update_nodes", "add remove definition rack_controller"),
    ("zones.create", "name! description"),
    ("zone.update", "name description"),
    ("pools.create", "name! description"),
    ("pool.update", "name description"),
    ("fabrics.create", "name description class_type"),
    ("fabric.update", "name description class_type"),
    ("vlans.create", "vid! name description mtu space"),
    ("vlan.update", "vid name description mtu dhcp_on space"),
    ("subnets.create", "cidr! name description vlan fabric vid gateway_ip dns_servers managed"),
    ("subnet.update", "cidr name description vlan gateway_ip dns_servers managed"),
    ("ipranges.create", "type! start_ip! end_ip! subnet comment"),
    ("iprange.update", "start_ip end_ip comment"),
    ("discovery.scan", "cidr force always_use_ping slow threads"),
    ("images.list", "type"),
    ("images.create", "name! architecture! sha256! size! title filetype base_image content"),
    ("scripts.list", "type hardware_type include_script filters"),
    (
        "scripts.create",
        "name! script! title description tags type hardware_type parallel packages timeout destructive comment for_hardware may_reboot recommission apply_configured_networking",
    ),
    ("script.read", "include_script"),
    (
        "script.update",
        "name title description tags type hardware_type parallel packages timeout destructive script comment for_hardware may_reboot recommission apply_configured_networking",
    ),
    ("script.download", "revision"),
    ("script.revert", "to!"),
    ("script.add_tag", "tag!"),
    ("script.remove_tag", "tag!"),
    ("files.list", "prefix"),
    ("files.create", "filename! file!"),
    ("files.get", "filename!"),
];

/// Parameters that are no plain text: the type, and the names that have it.
const TYPES: &[(&str, &str)] = &[
    (
        "Boolean",
        "is_superuser commission deployed is_dpu enable_ssh skip_bmc_config skip_networking skip_storage bridge_all bridge_stp dry_run verbose install_kvm install_rackd register_vmhost ephemeral_deploy enable_hw_sync enable_kernel_crash_dump vcenter_registration erase secure_erase quick_erase force default_gateway link_connected accept_ra include_output include_script suppressed destructive may_reboot recommission apply_configured_networking bootable managed dhcp_on authoritative always_use_ping slow cache_no_part power_parameters_skip_check",
    ),
    (
        "Int",
        "cpu_count memory mem limit after before mtu vlan vid bridge_fd link_id threads timeout ttl result_type revision to",
    ),
];

/// What is said of a name, in a few words.
const MEANINGS: &[(&str, &str)] = &[
    ("comment", "The reason, recorded in the event."),
    ("system_id", "The machine's system ID."),
    ("name", "The name."),
    ("description", "A description of its purpose."),
    ("hostname", "The hostname, without its domain."),
    ("mac_address", "The MAC address."),
    ("mac_addresses", "A MAC address; repeat the parameter for several."),
    ("architecture", "The architecture and its variant, for example amd64/generic."),
    ("power_type", "The type of power control, for example ipmi."),
    ("power_parameters", "All parameters of the power type, as one JSON object."),
    ("distro_series", "The operating system to install, for example ubuntu/jammy or custom/NAME."),
    ("user_data", "The user-data for cloud-init, in base64."),
    ("storage_layout", "The name of the layout."),
    ("mode", "AUTO, DHCP, STATIC or LINK_UP."),
    ("subnet", "The subnet, as an ID, cidr:… or name:…"),
    ("tag", "The tag."),
    ("level", "The minimum level of the events; AUDIT lists only audit events."),
    ("limit", "The maximum number of events, up to 1000."),
    ("key", "Any name; an empty value removes the key."),
];

/// The type of a parameter.
pub(super) fn type_of(name: &str) -> &'static str {
    let has = |names: &str| names.split(' ').any(|n| n == name);
    TYPES.iter().find(|(_, names)| has(names)).map_or("String", |(kind, _)| *kind)
}

/// What a parameter means.
pub(super) fn meaning_of(name: &str) -> String {
    match MEANINGS.iter().find(|(n, _)| *n == name) {
        Some((_, text)) => (*text).to_owned(),
        None => format!("The {}.", name.replace('_', " ")),
    }
}
