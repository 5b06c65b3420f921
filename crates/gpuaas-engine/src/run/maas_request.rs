//! One call to MAAS with everything that it needs, and what MAAS gives back.

use std::collections::BTreeMap;

use gpuaas_core::effect::Effect;
use maas_client::{
    Client, CommissionOptions, CreateMachine, DeployOptions, Error as MaasError, Interface,
    LinkMode, LinkSubnet, Machine, MachineDisk, NewScript, PowerParameterValue, PowerSettings,
    ReleaseOptions, StorageLayout,
};

use crate::run::session::RunSession;

/// What an effect needs that must exist, and be durable, before the call.
pub(crate) enum Prepared {
    /// Nothing beyond the effect.
    Plain,
    /// The BMC password.
    Bmc(Option<String>),
    /// A script of the profile's commissioning bundle.
    Script(Box<NewScript>),
    /// Rendered user-data whose tokens go into the same commit as the intent.
    UserData(Vec<u8>),
}

/// What MAAS gave back.
pub(crate) enum MaasAnswer {
    Machine(Box<Machine>),
    Interface(Box<Interface>),
    Disk(Box<MachineDisk>),
    Nothing,
}

/// A call with everything it needs, free of the run's session.
pub(crate) enum MaasRequest {
    Create(Box<CreateMachine>),
    Release { system_id: String, erase: bool },
    Script { script: Box<NewScript>, replace: bool },
    Commission { system_id: String, options: Box<CommissionOptions> },
    Override { system_id: String },
    SetBootDisk { system_id: String, block_device_id: i64 },
    SetStorageLayout { system_id: String, layout: String, root_device: i64 },
    Format { system_id: String, block_device_id: i64, fstype: String },
    Mount { system_id: String, block_device_id: i64, mount_point: String },
    Unlink { system_id: String, interface_id: i64, link_id: i64 },
    Link { system_id: String, interface_id: i64, subnet_cidr: String, ip_address: String },
    Tag(TagRequest),
    Deploy { system_id: String, options: Box<DeployOptions> },
    PowerOff { system_id: String, comment: String },
    PowerOn { system_id: String, comment: String },
    Abort { system_id: String, comment: String },
    MarkBroken { system_id: String, comment: String },
    MarkFixed { system_id: String, comment: String },
}

