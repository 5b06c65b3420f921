//! Which mutations of MAAS there are, without their parameters.

use crate::string_enum::string_enum;

string_enum!(
    /// A kind of mutation of MAAS. Its written form stands in the journal of effects, in metrics,
    /// and in the plan of a run; what a run asks for with its parameters is
    /// `gpuaas_core::effect::Effect`.
    EffectKind {
        /// Creates the machine: `POST machines/`.
        CreateMachine = "create_machine",
        /// Releases the machine: `op=release`.
        Release = "release",
        /// Writes a commissioning script: `POST scripts/`, or `PUT scripts/NAME`.
        RegisterScript = "register_script",
        /// Commissions the machine: `op=commission`.
        Commission = "commission",
        /// Takes a machine in Failed testing as Ready: `op=override_failed_testing`.
        OverrideFailedTesting = "override_failed_testing",
        /// Chooses the disk to boot from: `op=set_boot_disk`.
        SetBootDisk = "set_boot_disk",
        /// Lays out the storage: `op=set_storage_layout`.
        SetStorageLayout = "set_storage_layout",
        /// Makes a filesystem on a whole disk: `op=format`.
        FormatBlockDevice = "format_block_device",
        /// Gives a filesystem its mount point: `op=mount`.
        MountBlockDevice = "mount_block_device",
        /// Takes a link off an interface: `op=unlink_subnet`.
        UnlinkSubnet = "unlink_subnet",
        /// Gives an interface an address: `op=link_subnet`.
        LinkSubnet = "link_subnet",
        /// Deploys the machine: `op=deploy`.
        Deploy = "deploy",
        /// Switches the machine off: `op=power_off`.
        PowerOff = "power_off",
        /// Switches the machine on: `op=power_on`.
        PowerOn = "power_on",
        /// Ends an erasing: `op=abort`.
        Abort = "abort",
        /// Marks the machine broken: `op=mark_broken`.
        MarkBroken = "mark_broken",
        /// Takes the mark away again: `op=mark_fixed`.
        MarkFixed = "mark_fixed",
    }
);
