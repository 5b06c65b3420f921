//! A host in memory, which can be told to lie.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use gpuaas_types::ClaimId;
use gpuaas_types::slice::{DomainState, FabricIdentity, SliceSeed};
use gpuaas_types::topology::EraseMethod;
use parking_lot::Mutex;

use super::fabric_manager::FabricManager;
use super::host::{
    BLOCK_BYTES, DriveState, FunctionState, SanitizeState, SliceHost, SliceHostError,
};
use super::preparation::{FoundDriver, Preparation};
use super::stand_in_fabric::StandInFabricManager;

/// Driver of functions that are for guests, which each function has that nobody set another one for.
const GUEST_DRIVER: &str = "vfio-pci";
/// Size of each drive of the host.
const DRIVE_BYTES: u64 = 64 << 20;

/// What is wrong with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StandInFault {
    /// Drives say that they erased themselves, and keep everything.
    EraseLies,
    /// Drives erase all but their last sixteenth.
    EraseStopsShort,
    /// Drives refuse to erase themselves.
    EraseFails,
    /// GPUs cannot be reset.
    ResetFails,
    /// A process holds each function.
    DevicesHeld,
    /// Each drive has another serial number.
    DrivesReplaced,
    /// Guests are never heard.
    GuestSilent,
    /// Domains do not start.
    StartFails,
    /// Domains cannot be stopped.
    StopFails,
    /// Files cannot be removed.
    FilesStay,
    /// Functions cannot be bound to the driver for guests.
    BindFails,
    /// Virtual functions do not keep the identity that they are given.
    IdentityLost,
    /// Virtual functions keep their identity whatever is set.
    IdentityStays,
    /// The fabric manager activates no partition.
    PartitionRefused,
    /// Partitions stay active.
    PartitionStays,
}

#[derive(Debug, Default)]
struct State {
    domains: BTreeMap<ClaimId, DomainState>,
    /// Paths of the drives of each domain that was defined.
    drives: BTreeMap<ClaimId, Vec<String>>,
    second_starts: u32,
    files: BTreeSet<ClaimId>,
    blocks: BTreeMap<(String, u64), Vec<u8>>,
    faults: BTreeSet<StandInFault>,
    resets: u32,
    /// Drivers of functions that have another one than [`GUEST_DRIVER`], by address.
    drivers: BTreeMap<String, FoundDriver>,
    /// Identities of virtual functions, by physical function and number.
    identities: BTreeMap<(String, u32), String>,
    preparations: BTreeMap<ClaimId, Preparation>,
}

/// A host in memory: any PCI function, drives whose path ends in their serial number, one image.
#[derive(Debug, Default)]
pub struct StandInHost {
    state: Mutex<State>,
    fabric: StandInFabricManager,
}

impl StandInHost {
    /// A host with these faults.
    #[must_use]
    pub fn new(faults: impl IntoIterator<Item = StandInFault>) -> Self {
        let host = Self::default();
        host.set_faults(faults);
        host
    }

    /// Sets the faults, in the place of those before.
    pub fn set_faults(&self, faults: impl IntoIterator<Item = StandInFault>) {
        let faults: BTreeSet<StandInFault> = faults.into_iter().collect();
        let has = |fault| faults.contains(&fault);
        self.fabric
            .set_faults(has(StandInFault::PartitionRefused), has(StandInFault::PartitionStays));
        self.state.lock().faults = faults;
    }

    /// Its fabric manager.
    #[must_use]
    pub const fn fabric(&self) -> &StandInFabricManager {
        &self.fabric
    }

    /// Writes as a guest does.
    pub fn write_as_guest(&self, path: &str, offset: u64, byte: u8) {
        let key = (path.to_owned(), offset);
        self.state.lock().blocks.insert(key, vec![byte; BLOCK_BYTES]);
    }

    /// Blocks of a drive that hold anything.
    #[must_use]
    pub fn written_blocks(&self, path: &str) -> usize {
        self.state.lock().blocks.keys().filter(|(drive, _)| drive == path).count()
    }

    /// Binds a function as somebody else would.
    pub fn set_driver(&self, address: &str, driver: FoundDriver) {
        self.state.lock().drivers.insert(address.to_owned(), driver);
    }

    /// Driver of a function; none: no driver.
    #[must_use]
    pub fn driver(&self, address: &str) -> Option<String> {
        let found = self.state.lock().drivers.get(address).cloned();
        found.unwrap_or_else(|| FoundDriver::only(GUEST_DRIVER)).driver
    }

    /// Identities that virtual functions have.
    #[must_use]
    pub fn identities(&self) -> Vec<String> {
        self.state.lock().identities.values().cloned().collect()
    }

