//! Sending a call whose answer is a machine or an interface, checked to be one.

use crate::client::{Call, Client};
use crate::error::Error;
use crate::model::{Interface, Machine};

impl Client {
    /// Sends a call and parses its answer as a machine.
    ///
    /// # Errors
    /// [`Error::Malformed`] for an object without `system_id`; see [`Error`].
    pub(crate) async fn send_for_machine(&self, call: Call) -> Result<Machine, Error> {
        let label = call.label;
        let machine: Machine = self.send_for_json(call).await?;
        if machine.system_id.is_empty() {
            Err(unexpected_shape(label, "machine"))
        } else {
            Ok(machine)
        }
    }

    /// Sends a call and parses its answer as an interface.
    ///
    /// # Errors
    /// [`Error::Malformed`] for an object without `name`; see [`Error`].
    pub(crate) async fn send_for_interface(&self, call: Call) -> Result<Interface, Error> {
        let label = call.label;
        let interface: Interface = self.send_for_json(call).await?;
        if interface.name.is_empty() {
            Err(unexpected_shape(label, "interface"))
        } else {
            Ok(interface)
        }
    }
}

/// The error for JSON that parses and is no `what`.
pub(super) fn unexpected_shape(label: &str, what: &str) -> Error {
    Error::Malformed { status: 200, text: format!("{label}: the JSON is not of type {what}") }
}
