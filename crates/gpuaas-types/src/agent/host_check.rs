//! What may be checked of a host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that has to be true of a host after its deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "check", rename_all = "snake_case", deny_unknown_fields)]
pub enum HostCheck {
    /// There is a file or folder.
    FileExists {
        /// Absolute path.
        path: String,
    },
    /// Something is mounted.
    MountPresent {
        /// Mount point, an absolute path.
        target: String,
    },
    /// At least so many PCI functions.
    PciPresent {
        /// Vendor, four hexadecimal digits.
        vendor: String,
        /// Device, four hexadecimal digits; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// Begin of the class, such as `0207` for InfiniBand; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// How many.
        count: u32,
    },
    /// A network link is up.
    LinkUp {
        /// Its name, or its hardware address.
        interface: String,
    },
    /// At least so many InfiniBand links are up: links of adapters, by their type. Links on top of
    /// others and those of virtual functions do not count.
    InfinibandUp {
        /// How many.
        count: u32,
        /// Which of them count: a name, whose trailing `*` stands for the rest, or
        /// [`ANY_INFINIBAND`]; none: all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
    },
    /// At least so many ports of RDMA adapters are `ACTIVE`: as the subnet manager made them
    /// (InfiniBand), or as the link is (Ethernet). Ports of virtual functions do not count.
    InfinibandPortsActive {
        /// How many.
        count: u32,
        /// `InfiniBand` or `Ethernet`; ports of the other one do not count.
        #[serde(default = "infiniband", skip_serializing_if = "is_infiniband")]
        link_layer: String,
        /// Which count: those of the adapter of a link with this name, whose trailing `*` stands for
        /// the rest, or of [`ANY_INFINIBAND`]; none: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
    },
    /// At least so many disks.
    DisksPresent {
        /// Their kernel names; a trailing `*` stands for the rest.
        name: String,
        /// How many.
        count: u32,
    },
    /// A Debian package is installed.
    PackageInstalled {
        /// Its name.
        package: String,
    },
    /// A systemd unit is active.
    UnitActive {
        /// Its name.
        unit: String,
    },
    /// At least so many PCI functions, and all of them bound to one driver.
    DriverBound {
        /// Vendor, four hexadecimal digits.
        vendor: String,
        /// Device, four hexadecimal digits; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// Begin of the class, such as `03` for displays; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// Only virtual functions count; their physical one may have the same vendor and device.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        virtual_only: bool,
        /// The driver.
        driver: String,
        /// How many.
        count: u32,
    },
    /// Every PCI function of a driver has an IOMMU group, and shares it with bridges and functions
    /// of the same driver only.
    IommuGroupsWhole {
        /// The driver, such as `vfio-pci`.
        driver: String,
    },
    /// At least so many functions that can have virtual functions, each with exactly as many as
    /// asked.
    VirtualFunctions {
        /// Vendor of the physical functions, four hexadecimal digits.
        vendor: String,
        /// Begin of their class, such as `0207` for InfiniBand; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// Virtual functions of each.
        each: u32,
        /// Physical functions.
        count: u32,
    },
    /// Each virtual function of an adapter has an identity on the fabric: node and port GUID on InfiniBand, a
    /// MAC address on Ethernet. One that a release took away is on record and counts. Functions of other
    /// devices have none.
    VirtualIdentities {
        /// Vendor of the physical functions, four hexadecimal digits.
        vendor: String,
        /// Begin of their class, such as `0207` for InfiniBand; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
    },
    /// No bridge above a function of this driver lets functions below it talk past the IOMMU: the
    /// Access Control Services that isolate are on.
    AcsIsolates {
        /// The driver, such as `vfio-pci`.
        driver: String,
    },
    /// A link has an address of a subnet.
    AddressOn {
        /// Its name; a trailing `*` stands for the rest, and [`ANY_INFINIBAND`] for any InfiniBand link.
        interface: String,
        /// The subnet; with a host part, exactly this address and prefix.
        subnet: String,
    },
    /// There is a route that covers a destination through a link.
    RoutePresent {
        /// The destination, with the length of its prefix.
        destination: String,
        /// The link's name; a trailing `*` stands for the rest, and [`ANY_INFINIBAND`] for any
        /// InfiniBand link.
        interface: String,
    },
    /// Something listens on exactly this TCP address and port, and on no other address of it.
    Listens {
        /// The address; `0.0.0.0`: all.
        address: String,
        /// The port.
        port: u16,
    },
    /// An HTTP GET on this host answers with 2xx.
    HttpAnswers {
        /// The port on 127.0.0.1.
        port: u16,
        /// The path.
        path: String,
    },
    /// Netdata on this host has metrics of each of these groups.
    NetdataCollects {
        /// The port on 127.0.0.1.
        port: u16,
        /// The groups, separated by spaces: what its contexts begin with, such as `nvidia_smi`.
        groups: String,
    },
    /// Open vSwitch has a bridge, and its datapath answers.
    OvsBridge {
        /// Its name.
        bridge: String,
    },
    /// An argument that the kernel was started with is in force: it is read as the kernel reads it, so a
    /// later contradiction wins, and quotes and lists count. An argument that turns the IOMMU on is in
    /// force as well where the kernel has IOMMU groups and was not told otherwise.
    KernelArgument {
        /// As in /proc/cmdline.
        argument: String,
    },
    /// The kernel was started with each of these arguments.
    KernelArguments {
        /// As in /proc/cmdline, separated by spaces; empty: none.
        arguments: String,
    },
    /// The NUMA nodes of each processor package have pages of 1 GiB for the GPUs there.
    GigabytePages {
        /// Vendor of the GPUs, four hexadecimal digits.
        vendor: String,
        /// Begin of their class, such as `03` for displays; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// Pages for each GPU.
        each: u32,
        /// GPUs.
        count: u32,
    },
    /// Each GPU has a module ID of its own on record, if NVSwitches join the GPUs.
    GpuModules {
        /// Vendor of the GPUs, four hexadecimal digits.
        vendor: String,
        /// Begin of their class, such as `03` for displays; none: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
    },
    /// A kernel setting has a value.
    Sysctl {
        /// With dots, such as `net.ipv4.ip_forward`.
        name: String,
        /// The value.
        value: String,
    },
    /// A file holds a line.
    FileHasLine {
        /// Absolute path.
        path: String,
        /// The line, without space around it.
        line: String,
    },
    /// nftables masquerades what comes from a subnet.
    Masquerades {
        /// The subnet.
        subnet: String,
    },
    /// nftables drops what a link sends to this host, but for DHCP and DNS, and one port where there is
    /// to be one, which has to be open.
    DropsInput {
        /// The link, such as the bridge of guests.
        interface: String,
        /// The host's address on it, with the prefix.
        gateway: String,
        /// Port of TCP that is open at the gateway's address alone; none: there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open_tcp_port: Option<u16>,
    },
    /// nftables drops what a link sends to networks through this host, that of the default route's link
    /// among them.
    DropsForward {
        /// The link, such as the bridge of guests.
        interface: String,
        /// The networks, separated by spaces.
        networks: String,
        /// Networks among these that may be reached, separated by spaces.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        except: String,
    },
    /// What comes in at a port of an Open vSwitch bridge goes to the host alone, by its flows, and not at
    /// all with an address of another port.
    OvsPortsIsolated {
        /// The bridge.
        bridge: String,
    },
    /// A configuration of dnsmasq leads to a name server: by `server`, or by the file of `resolv-file`.
    DnsUpstream {
        /// The configuration's file, an absolute path.
        path: String,
    },
    /// A site of nginx lets in no other networks than these by `allow`; single hosts where none is named.
    NginxAllows {
        /// The site's file, an absolute path.
        path: String,
        /// The networks, separated by spaces.
        networks: String,
    },
    /// A bundle ran to its end, and left its marker.
    BundleDone {
        /// The bundle's name.
        bundle: String,
    },
    /// nvidia-smi lists so many GPUs. Never for a slice host, whose GPUs are bound for passthrough.
    NvidiaGpus {
        /// How many.
        count: u32,
        /// A word of their product name, such as `H200` of `NVIDIA H200`; empty: any.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        model: String,
    },
    /// Programs can use the GPUs of a board with NVSwitches: the fabric manager is active, and the
    /// fabric state of each GPU is `Completed` with status `Success`. A host without NVSwitches needs
    /// neither.
    NvidiaFabric {},
    /// A setting of sshd is in force, as `sshd -T` prints it for root.
    SshdSetting {
        /// Its name, in any case.
        name: String,
        /// Its value; of a list, a word of it. `1` stands for `yes` and `0` for `no`.
        value: String,
    },
    /// The only command of a systemd unit, as systemd would run it, has these arguments.
    UnitStarts {
        /// Its name.
        unit: String,
        /// The arguments, separated by spaces.
        arguments: String,
    },
}

