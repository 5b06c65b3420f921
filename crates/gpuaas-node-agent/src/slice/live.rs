//! This machine, or a host that a program emulates below a folder: libvirt by `virsh`, drives by
//! `nvme`, and everything else by files.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use async_trait::async_trait;
use gpuaas_types::ClaimId;
use gpuaas_types::slice::{
    DomainState, FabricIdentity, GUEST_IMAGES_FOLDER, SliceSeed, slice_folder,
};
use gpuaas_types::topology::{DiskUseKind, EraseMethod, HostTopology};
use host_facts::HostRoot;
use host_facts::topology::ASSIGNED_IDENTITIES;
use serde_json::Value;

use super::env::SliceEnv;
use super::fabric_manager::{FabricClient, FabricManager};
use super::functions::HostFunctions;
use super::guest_call::{self, GUEST_FLOWS, GuestCallSettings};
use super::guest_listener::GuestCallListener;
use super::host::{
    BLOCK_BYTES, DriveState, FunctionState, SanitizeState, SliceHost, SliceHostError,
};
use super::preparation::{FoundDriver, PREPARATION, Preparation};
use crate::atomic_file;
use crate::clock::{AgentClock as _, HostClock};
use crate::command::{CommandError, CommandRunner};
use crate::host::Host;

/// Longest time of a query, in seconds.
const QUERY_SECONDS: u64 = 30;
/// Longest time of a command of libvirt, in seconds: a start gets its memory first.
const DOMAIN_SECONDS: u64 = 300;
/// Longest time in which the flows of the guests' bridge are written, in seconds.
const FLOWS_SECONDS: u64 = 120;
/// Longest time in which an image is written, in seconds.
const IMAGE_SECONDS: u64 = 3300;
/// Longest time in which a drive takes the command to erase itself; a format ends with the erase.
const ERASE_SECONDS: u64 = 3600;
/// What virsh says of a domain that it does not know.
const NO_DOMAIN: [&str; 2] = ["failed to get domain", "Domain not found"];
/// Addresses that the host's DHCP server gave away.
const LEASES: &str = "var/lib/misc/dnsmasq.leases";
/// Addresses that it keeps for guests, a file for each (`dhcp-hostsdir` of dnsmasq(8); the bundle's dnsmasq.sh).
const DHCP_HOSTS: &str = "var/lib/gpuaas/dhcp-hosts";
/// Seed of a guest, and the mark that it is written.
const SEED: &str = "seed.img";
const PREPARED: &str = "prepared";
/// What the host itself has the guest do, beside the tenant's user-data.
const VENDOR_DATA: &str = "vendor-data";
/// Vendor-data of a host without a port for guests' calls.
const NO_VENDOR_DATA: &str = "#cloud-config\n{}\n";

pub(super) struct LiveSliceHost<'a> {
    runner: CommandRunner<'a>,
    root: HostRoot,
    host: &'a Host,
    listener: &'a GuestCallListener,
    fabric: FabricClient<'a>,
}

impl<'a> LiveSliceHost<'a> {
    /// The host that the agent works on, and what its slices share.
    ///
    /// # Errors
    /// [`CommandError::HostNotLive`].
    pub(super) fn new(host: &'a Host, env: &'a SliceEnv) -> Result<Self, CommandError> {
        let runner = CommandRunner::for_host(host)?;
        let none = CommandError::HostNotLive("a simulated host without files has no slices");
        let root = host.root().cloned().ok_or(none)?;
        let fabric = FabricClient { runner, turn: &env.fabric_turn };
        Ok(Self { runner, root, host, listener: &env.guest_calls, fabric })
    }

    async fn virsh(&self, arguments: &[&str]) -> Result<(), SliceHostError> {
        let arguments = [&["--connect", "qemu:///system"], arguments].concat();
        self.runner.run("virsh", &arguments, DOMAIN_SECONDS).await?;
        Ok(())
    }

    /// Root of the host's files.
    pub(super) const fn root(&self) -> &HostRoot {
        &self.root
    }

