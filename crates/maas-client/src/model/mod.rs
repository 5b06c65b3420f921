//! What MAAS answers, reduced to what a control plane uses (docs/maas.md).
//!
//! Unknown keys are skipped without being read, absent and `null` ones become defaults: 3.4 lacks
//! keys that 3.7 has, and a machine body is 20 to 26 KB of which about a tenth is kept.

mod interface;
mod machine;
mod region;
mod results;
mod scripts;
pub mod status;

pub use interface::{Interface, InterfaceLink, Subnet, Vlan};
pub use machine::{BootInterface, Filesystem, HardwareInfo, Machine, MachineDisk, Partition};
pub use region::{
    BootResource, BootResourceFile, BootResourceSet, NamedGroup, PowerParameters, PowerPassword,
    PowerState, RegionVersion, Tag, TagCounts, WhoAmI,
};
pub use results::{ScriptResult, ScriptSet};
pub use scripts::{Script, ScriptRevision};
