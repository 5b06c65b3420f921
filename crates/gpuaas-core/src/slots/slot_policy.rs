//! What a profile and a site say of slots: which devices, how large, which network.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use gpuaas_types::topology::TopologyFunction;

/// Most CPUs and most memory of a slot, in GiB: more than any host has.
const MOST_VCPUS: u32 = 1024;
const MOST_MEMORY_GIB: u32 = 16 * 1024;
/// Most cores of a node that the host may keep.
const MOST_HOST_CORES: u32 = 64;

/// Cores of each NUMA node that the host keeps, as the inputs of the slice bundle say; none: they do not.
pub(crate) fn host_cores_per_node(inputs: &BTreeMap<String, String>) -> Option<u32> {
    let cores = inputs.get("host_cores_per_node")?.trim().parse().ok()?;
    (cores <= MOST_HOST_CORES).then_some(cores)
}

/// What profile and site say of slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotPolicy {
    /// GPUs that the host has to have; none: as many as there are.
    pub gpus: Option<u32>,
    /// Which PCI functions are GPUs.
    pub gpu: FunctionFilter,
    /// Which virtual functions are the fabric's.
    pub fabric: FunctionFilter,
    /// CPUs of a slot; whole cores are taken, so it may get one thread more.
    pub vcpus_per_gpu: u32,
    /// Memory of a slot in GiB, which is pages of 1 GiB.
    pub memory_gib_per_gpu: u32,
    /// Cores of each NUMA node that the host keeps.
    pub host_cores_per_node: u32,
    /// Network of the guests on one host.
    pub subnet: SliceSubnet,
}

impl Default for SlotPolicy {
    /// NVIDIA's GPUs and NVIDIA's fabric adapters; 24 CPUs and 64 GiB for each GPU.
    fn default() -> Self {
        Self {
            gpus: None,
            gpu: FunctionFilter { vendor: Some("10de".to_owned()), class: "03".to_owned() },
            fabric: FunctionFilter { vendor: Some("15b3".to_owned()), class: "02".to_owned() },
            vcpus_per_gpu: 24,
            memory_gib_per_gpu: 64,
            host_cores_per_node: 1,
            subnet: SliceSubnet {
                network: Ipv4Addr::new(10, 100, 0, 0),
                prefix_length: 24,
                first_host: 10,
            },
        }
    }
}

impl SlotPolicy {
    /// The default with what the inputs of the slice bundle say: they are what the host was made
    /// with. One that cannot be read leaves the default.
    #[must_use]
    pub fn from_inputs(inputs: &BTreeMap<String, String>) -> Self {
        let mut policy = Self::default();
        let of = |name: &str| inputs.get(name).map(|value| value.trim());
        let hexadecimal = |name: &str, lengths: &[usize]| {
            let digits = |value: &&str| {
                lengths.contains(&value.len()) && value.bytes().all(|b| b.is_ascii_hexdigit())
            };
            of(name).filter(digits).map(str::to_ascii_lowercase)
        };
        for (filter, vendor, class) in [
            (&mut policy.gpu, "gpu_vendor", "gpu_class"),
            (&mut policy.fabric, "hca_vendor", "hca_class"),
        ] {
            filter.vendor = hexadecimal(vendor, &[4]).or_else(|| filter.vendor.take());
            filter.class = hexadecimal(class, &[2, 4, 6]).unwrap_or_else(|| filter.class.clone());
        }
        let number = |name: &str, most: u32| {
            of(name)?.parse::<u32>().ok().filter(|value| (1..=most).contains(value))
        };
        policy.vcpus_per_gpu = number("vcpus_per_gpu", MOST_VCPUS).unwrap_or(policy.vcpus_per_gpu);
        policy.memory_gib_per_gpu =
            number("memory_gib_per_gpu", MOST_MEMORY_GIB).unwrap_or(policy.memory_gib_per_gpu);
        policy.host_cores_per_node =
            host_cores_per_node(inputs).unwrap_or(policy.host_cores_per_node);
        policy.gpus = of("gpu_count").and_then(|value| value.parse().ok());
        let subnet = of("guest_subnet").and_then(|value| {
            let (network, length) = value.split_once('/')?;
            Some((network.parse().ok()?, length.parse().ok().filter(|length| *length <= 32)?))
        });
        if let Some((network, prefix_length)) = subnet {
            policy.subnet = SliceSubnet { network, prefix_length, ..policy.subnet };
        }
        let first = of("dhcp_first").and_then(|value| value.parse::<Ipv4Addr>().ok());
        let number = first.and_then(|one| u32::from(one).checked_sub(policy.subnet.network.into()));
        policy.subnet.first_host = number.unwrap_or(policy.subnet.first_host);
        policy
    }
}

/// PCI functions by vendor and class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionFilter {
    /// Vendor, four hexadecimal digits; none: any.
    pub vendor: Option<String>,
    /// Beginning of the class, hexadecimal digits.
    pub class: String,
}

impl FunctionFilter {
    /// Whether `function` is one of them.
    #[must_use]
    pub fn matches(&self, function: &TopologyFunction) -> bool {
        let class = function.class.as_deref().unwrap_or_default();
        class.starts_with(&self.class)
            && self.vendor.as_ref().is_none_or(|vendor| function.vendor.as_ref() == Some(vendor))
    }
}

/// The network of the guests on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceSubnet {
    /// Its own address.
    pub network: Ipv4Addr,
    /// Bits of its prefix.
    pub prefix_length: u8,
    /// Number of the first slot's address in it; those before are the host's.
    pub first_host: u32,
}

impl SliceSubnet {
    /// Address of slot `index`; none where the subnet has none left. Its last address is the
    /// broadcast's.
    #[must_use]
    pub fn address(&self, index: u32) -> Option<Ipv4Addr> {
        let hosts = 1u64.checked_shl(32_u32.saturating_sub(self.prefix_length.into()))?;
        let number = u64::from(self.first_host) + u64::from(index);
        if number == 0 || number >= hosts.saturating_sub(1) {
            return None;
        }
        let address = u64::from(u32::from(self.network)) + number;
        u32::try_from(address).ok().map(Ipv4Addr::from)
    }
}

impl fmt::Display for SliceSubnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} from address {}", self.network, self.prefix_length, self.first_host)
    }
}
