//! The calls, one file per kind of object. Each names its section of docs/maas.md.

mod events;
mod interfaces;
mod lifecycle;
mod machines;
mod region;
mod results;
mod scripts;
mod storage;
mod tags;

pub use events::{EventQuery, MAX_EVENTS};
pub use interfaces::{LinkMode, LinkSubnet, UpdateInterface};
pub use lifecycle::{AllocateOptions, CommissionOptions, DeployOptions, ReleaseOptions};
pub use machines::{CreateMachine, MachineFilter, PowerSettings, Secret, UpdateMachine};
pub use results::{CurrentSet, ResultQuery, ResultType};
pub use scripts::{NewScript, ScriptFilter};
pub use storage::StorageLayout;

use crate::client::{Call, Client};
use crate::error::Error;
use crate::model::{Interface, Machine};

impl Client {
    /// An answer that must be a machine: an object without `system_id` is none.
    pub(crate) async fn machine_answer(&self, call: Call) -> Result<Machine, Error> {
        let label = call.label;
        let machine: Machine = self.json(call).await?;
        if machine.system_id.is_empty() { Err(not_a(label, "machine")) } else { Ok(machine) }
    }

    /// As [`Client::machine_answer`], for interfaces.
    pub(crate) async fn interface_answer(&self, call: Call) -> Result<Interface, Error> {
        let label = call.label;
        let interface: Interface = self.json(call).await?;
        if interface.name.is_empty() { Err(not_a(label, "interface")) } else { Ok(interface) }
    }
}

pub(crate) fn not_a(label: &str, what: &str) -> Error {
    Error::Malformed { status: 200, text: format!("{label}: JSON that is no {what}") }
}
