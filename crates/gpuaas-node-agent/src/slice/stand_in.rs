//! A host in memory, which can be told to lie.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use gpuaas_types::ClaimId;
use gpuaas_types::slice::{DomainState, SliceSeed};
use gpuaas_types::topology::EraseMethod;
use parking_lot::Mutex;

use super::host::{BLOCK_BYTES, DriveState, FunctionState, SliceHost, SliceHostError};

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
}

/// A host in memory: any PCI function, drives whose path ends in their serial number, one image.
#[derive(Debug, Default)]
pub struct StandInHost {
    state: Mutex<State>,
}

impl StandInHost {
    /// A host with these faults.
    #[must_use]
    pub fn new(faults: impl IntoIterator<Item = StandInFault>) -> Self {
        let host = Self::default();
        host.state.lock().faults = faults.into_iter().collect();
        host
    }

    /// Sets the faults, in the place of those before.
    pub fn set_faults(&self, faults: impl IntoIterator<Item = StandInFault>) {
        self.state.lock().faults = faults.into_iter().collect();
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
            return Err(SliceHostError::new("tool_failed", format!("{what} does not work here")));
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
            return Err(SliceHostError::new("tool_failed", "the domain is another one"));
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

    async fn function(&self, _address: &str) -> Result<FunctionState, SliceHostError> {
        let is_held = self.state.lock().faults.contains(&StandInFault::DevicesHeld);
        Ok(FunctionState {
            driver: Some("vfio-pci".to_owned()),
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

    async fn is_erasing(&self, _path: &str) -> Result<bool, SliceHostError> {
        Ok(false)
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
        self.has_files(claim).await
    }

    async fn remove_files(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        let mut state = self.state.lock();
        if !state.faults.contains(&StandInFault::FilesStay) {
            state.files.remove(&claim);
        }
        Ok(())
    }

    async fn has_files(&self, claim: ClaimId) -> Result<bool, SliceHostError> {
        Ok(self.state.lock().files.contains(&claim))
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

    async fn pause(&self, _seconds: u32) {}
}
