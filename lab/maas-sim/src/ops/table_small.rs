//! The second table of resources: rows that only the API reads and writes.

use super::actions::{create, delete, get, post, read, resource, update};
use super::call::Resource;
use super::rows;

pub(super) const SMALL: &[Resource] = &[
    resource(
        "StaticRoutesHandler",
        "static-routes/",
        &[
            read("static_routes.list", rows::list),
            create("static_routes.create", rows::create).admin(),
        ],
    ),
    resource(
        "StaticRouteHandler",
        "static-routes/{id}/",
        &[
            read("static_route.read", rows::read),
            update("static_route.update", rows::update).admin(),
            delete("static_route.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "DNSResourcesHandler",
        "dnsresources/",
        &[
            read("dnsresources.list", rows::list),
            create("dnsresources.create", rows::create).admin(),
        ],
    ),
    resource(
        "DNSResourceHandler",
        "dnsresources/{id}/",
        &[
            read("dnsresource.read", rows::read),
            update("dnsresource.update", rows::update).admin(),
            delete("dnsresource.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "DNSResourceRecordsHandler",
        "dnsresourcerecords/",
        &[read("dnsrecords.list", rows::list), create("dnsrecords.create", rows::create).admin()],
    ),
    resource(
        "DNSResourceRecordHandler",
        "dnsresourcerecords/{id}/",
        &[
            read("dnsrecord.read", rows::read),
            update("dnsrecord.update", rows::update).admin(),
            delete("dnsrecord.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "DHCPSnippetsHandler",
        "dhcp-snippets/",
        &[
            read("dhcp_snippets.list", rows::list),
            create("dhcp_snippets.create", rows::create).admin(),
        ],
    ),
    resource(
        "DHCPSnippetHandler",
        "dhcp-snippets/{id}/",
        &[
            read("dhcp_snippet.read", rows::read),
            update("dhcp_snippet.update", rows::update).admin(),
            delete("dhcp_snippet.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "PackageRepositoriesHandler",
        "package-repositories/",
        &[read("repositorys.list", rows::list), create("repositorys.create", rows::create).admin()],
    ),
    resource(
        "PackageRepositoryHandler",
        "package-repositories/{id}/",
        &[
            read("repository.read", rows::read),
            update("repository.update", rows::update).admin(),
            delete("repository.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "BootSourcesHandler",
        "boot-sources/",
        &[
            read("boot_sources.list", rows::list),
            create("boot_sources.create", rows::create).admin(),
        ],
    ),
    resource(
        "BootSourceHandler",
        "boot-sources/{id}/",
        &[
            read("boot_source.read", rows::read),
            update("boot_source.update", rows::update).admin(),
            delete("boot_source.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "NotificationsHandler",
        "notifications/",
        &[
            read("notifications.list", rows::list),
            create("notifications.create", rows::create).admin(),
        ],
    ),
    resource(
        "NotificationHandler",
        "notifications/{id}/",
        &[
            read("notification.read", rows::read),
            update("notification.update", rows::update).admin(),
            delete("notification.delete", rows::delete).admin(),
            post("dismiss", "notification.dismiss", rows::dismiss),
        ],
    ),
    resource(
        "LicenseKeysHandler",
        "license-keys/",
        &[
            read("license_keys.list", rows::list),
            create("license_keys.create", rows::create).admin(),
        ],
    ),
    resource(
        "LicenseKeyHandler",
        "license-key/{id}/",
        &[
            read("license_key.read", rows::read),
            update("license_key.update", rows::update).admin(),
            delete("license_key.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "DevicesHandler",
        "devices/",
        &[read("devices.list", rows::list), create("devices.create", rows::create)],
    ),
    resource(
        "DeviceHandler",
        "devices/{system_id}/",
        &[
            read("device.read", rows::read),
            update("device.update", rows::update),
            delete("device.delete", rows::delete),
        ],
    ),
    resource(
        "ReservedIpsHandler",
        "reservedips/",
        &[
            read("reserved_ips.list", rows::list),
            create("reserved_ips.create", rows::create).admin(),
        ],
    ),
    resource(
        "ReservedIpHandler",
        "reservedips/{id}/",
        &[
            read("reserved_ip.read", rows::read),
            update("reserved_ip.update", rows::update).admin(),
            delete("reserved_ip.delete", rows::delete).admin(),
        ],
    ),
    resource(
        "BootSourceSelectionsHandler",
        "boot-sources/{boot_source_id}/selections/",
        &[read("boot_source_selections.list", rows::selections)],
    ),
    resource("VmHostsHandler", "vm-hosts/", &[read("vm_hosts.list", rows::list)]),
    resource("PodsHandler", "pods/", &[read("pods.list", rows::list)]),
    resource("IPAddressesHandler", "ipaddresses/", &[read("ipaddresses.list", rows::list)]),
    resource("VmHostHandler", "vm-hosts/{id}/", &[read("vm_host.read", rows::read)]),
    resource("PodHandler", "pods/{id}/", &[read("pod.read", rows::read)]),
    resource(
        "CommissioningScriptsHandler",
        "commissioning-scripts/",
        &[read("commissioning_scripts.list", rows::commissioning_scripts)],
    ),
    resource(
        "FilesHandler",
        "files/",
        &[
            read("files.list", rows::files),
            create("files.create", rows::create_file),
            get("get", "files.get", rows::get_file),
        ],
    ),
    resource(
        "FileHandler",
        "files/{filename}/",
        &[read("file.read", rows::read_file), delete("file.delete", rows::delete_file)],
    ),
];