    /// Domains that libvirt knows, by name, and whether they run.
    ///
    /// # Errors
    /// libvirt cannot be asked.
    pub(super) async fn domains(&self) -> Result<BTreeMap<String, bool>, SliceHostError> {
        let mut domains = BTreeMap::new();
        for (which, runs) in [("--all", false), ("--state-running", true)] {
            let arguments = ["--connect", "qemu:///system", "list", "--name", which];
            let output = self.runner.query("virsh", &arguments, QUERY_SECONDS).await?;
            let names = output.stdout.lines().map(str::trim).filter(|name| !name.is_empty());
            domains.extend(names.map(|name| (name.to_owned(), runs)));
        }
        Ok(domains)
    }

    /// Stops a domain where it runs, and forgets it with the variables of its firmware.
    ///
    /// # Errors
    /// libvirt refuses.
    pub(super) async fn remove_domain(&self, name: &str, runs: bool) -> Result<(), SliceHostError> {
        if runs {
            self.virsh(&["destroy", name]).await?;
        }
        self.virsh(&["undefine", "--nvram", name]).await?;
        self.isolate_guests().await
    }

    /// Functions, drives and NUMA nodes of the host.
    ///
    /// # Errors
    /// `topology_unreadable`.
    pub(super) async fn topology(&self) -> Result<HostTopology, SliceHostError> {
        let root = self.root.clone();
        let read = tokio::task::spawn_blocking(move || root.topology()).await;
        read.map_err(|error| SliceHostError::new("topology_unreadable", error.to_string()))
    }

    const fn functions(&self) -> HostFunctions<'_> {
        HostFunctions { root: &self.root, runner: self.runner }
    }

    fn folder(&self, claim: ClaimId) -> PathBuf {
        self.path(&slice_folder(claim))
    }

    /// A path of the host as one of this process.
    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Has the kernel forget what it keeps of a drive, so that a read is one of the drive.
    async fn flush(&self, path: &str) -> Result<(), SliceHostError> {
        self.runner.run("blockdev", &["--flushbufs", path], QUERY_SECONDS).await?;
        Ok(())
    }
}

fn unreadable(path: &str, error: &io::Error) -> SliceHostError {
    SliceHostError::new("file_unreadable", format!("{path}: {error}"))
}

fn unwritable(path: &str, error: &io::Error) -> SliceHostError {
    let code = if atomic_file::is_disk_full(error) { "disk_full" } else { "file_unwritable" };
    SliceHostError::new(code, format!("{path}: {error}"))
}

/// Runs what waits for a drive or a file on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SliceHostError> + Send + 'static,
) -> Result<T, SliceHostError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|error| SliceHostError::new("internal", error.to_string()))?
}

/// Has dnsmasq keep an address for the guest of a MAC address. It reads the file once it is there, and keeps
/// both for each other from then on: they are the slot's, whoever has it.
fn keep_address(root: &HostRoot, dhcp_host: &str) -> Result<(), SliceHostError> {
    if dhcp_host.is_empty() {
        return Ok(());
    }
    let (mac, address) = dhcp_host.split_once(',').unwrap_or_default();
    let bytes: Vec<&str> = mac.split(':').collect();
    let hex = |byte: &&str| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok();
    if bytes.len() != 6 || !bytes.iter().all(hex) || address.parse::<Ipv4Addr>().is_err() {
        let message = format!("invalid DHCP host {dhcp_host:?}: expected `MAC,ADDRESS`");
        return Err(SliceHostError::new("seed_invalid", message));
    }
    let file = root.join(DHCP_HOSTS).join(bytes.join("-"));
    // dnsmasq is another user.
    let kept = atomic_file::replace_with_mode(&file, format!("{dhcp_host}\n").as_bytes(), 0o644);
    kept.map_err(|error| unwritable(DHCP_HOSTS, &error))
}

