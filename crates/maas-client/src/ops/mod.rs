//! The calls, one file per kind of object. Each names its section of docs/maas.md.

mod boot_resources;
mod events;
mod interfaces;
mod lifecycle;
mod machines;
mod region;
mod results;
mod scripts;
mod storage;
mod tags;
mod typed_answer;

pub use boot_resources::{NewBootResource, UploadTarget};
pub use events::{EventQuery, MAX_EVENTS};
pub use interfaces::{LinkMode, LinkSubnet, UpdateInterface};
pub use lifecycle::{AllocateOptions, CommissionOptions, DeployOptions, ReleaseOptions};
pub use machines::{
    CreateMachine, MachineFilter, PowerParameterValue, PowerSettings, UpdateMachine,
};
pub use results::{CurrentSet, ResultQuery, ResultType};
pub use scripts::{NewScript, ScriptFilter};
pub use storage::StorageLayout;
