//! What a launch is carried out with: made once, and kept, so that each part sees the same.

use std::collections::BTreeSet;

use gpuaas_types::ClaimId;
use gpuaas_types::claim::ClaimedSlot;
use gpuaas_types::slice::{
    FabricIdentity, FabricIdentityKind, SliceAction, SliceDevices, SliceDrive, SlicePartition,
    SliceSeed, SliceTask,
};
use gpuaas_types::topology::{FabricPartition, HostTopology};
use serde::{Deserialize, Serialize};

use crate::domain::{DomainFault, DomainPlan, DomainPolicy, DomainRequest, NvmeAttachment};

/// What a launch is carried out with, and later the release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceLaunchSpec {
    /// Name of the guest's image.
    pub image: String,
    /// The guest's seed.
    pub seed: SliceSeed,
    /// The domain.
    pub domain_xml: String,
    /// Devices by slot.
    pub devices: Vec<SliceDevices>,
    /// MAC address of the guest in the slice network.
    pub mac: String,
    /// Partition of the NVSwitches; none: no fabric manager keeps the GPUs apart.
    #[serde(default)]
    pub partition: Option<SlicePartition>,
    /// Seconds that the guest may take to call; none: the default.
    #[serde(default)]
    pub guest_timeout_seconds: Option<u32>,
}

/// Why a claim cannot be launched.
pub type SliceLaunchFault = DomainFault;

/// What the launch of these slots is carried out with.
///
/// # Errors
/// The claim does not fit the host as it was last read, or the policy.
pub fn launch_spec(
    claim_id: ClaimId,
    slots: &[ClaimedSlot],
    topology: &HostTopology,
    policy: &DomainPolicy,
    (image, user_data): (&str, &str),
) -> Result<SliceLaunchSpec, SliceLaunchFault> {
    let plan = DomainPlan::new(&DomainRequest { claim_id, slots, topology }, policy)?;
    let first = slots.iter().find(|slot| slot.mac == plan.mac);
    let address = first.and_then(|slot| slot.private_ip.as_deref());
    Ok(SliceLaunchSpec {
        image: image.to_owned(),
        seed: seed(claim_id, (&plan.mac, address), user_data),
        domain_xml: plan.xml(policy),
        devices: slots.iter().map(|slot| devices(slot, topology, policy)).collect(),
        mac: plan.mac,
        partition: partition(slots, topology)?,
        guest_timeout_seconds: None,
    })
}

impl SliceLaunchSpec {
    /// The task for an action, with no more than the action needs.
    #[must_use]
    pub fn task(&self, claim_id: ClaimId, fence: u64, action: SliceAction) -> SliceTask {
        let writes = matches!(action, SliceAction::Verify | SliceAction::Prepare);
        let domain_xml = match action {
            SliceAction::Define => self.domain_xml.clone(),
            _ => String::new(),
        };
        SliceTask {
            claim_id,
            fence,
            action,
            devices: self.devices.clone(),
            domain_xml,
            image: if writes { self.image.clone() } else { String::new() },
            seed: (action == SliceAction::Prepare).then(|| self.seed.clone()),
            mac: self.mac.clone(),
            partition: self.partition.clone(),
            guest_timeout_seconds: self
                .guest_timeout_seconds
                .filter(|_| action == SliceAction::AwaitGuest),
        }
    }
}

fn devices(slot: &ClaimedSlot, topology: &HostTopology, policy: &DomainPolicy) -> SliceDevices {
    let named = |name: &String| {
        let drive = topology
            .namespaces
            .iter()
            .find(|drive| drive.serial.as_ref().unwrap_or(&drive.path) == name);
        let controller = drive.and_then(|drive| drive.address.clone());
        SliceDrive {
            serial: drive.and_then(|drive| drive.serial.clone()),
            path: drive.map_or_else(|| name.clone(), |drive| drive.path.clone()),
            erase_methods: drive.and_then(|drive| drive.erase_methods.clone()).unwrap_or_default(),
            controller: controller.filter(|_| policy.nvme == NvmeAttachment::PciFunction),
        }
    };
    SliceDevices {
        slot: slot.index,
        gpu: slot.gpu.clone(),
        fabric_vf: slot.fabric_vf.clone(),
        identity: slot.fabric_vf.as_ref().and_then(|vf| identity(vf, topology)),
        drive: slot.nvme.as_ref().map(named),
    }
}

/// The partition that has exactly the GPUs of these slots; none where no fabric manager answered.
fn partition(
    slots: &[ClaimedSlot],
    topology: &HostTopology,
) -> Result<Option<SlicePartition>, DomainFault> {
    let Some(listed) = &topology.fabric_partitions else { return Ok(None) };
    let module = |slot: &ClaimedSlot| {
        let modules = &mut topology.gpu_modules.iter();
        modules.find(|one| one.address == slot.gpu).map(|one| one.module_id)
    };
    let modules: Option<BTreeSet<u32>> = slots.iter().map(module).collect();
    let found = modules.as_ref().and_then(|modules| {
        let same = |one: &&FabricPartition| one.modules.iter().copied().eq(modules.iter().copied());
        listed.iter().find(same)
    });
    let found = found.ok_or_else(|| DomainFault::PartitionUnknown {
        modules: modules.clone().unwrap_or_default().into_iter().collect(),
    })?;
    Ok(Some(SlicePartition { id: found.id, modules: found.modules.clone() }))
}

/// What the virtual function at `address` is on the fabric: what was approved with the slot.
fn identity(address: &str, topology: &HostTopology) -> Option<FabricIdentity> {
    let function = |address: &str| topology.functions.iter().find(|one| one.address == address);
    let vf = function(address)?;
    let physical_function = vf.physical_function.clone()?;
    let link_layer = function(&physical_function)?.port.as_ref()?.link_layer.as_str();
    let (kind, value) = match link_layer {
        "InfiniBand" => (FabricIdentityKind::Guid, vf.guid.clone()?),
        "Ethernet" => (FabricIdentityKind::Mac, vf.mac.clone()?),
        _ => return None,
    };
    let index = vf.virtual_index.filter(|_| value != kind.none())?;
    Some(FabricIdentity { physical_function, index, kind, value })
}

/// A seed for the data source NoCloud: the guest is named after its claim, and has its address from the
/// host, which keeps it for the slot.
fn seed(claim_id: ClaimId, (mac, address): (&str, Option<&str>), user_data: &str) -> SliceSeed {
    let user_data = match user_data.trim() {
        "" => "#cloud-config\n{}\n".into(),
        _ => user_data.into(),
    };
    SliceSeed {
        meta_data: format!("instance-id: {claim_id}\nlocal-hostname: slice-{claim_id}\n"),
        user_data,
        network_config: format!(
            "version: 2\nethernets:\n  slice:\n    match: {{macaddress: \"{mac}\"}}\n    dhcp4: true\n"
        ),
        dhcp_host: address.map(|address| format!("{mac},{address}")).unwrap_or_default(),
    }
}