/// In the place of a link's name: any InfiniBand link. No link can be called so.
pub const ANY_INFINIBAND: &str = "type:infiniband";
/// A link layer of RDMA ports.
const INFINIBAND: &str = "InfiniBand";

/// A link's name as a check shows it.
fn link_text(interface: &str) -> &str {
    if interface == ANY_INFINIBAND { "any InfiniBand link" } else { interface }
}

fn infiniband() -> String {
    INFINIBAND.to_owned()
}

fn is_infiniband(link_layer: &str) -> bool {
    link_layer == INFINIBAND
}

impl HostCheck {
    /// Name of its finding.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::FileExists { path } => format!("file {path}"),
            Self::MountPresent { target } => format!("mount {target}"),
            Self::PciPresent { vendor, device, .. } => {
                format!("pci {vendor}:{}", device.as_deref().unwrap_or("any"))
            }
            Self::LinkUp { interface } => format!("link {interface}"),
            Self::InfinibandUp { .. } => "infiniband".to_owned(),
            Self::InfinibandPortsActive { .. } => "infiniband ports".to_owned(),
            Self::DisksPresent { name, .. } => format!("disks {name}"),
            Self::PackageInstalled { package } => format!("package {package}"),
            Self::UnitActive { unit } => format!("unit {unit}"),
            Self::DriverBound { vendor, driver, virtual_only: true, .. } => {
                format!("driver {driver} of virtual functions of {vendor}")
            }
            Self::DriverBound { vendor, device, driver, .. } => {
                format!("driver {driver} of {vendor}:{}", device.as_deref().unwrap_or("any"))
            }
            Self::IommuGroupsWhole { driver } => format!("iommu groups of {driver}"),
            Self::VirtualFunctions { vendor, .. } => format!("virtual functions of {vendor}"),
            Self::VirtualIdentities { vendor, .. } => {
                format!("identities of virtual functions of {vendor}")
            }
            Self::AcsIsolates { driver } => format!("acs above {driver}"),
            Self::AddressOn { interface, subnet } => {
                format!("address {subnet} on {}", link_text(interface))
            }
            Self::RoutePresent { destination, interface } => {
                format!("route {destination} on {}", link_text(interface))
            }
            Self::Listens { address, port } => format!("listener {address}:{port}"),
            Self::HttpAnswers { port, path } => format!("http :{port}{path}"),
            Self::NetdataCollects { .. } => "metrics of netdata".to_owned(),
            Self::OvsBridge { bridge } => format!("ovs bridge {bridge}"),
            Self::KernelArgument { argument } => format!("kernel argument {argument}"),
            Self::KernelArguments { .. } => "kernel arguments of the profile".to_owned(),
            Self::GigabytePages { .. } => "pages of 1 GiB".to_owned(),
            Self::GpuModules { .. } => "module ids of GPUs".to_owned(),
            Self::Sysctl { name, .. } => format!("sysctl {name}"),
            Self::FileHasLine { path, .. } => format!("line of {path}"),
            Self::Masquerades { subnet } => format!("masquerade of {subnet}"),
            Self::DropsInput { interface, .. } => format!("nft input from {interface}"),
            Self::DropsForward { interface, .. } => format!("nft forward from {interface}"),
            Self::OvsPortsIsolated { bridge } => format!("flows of {bridge}"),
            Self::DnsUpstream { path } => format!("upstream of {path}"),
            Self::NginxAllows { path, .. } => format!("readers of {path}"),
            Self::BundleDone { bundle } => format!("bundle {bundle}"),
            Self::NvidiaGpus { .. } => "nvidia-smi".to_owned(),
            Self::NvidiaFabric {} => "nvidia fabric".to_owned(),
            Self::SshdSetting { name, .. } => format!("sshd {}", name.to_ascii_lowercase()),
            Self::UnitStarts { unit, .. } => format!("command of {unit}"),
        }
    }
}

