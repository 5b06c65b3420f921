//! Small tables of a region that only its API reads and writes: routes, DNS records, repositories,
//! notifications, boot sources, devices, files. A row is the JSON that is shown.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A row as the API shows it.
pub(crate) type Row = Map<String, Value>;

/// What a field of a form takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// A flag and what it is where it is not sent.
    Flag(bool),
    /// A number or nothing.
    Number,
    /// Texts divided by commas, or sent several times.
    List,
    /// A subnet, shown whole.
    Subnet,
    /// A JSON object.
    Object,
}

/// A field of a form that is also shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    /// No two rows have the same.
    pub(crate) unique: bool,
}

/// One kind of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    /// Path of the list, without parameters.
    pub(crate) list: &'static str,
    /// Path of one, before its id.
    pub(crate) item: &'static str,
    /// Name in refusals: `No NAME matches the given query.`
    pub(crate) model: &'static str,
    /// The words for it where a row is there already.
    pub(crate) words: &'static str,
    pub(crate) fields: &'static [Field],
    /// Members that no form sets, as JSON.
    pub(crate) fixed: &'static str,
    /// Rows of a new region, as JSON.
    pub(crate) initial: &'static str,
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: false, unique: false }
}

const fn required(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: true, unique: false }
}

const fn unique(name: &'static str) -> Field {
    Field { name, kind: Kind::Text, required: true, unique: true }
}

/// The tables, found by the first part of a path.
pub(crate) const TABLES: &[Table] = &[
    Table {
        list: "static-routes",
        item: "static-routes",
        model: "StaticRoute",
        words: "Static route",
        fields: &[
            required("source", Kind::Subnet),
            required("destination", Kind::Subnet),
            required("gateway_ip", Kind::Text),
            field("metric", Kind::Number),
        ],
        fixed: "{}",
        initial: "[]",
    },
    Table {
        list: "dnsresources",
        item: "dnsresources",
        model: "DNSResource",
        words: "DNS resource",
        fields: &[
            required("fqdn", Kind::Text),
            field("address_ttl", Kind::Number),
            field("ip_addresses", Kind::List),
        ],
        fixed: "{\"resource_records\": []}",
        initial: "[]",
    },
    Table {
        list: "dnsresourcerecords",
        item: "dnsresourcerecords",
        model: "DNSData",
        words: "DNS data",
        fields: &[
            required("fqdn", Kind::Text),
            field("ttl", Kind::Number),
            required("rrtype", Kind::Text),
            required("rrdata", Kind::Text),
        ],
        fixed: "{}",
        initial: "[]",
    },
    Table {
        list: "dhcp-snippets",
        item: "dhcp-snippets",
        model: "DHCPSnippet",
        words: "DHCP snippet",
        fields: &[
            unique("name"),
            required("value", Kind::Text),
            field("description", Kind::Text),
            field("enabled", Kind::Flag(true)),
            field("global_snippet", Kind::Flag(true)),
        ],
        fixed: "{\"node\": null, \"subnet\": null, \"iprange\": null, \"history\": []}",
        initial: "[]",
    },
    Table {
        list: "package-repositories",
        item: "package-repositories",
        model: "PackageRepository",
        words: "Package repository",
        fields: &[
            unique("name"),
            required("url", Kind::Text),
            field("distributions", Kind::List),
            field("disabled_pockets", Kind::List),
            field("disabled_components", Kind::List),
            field("disable_sources", Kind::Flag(true)),
            field("components", Kind::List),
            field("arches", Kind::List),
            field("key", Kind::Text),
            field("enabled", Kind::Flag(true)),
        ],
        fixed: "{}",
        initial: "[{\"name\": \"main_archive\", \"url\": \"http://archive.ubuntu.com/ubuntu\", \"arches\": [\"amd64\", \"i386\"]}, {\"name\": \"ports_archive\", \"url\": \"http://ports.ubuntu.com/ubuntu-ports\", \"arches\": [\"armhf\", \"arm64\", \"ppc64el\", \"s390x\"]}]",
    },
    Table {
        list: "boot-sources",
        item: "boot-sources",
        model: "BootSource",
        words: "Boot source",
        fields: &[
            unique("url"),
            field("keyring_filename", Kind::Text),
            field("keyring_data", Kind::Text),
        ],
        fixed: "{\"created\": \"2026-11-01T00:00:00Z\", \"updated\": \"2026-11-01T00:00:00Z\"}",
        initial: "[{\"url\": \"http://images.maas.io/ephemeral-v3/stable/\", \"keyring_filename\": \"/usr/share/keyrings/ubuntu-cloudimage-keyring.gpg\"}]",
    },
    Table {
        list: "notifications",
        item: "notifications",
        model: "Notification",
        words: "Notification",
        fields: &[
            required("message", Kind::Text),
            field("ident", Kind::Text),
            field("users", Kind::Flag(false)),
            field("admins", Kind::Flag(false)),
            field("context", Kind::Object),
            field("category", Kind::Text),
            field("dismissable", Kind::Flag(true)),
        ],
        fixed: "{\"user\": null}",
        initial: "[{\"ident\": \"deprecation_dhcp_snippets\", \"admins\": true, \"message\": \"DHCP snippets are deprecated.\", \"category\": \"warning\"}]",
    },
    Table {
        list: "license-keys",
        item: "license-key",
        model: "LicenseKey",
        words: "License key",
        fields: &[
            required("osystem", Kind::Text),
            required("distro_series", Kind::Text),
            required("license_key", Kind::Text),
        ],
        fixed: "{}",
        initial: "[]",
    },
    Table {
        list: "devices",
        item: "devices",
        model: "Device",
        words: "Device",
        fields: &[
            field("hostname", Kind::Text),
            field("description", Kind::Text),
            required("mac_addresses", Kind::List),
        ],
        fixed: "{\"owner_data\": {}, \"workload_annotations\": {}, \"tag_names\": [], \"parent\": null, \"address_ttl\": null, \"node_type\": 1, \"node_type_name\": \"Device\"}",
        initial: "[]",
    },
    Table {
        list: "domains",
        item: "domains",
        model: "Domain",
        words: "Domain",
        fields: &[
            unique("name"),
            field("authoritative", Kind::Flag(true)),
            field("ttl", Kind::Number),
        ],
        fixed: "{\"resource_record_count\": 0, \"is_default\": false}",
        initial: "[]",
    },
    Table {
        list: "spaces",
        item: "spaces",
        model: "Space",
        words: "Space",
        fields: &[field("name", Kind::Text), field("description", Kind::Text)],
        fixed: "{\"vlans\": [], \"subnets\": []}",
        initial: "[]",
    },
    Table {
        list: "vm-hosts",
        item: "vm-hosts",
        model: "Pod",
        words: "VM host",
        fields: &[],
        fixed: "{}",
        initial: "[]",
    },
    Table {
        list: "pods",
        item: "pods",
        model: "Pod",
        words: "VM host",
        fields: &[],
        fixed: "{}",
        initial: "[]",
    },
    Table {
        list: "ipaddresses",
        item: "ipaddresses",
        model: "StaticIPAddress",
        words: "IP address",
        fields: &[],
        fixed: "{}",
        initial: "[]",
    },
    Table {
        list: "reservedips",
        item: "reservedips",
        model: "ReservedIP",
        words: "Reserved IP",
        fields: &[
            required("ip", Kind::Text),
            field("mac_address", Kind::Text),
            field("comment", Kind::Text),
        ],
        fixed: "{}",
        initial: "[]",
    },
];

