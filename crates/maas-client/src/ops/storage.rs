use super::machines::machine_path;
use crate::client::{Call, Client, path_segment};
use crate::encode::Params;
use crate::error::Error;
use crate::model::{Machine, MachineDisk};

/// A storage layout (docs/maas.md#storage-layouts). Sizes as MAAS reads them: bytes, `20G`, `50%`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageLayout {
    /// `flat`, `lvm`, `bcache`, `blank`, `custom`, …
    pub layout: String,
    /// Block device id; the boot disk otherwise.
    pub root_device: Option<u64>,
    /// Size of the root filesystem.
    pub root_size: Option<String>,
    /// Size of a separate `/boot`.
    pub boot_size: Option<String>,
    /// Volume group of `lvm`.
    pub vg_name: Option<String>,
    /// Logical volume of `lvm`.
    pub lv_name: Option<String>,
    /// Its size.
    pub lv_size: Option<String>,
}

impl Client {
    /// All block devices, virtual ones included (docs/maas.md#disks).
    ///
    /// # Errors
    /// `NotFound`; see [`Error`].
    pub async fn block_devices(&self, system_id: &str) -> Result<Vec<MachineDisk>, Error> {
        let path = format!("nodes/{}/blockdevices/", path_segment(system_id)?);
        self.send_for_json(Call::get(path, "GET nodes/{id}/blockdevices/")).await
    }

    /// Makes a physical disk the boot disk of a Ready machine (docs/maas.md#disks).
    ///
    /// # Errors
    /// `StateConflict` where not Ready; bad request for a virtual disk; `NotFound`.
    pub async fn set_boot_disk(&self, system_id: &str, block_device_id: u64) -> Result<(), Error> {
        let path = format!("nodes/{}/blockdevices/{block_device_id}/", path_segment(system_id)?);
        const LABEL: &str = "POST nodes/{id}/blockdevices/{id}/ op=set_boot_disk";
        self.send(Call::op(path, LABEL, "set_boot_disk", Params::default())).await
    }

    /// Puts a filesystem on a whole disk of a Ready or Allocated machine; what was on it is
    /// replaced. Not among the recordings: read in MAAS' handler of `nodes/ID/blockdevices/ID/`.
    ///
    /// # Errors
    /// `StateConflict` in other statuses; validation under `fstype` or `__all__` (a disk with
    /// partitions); `NotFound`.
    pub async fn format_block_device(
        &self,
        system_id: &str,
        block_device_id: u64,
        fstype: &str,
    ) -> Result<MachineDisk, Error> {
        let path = format!("nodes/{}/blockdevices/{block_device_id}/", path_segment(system_id)?);
        let mut form = Params::default();
        form.add("fstype", fstype);
        const LABEL: &str = "POST nodes/{id}/blockdevices/{id}/ op=format";
        self.send_for_json(Call::op(path, LABEL, "format", form)).await
    }

    /// Has the filesystem on a whole disk mounted in the deployed system. Machines and source as
    /// for [`Client::format_block_device`].
    ///
    /// # Errors
    /// `StateConflict` in other statuses; validation under `mount_point` or `__all__` (nothing to
    /// mount); `NotFound`.
    pub async fn mount_block_device(
        &self,
        system_id: &str,
        block_device_id: u64,
        mount_point: &str,
    ) -> Result<MachineDisk, Error> {
        let path = format!("nodes/{}/blockdevices/{block_device_id}/", path_segment(system_id)?);
        let mut form = Params::default();
        form.add("mount_point", mount_point);
        const LABEL: &str = "POST nodes/{id}/blockdevices/{id}/ op=mount";
        self.send_for_json(Call::op(path, LABEL, "mount", form)).await
    }

    /// Replaces the storage configuration of a Ready machine (docs/maas.md#storage-layouts); the
    /// answer is the read-back.
    ///
    /// # Errors
    /// `StateConflict` where not Ready (Allocated too); validation; see [`Error`].
    pub async fn set_storage_layout(
        &self,
        system_id: &str,
        layout: &StorageLayout,
    ) -> Result<Machine, Error> {
        let mut form = Params::default();
        form.add("storage_layout", layout.layout.clone());
        form.opt("root_device", layout.root_device);
        form.opt("root_size", layout.root_size.as_deref());
        form.opt("boot_size", layout.boot_size.as_deref());
        form.opt("vg_name", layout.vg_name.as_deref());
        form.opt("lv_name", layout.lv_name.as_deref());
        form.opt("lv_size", layout.lv_size.as_deref());
        const LABEL: &str = "POST machines/{id}/ op=set_storage_layout";
        self.send_for_machine(Call::op(machine_path(system_id)?, LABEL, "set_storage_layout", form))
            .await
    }
}