impl MaasRequest {
    /// The call of `effect`.
    ///
    /// # Errors
    /// One sentence: what the call needs was not prepared, or the node has no machine.
    pub(crate) fn new(
        session: &RunSession,
        effect: &Effect,
        prepared: Prepared,
    ) -> Result<Self, String> {
        if let (Effect::CreateMachine, Prepared::Bmc(password)) = (effect, &prepared) {
            return Ok(Self::Create(Box::new(create_machine(session, password.clone()))));
        }
        let prepared = match (effect, prepared) {
            (Effect::RegisterScript { replace, .. }, Prepared::Script(script)) => {
                return Ok(Self::Script { script, replace: *replace });
            }
            (_, prepared) => prepared,
        };
        let system_id = session.node.system_id.clone().ok_or("the node has no machine yet")?;
        let comment = format!("GPUaaS {} run {}", session.run.kind, session.run.id);
        Ok(match effect.clone() {
            Effect::CreateMachine => return Err("the BMC password was not loaded".to_owned()),
            Effect::Release { erase } => Self::Release { system_id, erase },
            Effect::RegisterScript { .. } => return Err("the script was not loaded".to_owned()),
            Effect::Commission { scripts } => {
                let options = CommissionOptions {
                    commissioning_scripts: scripts.commissioning,
                    testing_scripts: Some(scripts.testing).filter(|tests| !tests.is_empty()),
                    ..CommissionOptions::default()
                };
                Self::Commission { system_id, options: Box::new(options) }
            }
            Effect::OverrideFailedTesting => Self::Override { system_id },
            Effect::PowerOff => Self::PowerOff { system_id, comment },
            Effect::PowerOn => Self::PowerOn { system_id, comment },
            Effect::Abort => Self::Abort { system_id, comment },
            Effect::MarkBroken => Self::MarkBroken { system_id, comment },
            Effect::MarkFixed => Self::MarkFixed { system_id, comment },
            Effect::SetBootDisk { block_device_id } => {
                Self::SetBootDisk { system_id, block_device_id }
            }
            Effect::SetStorageLayout { layout, root_device } => {
                Self::SetStorageLayout { system_id, layout, root_device }
            }
            Effect::FormatBlockDevice { block_device_id, fstype } => {
                Self::Format { system_id, block_device_id, fstype }
            }
            Effect::MountBlockDevice { block_device_id, mount_point } => {
                Self::Mount { system_id, block_device_id, mount_point }
            }
            Effect::UnlinkSubnet { interface_id, link_id } => {
                Self::Unlink { system_id, interface_id, link_id }
            }
            Effect::LinkSubnet { interface_id, subnet_cidr, ip_address } => {
                Self::Link { system_id, interface_id, subnet_cidr, ip_address }
            }
            Effect::WriteTag { name, kernel_opts, replaces } => {
                Self::Tag(TagRequest::Write { name, kernel_opts, is_there: replaces.is_some() })
            }
            Effect::TagMachine { name } => Self::Tag(TagRequest::AddMachine { name, system_id }),
            Effect::UntagMachine { name } => {
                Self::Tag(TagRequest::RemoveMachine { name, system_id })
            }
            Effect::Deploy { distro_series, enable_hw_sync } => {
                let Prepared::UserData(user_data) = prepared else {
                    return Err("the user-data was not rendered".to_owned());
                };
                let options = DeployOptions {
                    distro_series: Some(distro_series),
                    user_data: Some(user_data),
                    enable_hw_sync,
                    comment: Some(comment),
                    ..DeployOptions::default()
                };
                Self::Deploy { system_id, options: Box::new(options) }
            }
        })
    }

    /// Makes the call.
    ///
    /// # Errors
    /// The client's.
    pub(crate) async fn send(self, client: &Client) -> Result<MaasAnswer, MaasError> {
        let machine = |machine: Machine| MaasAnswer::Machine(Box::new(machine));
        match self {
            Self::Create(request) => client.create_machine(&request).await.map(machine),
            Self::Release { system_id, erase } => {
                let options = ReleaseOptions { erase, ..ReleaseOptions::default() };
                client.release(&system_id, &options).await.map(machine)
            }
            Self::Script { script, replace: false } => {
                client.create_script(&script).await.map(|_| MaasAnswer::Nothing)
            }
            Self::Script { script, replace: true } => {
                let text = String::from_utf8_lossy(&script.content);
                let comment = script.comment.as_deref();
                let updated = client.update_script(&script.name, &text, comment).await;
                updated.map(|_| MaasAnswer::Nothing)
            }
            Self::Commission { system_id, options } => {
                client.commission(&system_id, &options).await.map(machine)
            }
            Self::Override { system_id } => {
                let comment = "GPUaaS: an operator accepted the failed test";
                client.override_failed_testing(&system_id, Some(comment)).await.map(machine)
            }
            Self::SetBootDisk { system_id, block_device_id } => client
                .set_boot_disk(&system_id, number(block_device_id))
                .await
                .map(|()| MaasAnswer::Nothing),
            Self::SetStorageLayout { system_id, layout, root_device } => {
                let root_device = Some(number(root_device));
                let layout = StorageLayout { layout, root_device, ..StorageLayout::default() };
                client.set_storage_layout(&system_id, &layout).await.map(machine)
            }
            Self::Format { system_id, block_device_id, fstype } => client
                .format_block_device(&system_id, number(block_device_id), &fstype)
                .await
                .map(|disk| MaasAnswer::Disk(Box::new(disk))),
            Self::Mount { system_id, block_device_id, mount_point } => client
                .mount_block_device(&system_id, number(block_device_id), &mount_point)
                .await
                .map(|disk| MaasAnswer::Disk(Box::new(disk))),
            Self::Unlink { system_id, interface_id, link_id } => client
                .unlink_subnet(&system_id, number(interface_id), number(link_id))
                .await
                .map(|i| MaasAnswer::Interface(Box::new(i))),
            Self::Link { system_id, interface_id, subnet_cidr, ip_address } => client
                .link_subnet(
                    &system_id,
                    number(interface_id),
                    &static_link(&subnet_cidr, ip_address),
                )
                .await
                .map(|i| MaasAnswer::Interface(Box::new(i))),
            Self::Tag(request) => request.send(client).await.map(|()| MaasAnswer::Nothing),
            Self::PowerOff { system_id, comment } => {
                let answer = client.power_off(&system_id, false, Some(&comment)).await?;
                Ok(answer.map_or(MaasAnswer::Nothing, machine))
            }
            Self::PowerOn { system_id, comment } => {
                let answer = client.power_on(&system_id, Some(&comment)).await?;
                Ok(answer.map_or(MaasAnswer::Nothing, machine))
            }
            Self::Abort { system_id, comment } => {
                client.abort(&system_id, Some(&comment)).await.map(machine)
            }
            Self::MarkBroken { system_id, comment } => {
                client.mark_broken(&system_id, &comment).await.map(machine)
            }
            Self::MarkFixed { system_id, comment } => {
                client.mark_fixed(&system_id, Some(&comment)).await.map(machine)
            }
            Self::Deploy { system_id, options } => {
                client.deploy(&system_id, &options).await.map(machine)
            }
        }
    }
}