/// The table whose list or item has this path.
pub(crate) fn table_of(path: &str) -> Option<&'static Table> {
    TABLES.iter().find(|t| t.list == path || t.item == path)
}

impl Table {
    /// A row with what is not sent at its default.
    pub(crate) fn row(&self, id: i64, sent: Row) -> Row {
        let mut out = Row::new();
        for field in self.fields {
            let default = match field.kind {
                Kind::Text => json!(""),
                Kind::Flag(on) => json!(on),
                Kind::Number | Kind::Subnet => Value::Null,
                Kind::List => json!([]),
                Kind::Object => json!({}),
            };
            out.insert(field.name.to_owned(), default);
        }
        if let Ok(Value::Object(fixed)) = serde_json::from_str(self.fixed) {
            out.extend(fixed);
        }
        out.extend(sent);
        out.insert("id".to_owned(), json!(id));
        let uri = format!("/MAAS/api/2.0/{}/{id}/", self.item);
        out.insert("resource_uri".to_owned(), json!(uri));
        out
    }
}

/// All rows, by their table's list.
#[derive(Debug, Clone)]
pub(crate) struct Tables(BTreeMap<&'static str, Vec<Row>>);

impl Tables {
    pub(crate) fn new() -> Self {
        let rows = |table: &Table| {
            let initial: Vec<Row> = serde_json::from_str(table.initial).unwrap_or_default();
            (1..).zip(initial).map(|(id, sent)| table.row(id, sent)).collect()
        };
        Self(TABLES.iter().map(|table| (table.list, rows(table))).collect())
    }

    pub(crate) fn rows(&self, table: &Table) -> &[Row] {
        self.0.get(table.list).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn rows_mut(&mut self, table: &Table) -> &mut Vec<Row> {
        self.0.entry(table.list).or_default()
    }
}

#[test]
fn what_a_table_says_of_itself_can_be_read() {
    for table in TABLES {
        assert!(serde_json::from_str::<Row>(table.fixed).is_ok(), "{}", table.list);
        assert!(serde_json::from_str::<Vec<Row>>(table.initial).is_ok(), "{}", table.list);
        assert_eq!(table_of(table.list).map(|t| t.list), Some(table.list));
    }
}
