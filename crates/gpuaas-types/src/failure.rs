//! Classes of failures of runs.

use crate::codes::ParkCode;
use crate::string_enum::string_enum;

string_enum! {
    /// What kind of cause made a run stop: before the installation, during it, at the first boot, or on the
    /// deployed host.
    FailureClass {
        /// MAAS could not commission the machine, or a script of its commissioning failed.
        Commissioning = "commissioning",
        /// The BMC could not be reached, or did not switch the machine.
        Power = "power",
        /// The machine was not as a deployment needs it: boot interface, storage, fabric links, image, or
        /// another input.
        Preparation = "preparation",
        /// The machine never loaded the installer.
        NetworkBoot = "network_boot",
        /// Disk, memory, GPU or another part of the machine.
        Hardware = "hardware",
        /// curtin could not partition or format the disks.
        Storage = "storage",
        /// curtin could not install the kernel, or a kernel module did not build.
        CurtinKernel = "curtin_kernel",
        /// curtin could not install the boot loader.
        BootLoader = "boot_loader",
        /// A package could not be fetched or installed.
        PackageInstall = "package_install",
        /// The installation failed, and nothing says why.
        ImageDeploy = "image_deploy",
        /// The installed system asked for no data source, or did not reach it.
        Datasource = "datasource",
        /// The image was written, and the machine never booted it to the end.
        FirstBoot = "first_boot",
        /// The fabric: InfiniBand, RoCE, OFED.
        Fabric = "fabric",
        /// The site bootstrap failed for another reason.
        SiteBootstrap = "site_bootstrap",
        /// The agent could not enroll.
        Enrollment = "enrollment",
        /// The node bootstrap failed for another reason.
        NodeBootstrap = "node_bootstrap",
        /// The deployed host is not as its bundles ask, or its agent could not look at it.
        HostChecks = "host_checks",
        /// MAAS refused, lost or contradicted a request.
        Maas = "maas",
        /// Somebody changed, took or named the machine otherwise.
        Person = "person",
        /// The control plane, its store or its settings.
        ControlPlane = "control_plane",
        /// Nothing tells.
        Unknown = "unknown",
    }
}

impl FailureClass {
    /// The class of a park by its code alone, which is structured: no text of MAAS or of a host has a part
    /// in it.
    #[must_use]
    pub const fn of_park(code: ParkCode) -> Self {
        use ParkCode as P;
        match code {
            P::DeadlineExceeded => Self::Unknown,
            P::HardwareTestFailed => Self::Hardware,
            P::CommissioningFailed
            | P::CommissioningScriptFailed
            | P::CommissioningReverted
            | P::ScriptNotAsAsked => Self::Commissioning,
            P::DeployReverted | P::PowerTypeDiffers => Self::Power,
            P::TagNotAsAsked
            | P::PxePreflightFailed
            | P::StorageLayoutUnknown
            | P::NoDataDisk
            | P::NoBootDisk
            | P::StorageNotAsAsked
            | P::RoceAssignmentsMissing
            | P::RoceInterfaceMissing
            | P::RoceBootInterface
            | P::RoceSubnetUnknown
            | P::RoceLinkStays
            | P::RoceLinkMissing
            | P::HardwareSyncIntervalDiffers
            | P::CommissioningBundleMissing
            | P::PredeployChecksFailed => Self::Preparation,
            // A failed deployment and a failed bootstrap have a cause of their own, see
            // `gpuaas_core::failure`.
            P::DeployFailed => Self::ImageDeploy,
            P::SiteBootstrapFailed => Self::SiteBootstrap,
            P::NodeBootstrapFailed => Self::NodeBootstrap,
            P::EnrollmentContested => Self::Enrollment,
            P::HostChecksUnknown
            | P::DiagnosticsFailed
            | P::RebootDidNotHelp
            | P::PrerequisiteMissing
            | P::CompletionGateFailed
            | P::CleanupFailed => Self::HostChecks,
            P::MachineLocked
            | P::TwoCandidates
            | P::MachineMismatch
            | P::MachineInUse
            | P::MachineHeld
            | P::SeveralNewMachines
            | P::MachineNotFound
            | P::MachineBusy
            | P::MachineTaken
            | P::MachineVanished
            | P::MachineRepurposed
            | P::MachineHandedOff
            | P::HostReleased => Self::Person,
            P::UnknownOutcomeUnresolved
            | P::CreatedMachineMissing
            | P::ReleaseFailed
            | P::MaasValidation
            | P::MaasBadRequest
            | P::MaasForbidden
            | P::MaasNotFound
            | P::MaasAddressInUse
            | P::MaasUnknownEndpoint
            | P::MaasMethodNotAllowed
            | P::MaasStateConflict
            | P::MaasDatabaseConflict
            | P::MaasRefused => Self::Maas,
            P::DecisionLoop | P::EffectNotPrepared | P::InternalError => Self::ControlPlane,
        }
    }
}
