//! What a host can do with slices.

use async_trait::async_trait;
use gpuaas_types::ClaimId;
use gpuaas_types::slice::{DomainState, FabricIdentity, SliceSeed};
use gpuaas_types::topology::EraseMethod;

pub use super::error::SliceHostError;
use super::fabric_manager::FabricManager;
use super::preparation::{FoundDriver, Preparation};

/// Bytes that are written to a drive and read from it at once.
pub const BLOCK_BYTES: usize = 4096;

/// A PCI function as it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FunctionState {
    /// Driver that is bound; none: no driver.
    pub driver: Option<String>,
    /// The only driver that may be bound; none: any that knows the device.
    pub driver_override: Option<String>,
    /// Processes that hold it; none: the processes could not be read.
    pub holders: Option<Vec<String>>,
    /// Ways to reset it that the kernel knows, best first.
    pub reset_methods: Vec<String>,
}

/// A drive as it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriveState {
    /// Serial number; none: it says none.
    pub serial: Option<String>,
    /// What uses it, beside partitions; none: that could not be read.
    pub uses: Option<Vec<String>>,
    /// Its partitions: those of a tenant show on the host as soon as the guest is gone.
    pub partitions: Vec<String>,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// What a drive reports of its latest sanitize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SanitizeState {
    /// Nothing: it never sanitized itself, or cannot.
    None,
    /// It is in progress.
    Running,
    /// It succeeded.
    Succeeded,
    /// It failed, or ended with this status that nobody knows.
    Failed(u64),
}

impl SanitizeState {
    /// The state of a status (NVM Express Base Specification 2.0, figure 290).
    #[must_use]
    pub const fn of_status(status: u64) -> Self {
        match status {
            0 => Self::None,
            1 | 4 => Self::Succeeded,
            2 => Self::Running,
            other => Self::Failed(other),
        }
    }
}

/// What a host can do with slices. Each call ends in a time of its own, and an error says what failed.
#[async_trait]
pub trait SliceHost: Send + Sync {
    /// How the domain stands.
    async fn domain(&self, claim: ClaimId) -> Result<DomainState, SliceHostError>;
    /// Defines the domain.
    async fn define_domain(&self, claim: ClaimId, xml: &str) -> Result<(), SliceHostError>;
    /// Starts the domain.
    async fn start_domain(&self, claim: ClaimId) -> Result<(), SliceHostError>;
    /// Stops the domain at once.
    async fn stop_domain(&self, claim: ClaimId) -> Result<(), SliceHostError>;
    /// Forgets the domain, and the variables of its firmware.
    async fn forget_domain(&self, claim: ClaimId) -> Result<(), SliceHostError>;
    /// A PCI function.
    async fn function(&self, address: &str) -> Result<FunctionState, SliceHostError>;
    /// Has a PCI function bound so; whether it is has to be looked at afterwards.
    async fn bind_function(
        &self,
        address: &str,
        wanted: &FoundDriver,
    ) -> Result<(), SliceHostError>;
    /// What a virtual function is on the fabric; none: it has no such identity.
    async fn identity(&self, wanted: &FabricIdentity) -> Result<Option<String>, SliceHostError>;
    /// Gives the virtual function at `address` this value; none: takes its identity away, which the
    /// host remembers.
    async fn set_identity(
        &self,
        address: &str,
        identity: &FabricIdentity,
        value: Option<&str>,
    ) -> Result<(), SliceHostError>;
    /// What a launch of the claim found and changed; none: nothing yet.
    async fn preparation(&self, claim: ClaimId) -> Result<Option<Preparation>, SliceHostError>;
    /// Keeps that until the files of the claim are removed.
    async fn keep_preparation(
        &self,
        claim: ClaimId,
        preparation: &Preparation,
    ) -> Result<(), SliceHostError>;
    /// What keeps the GPUs of guests apart on NVSwitches.
    fn fabric_manager(&self) -> &dyn FabricManager;
    /// Resets a PCI function.
    async fn reset_function(&self, address: &str) -> Result<(), SliceHostError>;
    /// A drive, by its path.
    async fn drive(&self, path: &str) -> Result<DriveState, SliceHostError>;
    /// What a drive reports of its latest sanitize.
    async fn sanitize_state(&self, path: &str) -> Result<SanitizeState, SliceHostError>;
    /// Whether a drive is erasing itself.
    async fn is_erasing(&self, path: &str) -> Result<bool, SliceHostError> {
        Ok(self.sanitize_state(path).await? == SanitizeState::Running)
    }
    /// Has a drive erase itself; it may go on after this.
    async fn erase_drive(&self, path: &str, method: EraseMethod) -> Result<(), SliceHostError>;
    /// Has the kernel look anew which partitions a drive has: it keeps those that an erase took away.
    async fn reread_partitions(&self, path: &str) -> Result<(), SliceHostError>;
    /// Reads [`BLOCK_BYTES`] at `offset` from the drive itself, past every cache.
    async fn read_block(&self, path: &str, offset: u64) -> Result<Vec<u8>, SliceHostError>;
    /// Writes [`BLOCK_BYTES`] at `offset`, and returns once the drive has them.
    async fn write_block(
        &self,
        path: &str,
        offset: u64,
        block: Vec<u8>,
    ) -> Result<(), SliceHostError>;
    /// Whether the host has a guest's image of this name.
    async fn has_image(&self, image: &str) -> Result<bool, SliceHostError>;
    /// Writes a guest's image to a drive.
    async fn write_image(&self, image: &str, path: &str) -> Result<(), SliceHostError>;
    /// Writes the seed, and a mark that it and the image are written to the end.
    async fn write_seed(&self, claim: ClaimId, seed: &SliceSeed) -> Result<(), SliceHostError>;
    /// Whether that mark is there.
    async fn is_prepared(&self, claim: ClaimId) -> Result<bool, SliceHostError>;
    /// Removes the files of a claim.
    async fn remove_files(&self, claim: ClaimId) -> Result<(), SliceHostError>;
    /// Whether a claim has files.
    async fn has_files(&self, claim: ClaimId) -> Result<bool, SliceHostError>;
    /// What the guest was heard by: its call, or on a host without a port for calls the address that it
    /// took. None: it was not heard.
    async fn guest_sign(&self, claim: ClaimId, mac: &str)
    -> Result<Option<String>, SliceHostError>;
    /// Expects the guest no longer: it is about to be stopped.
    async fn forget_guest(&self, claim: ClaimId) -> Result<(), SliceHostError>;
    /// Address that the guest took; none: it took none.
    async fn guest_address(&self, mac: &str) -> Result<Option<String>, SliceHostError>;
    /// Has the guests' bridge pass what each running guest sends with the addresses of its slot, and nothing
    /// else. Repeated after each start and each end of a guest.
    async fn isolate_guests(&self) -> Result<(), SliceHostError>;
    /// Waits before the next look.
    async fn pause(&self, seconds: u32);
}