impl HostCheck {
    /// Arguments that the kernel has to be started with for the check to pass, in their order.
    ///
    /// ```
    /// use gpuaas_types::agent::HostCheck;
    ///
    /// let pages = HostCheck::GigabytePages {
    ///     vendor: "10de".to_owned(),
    ///     class: Some("03".to_owned()),
    ///     each: 64,
    ///     count: 8,
    /// };
    /// assert_eq!(pages.kernel_arguments(), ["hugepagesz=1G", "hugepages=512"]);
    /// ```
    #[must_use]
    pub fn kernel_arguments(&self) -> Vec<String> {
        match self {
            Self::KernelArgument { argument } => vec![argument.clone()],
            Self::KernelArguments { arguments } => {
                arguments.split_ascii_whitespace().map(str::to_owned).collect()
            }
            Self::GigabytePages { each, count, .. } => {
                let pages = u64::from(*each) * u64::from(*count);
                vec!["hugepagesz=1G".to_owned(), format!("hugepages={pages}")]
            }
            _ => Vec::new(),
        }
    }

    /// What has to be seen, as the end of a sentence.
    #[must_use]
    pub fn expected(&self) -> String {
        let at_least = |count: &u32| format!("at least {count}");
        match self {
            Self::FileExists { .. } | Self::BundleDone { .. } => "present".to_owned(),
            Self::MountPresent { .. } => "a mounted filesystem".to_owned(),
            Self::PciPresent { count, .. }
            | Self::InfinibandUp { count, .. }
            | Self::InfinibandPortsActive { count, .. }
            | Self::DisksPresent { count, .. } => at_least(count),
            Self::NvidiaGpus { count, model } if model.is_empty() => at_least(count),
            Self::NvidiaGpus { count, model } => format!("{} {model}", at_least(count)),
            Self::LinkUp { .. } => "up".to_owned(),
            Self::PackageInstalled { .. } => "installed".to_owned(),
            Self::UnitActive { .. } => "active".to_owned(),
            Self::DriverBound { driver, count, .. } => {
                format!("{}, all bound to {driver}", at_least(count))
            }
            Self::IommuGroupsWhole { .. } => "groups without other devices".to_owned(),
            Self::VirtualFunctions { each, count, .. } => {
                format!("{} with {each} virtual functions each", at_least(count))
            }
            Self::VirtualIdentities { .. } => {
                "a GUID or MAC address for each virtual function".to_owned()
            }
            Self::AcsIsolates { .. } => "the isolating ACS bits set".to_owned(),
            Self::AddressOn { subnet, .. } => format!("an address in {subnet}"),
            Self::RoutePresent { .. } => "a route that covers it".to_owned(),
            Self::Listens { .. } => "only this address".to_owned(),
            Self::HttpAnswers { .. } => "a 2xx response".to_owned(),
            Self::NetdataCollects { groups, .. } => format!("metrics of {groups}"),
            Self::OvsBridge { .. } => "a datapath that answers".to_owned(),
            Self::KernelArgument { .. } => "in effect".to_owned(),
            Self::KernelArguments { arguments } if arguments.trim().is_empty() => {
                "no arguments, as in the profile".to_owned()
            }
            Self::KernelArguments { arguments } => {
                format!("a kernel started with {arguments}")
            }
            Self::GigabytePages { each, .. } => format!("{each} pages near each GPU"),
            Self::GpuModules { .. } => "a different module ID for each GPU".to_owned(),
            Self::Sysctl { value, .. } => value.clone(),
            Self::FileHasLine { line, .. } => line.clone(),
            Self::Masquerades { .. } => "a rule that masquerades it".to_owned(),
            Self::DnsUpstream { .. } => "a name server".to_owned(),
            Self::NginxAllows { networks, .. } if networks.is_empty() => {
                "only single hosts".to_owned()
            }
            Self::NginxAllows { networks, .. } => format!("only {networks}"),
            Self::DropsInput { open_tcp_port: None, .. } => {
                "everything except DHCP and DNS dropped".to_owned()
            }
            Self::DropsInput { open_tcp_port: Some(port), gateway, .. } => {
                format!("everything except DHCP, DNS and TCP port {port} of {gateway} dropped")
            }
            Self::DropsForward { networks, .. } => format!("{networks} unreachable"),
            Self::OvsPortsIsolated { .. } => "no traffic between ports".to_owned(),
            Self::NvidiaFabric {} => "Completed with Success for every GPU".to_owned(),
            Self::SshdSetting { value, .. } => value.clone(),
            Self::UnitStarts { arguments, .. } => arguments.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/checks.md says of each kind what it proves.
    #[test]
    fn each_kind_has_a_line_in_the_table() {
        const TABLE: &str = include_str!("../../../../docs/checks.md");
        let schema = serde_json::to_value(schemars::schema_for!(HostCheck)).unwrap();
        let kinds: Vec<&str> = schema["oneOf"]
            .as_array()
            .unwrap()
            .iter()
            .map(|kind| kind["properties"]["check"]["const"].as_str().unwrap())
            .collect();
        assert!(kinds.len() > 30, "{kinds:?}");
        let rows: Vec<&str> =
            TABLE.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        let missing: Vec<_> = kinds.iter().filter(|kind| !rows.contains(kind)).collect();
        let unknown: Vec<_> = rows.iter().filter(|row| !kinds.contains(row)).collect();
        assert!(missing.is_empty() && unknown.is_empty(), "{missing:?} {unknown:?}");
    }
}