#[async_trait]
impl SliceHost for LiveSliceHost<'_> {
    async fn domain(&self, claim: ClaimId) -> Result<DomainState, SliceHostError> {
        let id = claim.to_string();
        let arguments = ["--connect", "qemu:///system", "domstate", &id];
        match self.runner.query("virsh", &arguments, QUERY_SECONDS).await {
            Ok(output) if output.stdout.trim() == "shut off" => Ok(DomainState::Defined),
            Ok(_) => Ok(DomainState::Running),
            Err(CommandError::Failed { text, .. })
                if NO_DOMAIN.iter().any(|no| text.contains(no)) =>
            {
                Ok(DomainState::Absent)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn define_domain(&self, claim: ClaimId, xml: &str) -> Result<(), SliceHostError> {
        let path = format!("{}/domain.xml", slice_folder(claim));
        let file = self.path(&path);
        let written = fs::create_dir_all(self.folder(claim))
            .and_then(|()| atomic_file::replace(&file, xml.as_bytes()));
        written.map_err(|error| unwritable(&path, &error))?;
        self.virsh(&["define", "--validate", &path]).await
    }

    async fn start_domain(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        self.virsh(&["start", &claim.to_string()]).await
    }

    async fn stop_domain(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        self.virsh(&["destroy", &claim.to_string()]).await
    }

    async fn forget_domain(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        self.virsh(&["undefine", "--nvram", &claim.to_string()]).await
    }

    async fn function(&self, address: &str) -> Result<FunctionState, SliceHostError> {
        let topology = self.topology().await?;
        let function = topology.functions.into_iter().find(|one| one.address == address);
        let absent = || SliceHostError::new("device_lost", format!("no device {address}"));
        let function = function.ok_or_else(absent)?;
        let holders = function.holders.map(|holders| {
            holders.iter().map(|one| format!("{} ({})", one.program, one.pid)).collect()
        });
        let reset_methods = function.reset_methods.unwrap_or_default();
        let driver_override = self.functions().driver_override(address);
        Ok(FunctionState { driver: function.driver, driver_override, holders, reset_methods })
    }

    async fn bind_function(
        &self,
        address: &str,
        wanted: &FoundDriver,
    ) -> Result<(), SliceHostError> {
        self.functions().bind(address, wanted).await
    }

    async fn identity(&self, wanted: &FabricIdentity) -> Result<Option<String>, SliceHostError> {
        self.functions().identity(wanted).await
    }

    async fn set_identity(
        &self,
        address: &str,
        identity: &FabricIdentity,
        value: Option<&str>,
    ) -> Result<(), SliceHostError> {
        let remembered = match value {
            None => self.functions().remember(address, identity),
            Some(_) => Ok(()),
        };
        remembered.map_err(|error| unwritable(ASSIGNED_IDENTITIES, &error))?;
        self.functions().set_identity(identity, value).await
    }

    async fn preparation(&self, claim: ClaimId) -> Result<Option<Preparation>, SliceHostError> {
        let path = format!("{}/{PREPARATION}", slice_folder(claim));
        match fs::read(self.path(&path)) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| unreadable(&path, &io::Error::other(error))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&path, &error)),
        }
    }

    async fn keep_preparation(
        &self,
        claim: ClaimId,
        preparation: &Preparation,
    ) -> Result<(), SliceHostError> {
        let path = format!("{}/{PREPARATION}", slice_folder(claim));
        let kept = serde_json::to_vec(preparation)
            .map_err(io::Error::other)
            .and_then(|bytes| atomic_file::replace(&self.path(&path), &bytes));
        kept.map_err(|error| unwritable(&path, &error))
    }

    fn fabric_manager(&self) -> &dyn FabricManager {
        &self.fabric
    }

    async fn reset_function(&self, address: &str) -> Result<(), SliceHostError> {
        let path = format!("/sys/bus/pci/devices/{address}/reset");
        let file = self.path(&path);
        blocking(move || fs::write(file, "1\n").map_err(|error| unwritable(&path, &error))).await
    }

    async fn drive(&self, path: &str) -> Result<DriveState, SliceHostError> {
        let topology = self.topology().await?;
        let absent = || SliceHostError::new("device_lost", format!("no drive {path}"));
        let drive = topology.namespaces.into_iter().find(|one| one.path == path);
        let drive = drive.ok_or_else(absent)?;
        let (mut uses, mut partitions) = (drive.uses.is_some().then(Vec::new), Vec::new());
        // udev may still have the signature of the tenant whose data was erased: the read back judges that.
        let present = drive.uses.iter().flatten().filter(|one| one.kind != DiskUseKind::Signature);
        for one in present {
            match &mut uses {
                Some(uses) if one.kind != DiskUseKind::Partition => {
                    uses.push(format!("{} of {}: {}", one.kind, one.part, one.by));
                }
                _ => partitions.push(one.part.clone()),
            }
        }
        let size_bytes = drive.size_bytes.unwrap_or_default();
        Ok(DriveState { serial: drive.serial, uses, partitions, size_bytes })
    }

    async fn sanitize_state(&self, path: &str) -> Result<SanitizeState, SliceHostError> {
        let arguments = ["sanitize-log", "--output-format=json", path];
        match self.runner.query("nvme", &arguments, QUERY_SECONDS).await {
            Ok(output) => {
                let status = sanitize_status(&output.stdout);
                Ok(status.map_or(SanitizeState::None, SanitizeState::of_status))
            }
            // A drive that cannot sanitize has no such log; its format ends with the command.
            Err(CommandError::Failed { .. }) => Ok(SanitizeState::None),
            Err(error) => Err(error.into()),
        }
    }

    async fn erase_drive(&self, path: &str, method: EraseMethod) -> Result<(), SliceHostError> {
        let arguments = match method {
            EraseMethod::SanitizeCrypto => ["sanitize", "--sanact=4", path],
            EraseMethod::SanitizeBlock => ["sanitize", "--sanact=2", path],
            EraseMethod::SanitizeOverwrite => ["sanitize", "--sanact=3", path],
            EraseMethod::Format => ["format", "--ses=1", path],
        };
        self.runner.run("nvme", &arguments, ERASE_SECONDS).await?;
        Ok(())
    }

    async fn reread_partitions(&self, path: &str) -> Result<(), SliceHostError> {
        self.runner.run("blockdev", &["--rereadpt", path], QUERY_SECONDS).await?;
        Ok(())
    }

    async fn read_block(&self, path: &str, offset: u64) -> Result<Vec<u8>, SliceHostError> {
        self.flush(path).await?;
        let (file, path) = (self.path(path), path.to_owned());
        blocking(move || {
            let mut block = vec![0; BLOCK_BYTES];
            let read = File::open(file).and_then(|file| file.read_exact_at(&mut block, offset));
            read.map(|()| block).map_err(|error| unreadable(&path, &error))
        })
        .await
    }

    async fn write_block(
        &self,
        path: &str,
        offset: u64,
        block: Vec<u8>,
    ) -> Result<(), SliceHostError> {
        let (file, path) = (self.path(path), path.to_owned());
        blocking(move || {
            let file = OpenOptions::new().write(true).open(file);
            let written = file.and_then(|file| {
                file.write_all_at(&block, offset)?;
                file.sync_all()
            });
            written.map_err(|error| unwritable(&path, &error))
        })
        .await
    }

    async fn has_image(&self, image: &str) -> Result<bool, SliceHostError> {
        Ok(self.path(&format!("{GUEST_IMAGES_FOLDER}/{image}")).is_file())
    }

    async fn write_image(&self, image: &str, path: &str) -> Result<(), SliceHostError> {
        let image = format!("{GUEST_IMAGES_FOLDER}/{image}");
        let arguments = ["convert", "-n", "-O", "raw", &image, path];
        self.runner.run("qemu-img", &arguments, IMAGE_SECONDS).await?;
        Ok(())
    }

    /// A small FAT file system with the label that cloud-init looks for.
    async fn write_seed(&self, claim: ClaimId, seed: &SliceSeed) -> Result<(), SliceHostError> {
        let folder = slice_folder(claim);
        let here = self.folder(claim);
        let (meta, user, network) = ("meta-data", "user-data", "network-config");
        fs::create_dir_all(&here).map_err(|error| unwritable(&folder, &error))?;
        keep_address(&self.root, &seed.dhcp_host)?;
        let vendor_data = match GuestCallSettings::read(&self.root)? {
            Some(settings) => guest_call::expect_call(&here, claim, &settings)?,
            None => NO_VENDOR_DATA.to_owned(),
        };
        let written = atomic_file::remove_if_there(&here.join(SEED)).and_then(|()| {
            atomic_file::replace(&here.join(VENDOR_DATA), vendor_data.as_bytes())?;
            atomic_file::replace(&here.join(meta), seed.meta_data.as_bytes())?;
            atomic_file::replace(&here.join(user), seed.user_data.expose().as_bytes())?;
            atomic_file::replace(&here.join(network), seed.network_config.as_bytes())
        });
        written.map_err(|error| unwritable(&folder, &error))?;
        let image = format!("{folder}/{SEED}");
        let arguments = ["-C", "-n", "CIDATA", &image, "2048"];
        self.runner.run("mkfs.vfat", &arguments, QUERY_SECONDS).await?;
        let files = [meta, user, network, VENDOR_DATA].map(|name| format!("{folder}/{name}"));
        let arguments = ["-i", &image, &files[0], &files[1], &files[2], &files[3], "::"];
        self.runner.run("mcopy", &arguments, QUERY_SECONDS).await?;
        // A guest that could not be heard would be found out only after it was given up.
        self.listener.update(self.host).await?;
        let marked = atomic_file::replace(&here.join(PREPARED), b"");
        marked.map_err(|error| unwritable(&folder, &error))
    }

    async fn is_prepared(&self, claim: ClaimId) -> Result<bool, SliceHostError> {
        Ok(self.folder(claim).join(PREPARED).exists())
    }

    async fn remove_files(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        match fs::remove_dir_all(self.folder(claim)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(unwritable(&slice_folder(claim), &error))
            }
            _ => {
                // The guests of other claims are no part of this release.
                if let Err(error) = self.listener.update(self.host).await {
                    tracing::warn!(%error, "cannot listen for other guests");
                }
                Ok(())
            }
        }
    }

    async fn has_files(&self, claim: ClaimId) -> Result<bool, SliceHostError> {
        Ok(self.folder(claim).exists())
    }

    async fn guest_sign(
        &self,
        claim: ClaimId,
        mac: &str,
    ) -> Result<Option<String>, SliceHostError> {
        let folder = self.folder(claim);
        if !guest_call::is_expected(&folder) {
            let address = self.guest_address(mac).await?;
            return Ok(address.map(|address| format!("the guest took the address {address}")));
        }
        let updated = self.listener.update(self.host).await;
        match guest_call::received_call(&folder) {
            Some(call) => Ok(Some(call)),
            None => updated.map(|()| None),
        }
    }

    async fn forget_guest(&self, claim: ClaimId) -> Result<(), SliceHostError> {
        let forgotten = guest_call::forget_call(&self.folder(claim));
        forgotten.map_err(|error| unwritable(&slice_folder(claim), &error))
    }

    /// A line is expiry, MAC, address, name, client.
    async fn guest_address(&self, mac: &str) -> Result<Option<String>, SliceHostError> {
        let leases = match fs::read_to_string(self.root.join(LEASES)) {
            Ok(leases) => leases,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(LEASES, &error)),
        };
        Ok(leases.lines().find_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().filter(|one| one.eq_ignore_ascii_case(mac))?;
            fields.next().map(str::to_owned)
        }))
    }

    async fn isolate_guests(&self) -> Result<(), SliceHostError> {
        if !guest_call::isolates_guests(&self.root)? {
            return Ok(());
        }
        self.runner.run(GUEST_FLOWS, &[], FLOWS_SECONDS).await?;
        Ok(())
    }

    async fn pause(&self, seconds: u32) {
        HostClock.sleep(f64::from(seconds)).await;
    }
}

