use crate::client::{Call, Client, path_segment};
use crate::encode::Params;
use crate::error::Error;
use crate::model::Interface;

/// How a link gets its address (docs/maas.md#links).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMode {
    /// MAAS picks one at deployment.
    Auto,
    /// By DHCP, when the system starts.
    Dhcp,
    /// Fixed; MAAS picks one where none is given.
    Static,
    /// Up without an address.
    LinkUp,
}

impl LinkMode {
    /// The value of the parameter `mode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "AUTO",
            Self::Dhcp => "DHCP",
            Self::Static => "STATIC",
            Self::LinkUp => "LINK_UP",
        }
    }
}

/// A link to make (docs/maas.md#links).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSubnet {
    /// Mode of the link.
    pub mode: LinkMode,
    /// Subnet id, `cidr:10.0.0.0/24` or `name:…`; must be on the interface's VLAN.
    pub subnet: Option<String>,
    /// Address of a static link.
    pub ip_address: Option<String>,
    /// Allow `LINK_UP` beside other links.
    pub force: bool,
    /// Make the subnet's gateway the default one.
    pub default_gateway: bool,
}

impl LinkSubnet {
    /// A link with this mode and nothing else.
    pub fn new(mode: LinkMode) -> Self {
        Self { mode, subnet: None, ip_address: None, force: false, default_gateway: false }
    }
}

/// What to change of an interface; `None` leaves it (docs/maas.md#interfaces).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateInterface {
    /// Name of the interface.
    pub name: Option<String>,
    /// MAC address; sent in lower case.
    pub mac_address: Option<String>,
    /// Database id of the VLAN, not its tag.
    pub vlan_id: Option<u64>,
    /// All tags it shall have.
    pub tags: Option<Vec<String>>,
    /// MTU in bytes.
    pub mtu: Option<u64>,
}

impl Client {
    /// All interfaces; 15 ms at any fleet size (docs/maas.md#interfaces).
    ///
    /// # Errors
    /// `NotFound`; see [`Error`].
    pub async fn interfaces(&self, system_id: &str) -> Result<Vec<Interface>, Error> {
        let path = format!("nodes/{}/interfaces/", path_segment(system_id)?);
        self.send_for_json(Call::get(path, "GET nodes/{id}/interfaces/")).await
    }

    /// One interface (docs/maas.md#interfaces).
    ///
    /// # Errors
    /// `NotFound`; see [`Error`].
    pub async fn interface(&self, system_id: &str, interface_id: u64) -> Result<Interface, Error> {
        self.send_for_interface(Call::get(
            interface_path(system_id, interface_id)?,
            "GET nodes/{id}/interfaces/{id}/",
        ))
        .await
    }

    /// Changes an interface (docs/maas.md#interfaces). On a deployed machine MAAS silently ignores
    /// what it does not allow there: compare the answer.
    ///
    /// # Errors
    /// `StateConflict` in other statuses; validation; [`Error::Invalid`] where nothing is to change.
    pub async fn update_interface(
        &self,
        system_id: &str,
        interface_id: u64,
        change: &UpdateInterface,
    ) -> Result<Interface, Error> {
        let mut form = Params::default();
        form.opt("name", change.name.as_deref());
        form.opt("mac_address", change.mac_address.as_ref().map(|mac| mac.to_ascii_lowercase()));
        form.opt("vlan", change.vlan_id);
        form.opt("tags", change.tags.as_ref().map(|tags| tags.join(",")));
        form.opt("mtu", change.mtu);
        if form.0.is_empty() {
            return Err(Error::invalid("the interface update changes nothing"));
        }
        let call = Call::put(
            interface_path(system_id, interface_id)?,
            "PUT nodes/{id}/interfaces/{id}/",
            form,
        );
        self.send_for_interface(call).await
    }

    /// Links an interface to a subnet (docs/maas.md#links). Links add up: unlink first to replace.
    ///
    /// # Errors
    /// `AddressInUse`, `StateConflict`, validation (`subnet`, `ip_address`, `mode`); see [`Error`].
    pub async fn link_subnet(
        &self,
        system_id: &str,
        interface_id: u64,
        link: &LinkSubnet,
    ) -> Result<Interface, Error> {
        let mut form = Params::default();
        form.add("mode", link.mode.as_str());
        form.opt("subnet", link.subnet.as_deref());
        form.opt("ip_address", link.ip_address.as_deref());
        form.flag("force", link.force);
        form.flag("default_gateway", link.default_gateway);
        const LABEL: &str = "POST nodes/{id}/interfaces/{id}/ op=link_subnet";
        self.send_for_interface(Call::op(
            interface_path(system_id, interface_id)?,
            LABEL,
            "link_subnet",
            form,
        ))
        .await
    }

    /// Removes a link (docs/maas.md#links).
    ///
    /// # Errors
    /// Validation under `id` where the interface has no such link; `StateConflict`.
    pub async fn unlink_subnet(
        &self,
        system_id: &str,
        interface_id: u64,
        link_id: u64,
    ) -> Result<Interface, Error> {
        let mut form = Params::default();
        form.add("id", link_id.to_string());
        const LABEL: &str = "POST nodes/{id}/interfaces/{id}/ op=unlink_subnet";
        self.send_for_interface(Call::op(
            interface_path(system_id, interface_id)?,
            LABEL,
            "unlink_subnet",
            form,
        ))
        .await
    }
}

fn interface_path(system_id: &str, interface_id: u64) -> Result<String, Error> {
    Ok(format!("nodes/{}/interfaces/{interface_id}/", path_segment(system_id)?))
}