    /// Domains that libvirt would know.
    #[must_use]
    pub fn domains(&self) -> usize {
        self.state.lock().domains.len()
    }

    /// Domains that run, with the paths of their drives.
    #[must_use]
    pub fn running_domains(&self) -> Vec<(ClaimId, Vec<String>)> {
        let state = self.state.lock();
        let running = state.domains.iter().filter(|(_, one)| **one == DomainState::Running);
        running.map(|(id, _)| (*id, state.drives.get(id).cloned().unwrap_or_default())).collect()
    }

    /// Times that a domain was started that ran already.
    #[must_use]
    pub fn second_starts(&self) -> u32 {
        self.state.lock().second_starts
    }

    /// Functions that were reset.
    #[must_use]
    pub fn resets(&self) -> u32 {
        self.state.lock().resets
    }

    fn refuse_if(&self, fault: StandInFault, what: &str) -> Result<(), SliceHostError> {
        if self.state.lock().faults.contains(&fault) {
            return Err(SliceHostError::new("tool_failed", format!("{what} fails here")));
        }
        Ok(())
    }

    fn set_domain(&self, claim: ClaimId, state: DomainState) {
        self.state.lock().domains.insert(claim, state);
    }
}

#[async_trait]
impl SliceHost for StandInHost {
    async fn domain(&self, claim: ClaimId) -> Result<DomainState, SliceHostError> {
        Ok(self.state.lock().domains.get(&claim).copied().unwrap_or(DomainState::Absent))
    }

    async fn define_domain(&self, claim: ClaimId, xml: &str) -> Result<(), SliceHostError> {
        if !xml.contains(&format!("<uuid>{claim}</uuid>")) {
            return Err(SliceHostError::new("tool_failed", "the domain XML has another UUID"));
        }
        let sources = xml.split("<source dev=\"").skip(1);
        let drives = sources.filter_map(|rest| rest.split('"').next().map(str::to_owned));
        self.state.lock().drives.insert(claim, drives.collect());
        self.set_domain(claim, DomainState::Defined);
        Ok(())
    }

    async fn start_domain(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        self.refuse_if(StandInFault::StartFails, "virsh start")?;
        if self.domain(claim).await? == DomainState::Running {
            self.state.lock().second_starts += 1;
        }
        self.set_domain(claim, DomainState::Running);
        Ok(())
    }

    async fn stop_domain(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        self.refuse_if(StandInFault::StopFails, "virsh destroy")?;
        self.set_domain(claim, DomainState::Defined);
        Ok(())
    }

    async fn forget_domain(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        self.state.lock().domains.remove(&claim);
        Ok(())
    }

    fn fabric_manager(&self) -> &dyn FabricManager {
        &self.fabric
    }

    async fn bind_function(
        &self,
        address: &str,
        wanted: &FoundDriver,
    ) -> Result<(), SliceHostError> {
        if wanted.driver.as_deref() == Some(GUEST_DRIVER) {
            self.refuse_if(StandInFault::BindFails, "the bind")?;
        }
        self.set_driver(address, wanted.clone());
        Ok(())
    }

    async fn identity(&self, wanted: &FabricIdentity) -> Result<Option<String>, SliceHostError> {
        let key = (wanted.physical_function.clone(), wanted.index);
        Ok(self.state.lock().identities.get(&key).cloned())
    }

    async fn set_identity(
        &self,
        _address: &str,
        identity: &FabricIdentity,
        value: Option<&str>,
    ) -> Result<(), SliceHostError> {
        let key = (identity.physical_function.clone(), identity.index);
        let mut state = self.state.lock();
        let (loses, keeps) = (StandInFault::IdentityLost, StandInFault::IdentityStays);
        match value {
            None if state.faults.contains(&keeps) => {}
            Some(value) if !state.faults.contains(&loses) => {
                state.identities.insert(key, value.to_owned());
            }
            _ => {
                state.identities.remove(&key);
            }
        }
        Ok(())
    }

    async fn preparation(&self, claim: ClaimId) -> Result<Option<Preparation>, SliceHostError> {
        Ok(self.state.lock().preparations.get(&claim).cloned())
    }

    async fn keep_preparation(
        &self,
        claim: ClaimId,
        preparation: &Preparation,
    ) -> Result<(), SliceHostError> {
        self.state.lock().preparations.insert(claim, preparation.clone());
        Ok(())
    }