/// A call about a tag.
pub(crate) enum TagRequest {
    Write { name: String, kernel_opts: String, is_there: bool },
    AddMachine { name: String, system_id: String },
    RemoveMachine { name: String, system_id: String },
}

impl TagRequest {
    async fn send(self, client: &Client) -> Result<(), MaasError> {
        match self {
            Self::Write { name, kernel_opts, is_there: true } => {
                client.set_tag_kernel_opts(&name, &kernel_opts).await.map(drop)
            }
            Self::Write { name, kernel_opts, is_there: false } => {
                let comment = "GPUaaS: machines with these kernel arguments";
                client.create_tag(&name, Some(comment), Some(&kernel_opts)).await.map(drop)
            }
            Self::AddMachine { name, system_id } => {
                client.update_tag_nodes(&name, &[system_id], &[]).await.map(drop)
            }
            Self::RemoveMachine { name, system_id } => {
                client.update_tag_nodes(&name, &[], &[system_id]).await.map(drop)
            }
        }
    }
}

/// A link with a static address in the subnet.
fn static_link(subnet_cidr: &str, ip_address: String) -> LinkSubnet {
    LinkSubnet {
        mode: LinkMode::Static,
        subnet: Some(format!("cidr:{subnet_cidr}")),
        ip_address: Some(ip_address),
        force: false,
        default_gateway: false,
    }
}

/// Ids come from MAAS and are positive.
const fn number(id: i64) -> u64 {
    id.unsigned_abs()
}

fn create_machine(session: &RunSession, bmc_password: Option<String>) -> CreateMachine {
    let hardware = &session.node.hardware;
    let mut parameters = BTreeMap::new();
    if let Some(address) = &hardware.bmc_address {
        parameters.insert("power_address".to_owned(), PowerParameterValue::new(address));
        if let Some(user) = &hardware.bmc_user {
            parameters.insert("power_user".to_owned(), PowerParameterValue::new(user));
        }
        if let Some(password) = bmc_password {
            parameters.insert("power_pass".to_owned(), PowerParameterValue::new(password));
        }
    }
    let power_type = hardware.power_type.clone();
    let power = (!power_type.is_empty()).then_some(PowerSettings { power_type, parameters });
    CreateMachine {
        hostname: Some(session.node.hostname.clone()),
        architecture: hardware.architecture.clone(),
        mac_addresses: hardware.mac_addresses.clone(),
        power,
        pool: session.site().pool.clone(),
        commission: false,
        ..CreateMachine::default()
    }
}
