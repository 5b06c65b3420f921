//! Notices of a region: when software on a simulated host has to start and to stop.

/// A host and the deployment that runs on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostRef {
    /// MAAS system id.
    pub system_id: String,
    /// Hostname in MAAS.
    pub hostname: String,
    /// Counts the machine's accepted deployments: what ran under a smaller number is gone.
    pub deployment: u64,
    /// Simulated microseconds since the Unix epoch.
    pub at_us: i64,
}

/// What cloud-init's MAAS data source hands to the deployed system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// The data source's `instance-id`.
    pub instance_id: String,
    /// The data source's `local-hostname`.
    pub local_hostname: String,
    /// The data source's `public-keys`.
    pub public_keys: Vec<String>,
    /// Operating system as MAAS names it.
    pub osystem: String,
    /// Series, or the name of the custom image.
    pub distro_series: String,
    /// Kernel options of the machine's tags, as the deployment carried them into the system's boot
    /// loader (docs/maas.md#tags); empty: none.
    pub kernel_options: String,
}

/// The deployed system asked for its user-data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstBoot {
    /// Which host, in which deployment.
    pub host: HostRef,
    /// The user-data, base64 already taken off.
    pub user_data: Vec<u8>,
    /// Address of the boot interface.
    pub ip: Option<String>,
    /// The rest of the data source.
    pub metadata: Metadata,
}

/// A change that the software of a host has to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The deployed system boots: exactly when MAAS turns Deploying into Deployed.
    FirstBoot(Box<FirstBoot>),
    /// A deployed host was switched on again; its disk still has the system of this deployment.
    PoweredOn(HostRef),
    /// The host lost its power; its software stops.
    PoweredOff(HostRef),
    /// The machine was released or its deployment was aborted; its software is gone for good.
    Released(HostRef),
    /// Every disk of the machine was erased; what the system of this deployment left is gone.
    Erased(HostRef),
}

impl Notice {
    /// The host that it is about.
    #[must_use]
    pub fn host(&self) -> &HostRef {
        match self {
            Notice::FirstBoot(boot) => &boot.host,
            Notice::PoweredOn(host)
            | Notice::PoweredOff(host)
            | Notice::Released(host)
            | Notice::Erased(host) => host,
        }
    }
}