    async fn function(&self, address: &str) -> Result<FunctionState, SliceHostError> {
        let mut state = self.state.lock();
        let is_held = state.faults.contains(&StandInFault::DevicesHeld);
        let found = state.drivers.entry(address.to_owned());
        let found = found.or_insert_with(|| FoundDriver::only(GUEST_DRIVER)).clone();
        Ok(FunctionState {
            driver: found.driver,
            driver_override: found.driver_override,
            holders: Some(if is_held { vec!["qemu (4711)".to_owned()] } else { Vec::new() }),
            reset_methods: vec!["flr".to_owned()],
        })
    }

    async fn reset_function(&self, _address: &str) -> Result<(), SliceHostError> {
        self.refuse_if(StandInFault::ResetFails, "the reset")?;
        self.state.lock().resets += 1;
        Ok(())
    }

    async fn drive(&self, path: &str) -> Result<DriveState, SliceHostError> {
        let is_other = self.state.lock().faults.contains(&StandInFault::DrivesReplaced);
        let serial = path.rsplit(['-', '_']).next().unwrap_or_default();
        let serial = Some(if is_other { "OTHER".to_owned() } else { serial.to_owned() });
        let (uses, partitions) = (Some(Vec::new()), Vec::new());
        Ok(DriveState { serial, uses, partitions, size_bytes: DRIVE_BYTES })
    }

    async fn sanitize_state(&self, _path: &str) -> Result<SanitizeState, SliceHostError> {
        Ok(SanitizeState::Succeeded)
    }

    async fn erase_drive(&self, path: &str, _method: EraseMethod) -> Result<(), SliceHostError> {
        self.refuse_if(StandInFault::EraseFails, "nvme sanitize")?;
        let mut state = self.state.lock();
        if !state.faults.contains(&StandInFault::EraseLies) {
            let stops_short = state.faults.contains(&StandInFault::EraseStopsShort);
            let end = if stops_short { DRIVE_BYTES / 16 * 15 } else { DRIVE_BYTES };
            state.blocks.retain(|(drive, offset), _| drive != path || *offset >= end);
        }
        Ok(())
    }

    async fn reread_partitions(&self, _path: &str) -> Result<(), SliceHostError> {
        Ok(())
    }

    async fn read_block(&self, path: &str, offset: u64) -> Result<Vec<u8>, SliceHostError> {
        let block = self.state.lock().blocks.get(&(path.to_owned(), offset)).cloned();
        Ok(block.unwrap_or_else(|| vec![0; BLOCK_BYTES]))
    }

    async fn write_block(
        &self,
        path: &str,
        offset: u64,
        block: Vec<u8>,
    ) -> Result<(), SliceHostError> {
        self.state.lock().blocks.insert((path.to_owned(), offset), block);
        Ok(())
    }

    async fn has_image(&self, image: &str) -> Result<bool, SliceHostError> {
        Ok(image == "debian-13.raw")
    }

    async fn write_image(&self, image: &str, path: &str) -> Result<(), SliceHostError> {
        let mut block = image.as_bytes().to_vec();
        block.resize(BLOCK_BYTES, 1);
        self.state.lock().blocks.insert((path.to_owned(), 0), block);
        Ok(())
    }

    async fn write_seed(&self, claim: ClaimId, _seed: &SliceSeed) -> Result<(), SliceHostError> {
        self.state.lock().files.insert(claim);
        Ok(())
    }

    async fn is_prepared(&self, claim: ClaimId) -> Result<bool, SliceHostError> {
        Ok(self.state.lock().files.contains(&claim))
    }

    async fn remove_files(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        let mut state = self.state.lock();
        if !state.faults.contains(&StandInFault::FilesStay) {
            state.files.remove(&claim);
            state.preparations.remove(&claim);
        }
        Ok(())
    }

    async fn has_files(&self, claim: ClaimId) -> Result<bool, SliceHostError> {
        let state = self.state.lock();
        Ok(state.files.contains(&claim) || state.preparations.contains_key(&claim))
    }

    async fn guest_sign(
        &self,
        _claim: ClaimId,
        mac: &str,
    ) -> Result<Option<String>, SliceHostError> {
        let is_silent = self.state.lock().faults.contains(&StandInFault::GuestSilent);
        Ok((!is_silent).then(|| format!("the guest {mac} called")))
    }

    async fn forget_guest(&self, _claim: ClaimId) -> Result<(), SliceHostError> {
        Ok(())
    }

    async fn guest_address(&self, _mac: &str) -> Result<Option<String>, SliceHostError> {
        let is_silent = self.state.lock().faults.contains(&StandInFault::GuestSilent);
        Ok((!is_silent).then(|| "10.100.0.10".to_owned()))
    }

    async fn isolate_guests(&self) -> Result<(), SliceHostError> {
        Ok(())
    }

    async fn pause(&self, _seconds: u32) {}
}