/// Status of the last sanitize, as either generation of nvme-cli prints it; none: it says none.
fn sanitize_status(printed: &str) -> Option<u64> {
    fn find(value: &Value) -> Option<u64> {
        let Value::Object(fields) = value else { return None };
        match fields.get("sstat") {
            Some(Value::Object(status)) => status.get("status").and_then(number),
            Some(status) => number(status),
            None => fields.values().find_map(find),
        }
    }
    fn number(value: &Value) -> Option<u64> {
        let text = value.as_str().map(|text| text.split_whitespace().next().unwrap_or_default());
        let number = match text {
            Some(text) => text.trim_matches(['(', ')']).parse().ok(),
            None => value.as_u64(),
        };
        number.map(|number: u64| number & 7)
    }
    find(&serde_json::from_str(printed).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sanitize_is_read_as_nvme_prints_it() {
        let first = r#"{"nvme0":{"sprog":65535,"sstat":{"global_erased":1,"status":1}}}"#;
        assert_eq!(sanitize_status(first), Some(1));
        let number = r#"{"nvme0n1":{"sprog":4000,"sstat":258}}"#;
        assert_eq!(sanitize_status(number), Some(2));
        let text = r#"{"sstat":{"status":"(2) Sanitize in Progress."}}"#;
        assert_eq!(sanitize_status(text), Some(2));
        for printed in ["", "{}", r#"{"sstat":"none"}"#] {
            assert_eq!(sanitize_status(printed), None);
        }
    }
}
