//! A slice host on which slices can be launched and released, and what is wrong with it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use gpuaas_types::slice::GUEST_IMAGES_FOLDER;

use super::layout::HostLayout;
use super::tree::HostTree;

/// The program that plays what files cannot: libvirt, drives, the fabric manager, guests.
pub const EMULATOR: &str = include_str!("emulator.sh");
/// What runs a real guest: QEMU alone, or this machine's libvirt.
const GUEST_MACHINE: &str = include_str!("guest_machine.sh");
const GUEST_DOMAIN: &str = include_str!("guest_domain.sh");
/// Name of the image that each host has.
pub const GUEST_IMAGE: &str = "debian-13.raw";
/// What the bundle of slice hosts writes, as far as slices need it.
const SETTINGS: &str = "GPUAAS_SLICE_BRIDGE=ovsbr0\nGPUAAS_SLICE_GATEWAY=10.100.0.1/24\n\
                        GPUAAS_SLICE_GUEST_CALL_PORT=18775\n";
/// Bytes of a sector of `size` in sysfs.
const SECTOR_BYTES: u64 = 512;
/// What a guest writes to each of its drives: a block of this byte at each of these offsets.
const TENANT_BYTE: u8 = b'T';
/// Size of such a block.
const BLOCK_BYTES: u64 = 4096;
/// Number of blocks before each of them.
pub const TENANT_BLOCKS: [u64; 3] = [3, 100_003, 800_003];

/// What a real guest writes to its drive, line after line.
const TENANT_LINE: &str = "TENANT-PATTERN";
/// Bytes of these lines, and the first MiB that has them: behind the image.
const TENANT_LINES_BYTES: usize = 1 << 20;
const TENANT_LINES_MIB: u64 = 800;

/// What is wrong with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SliceFault {
    /// Drives say that they erased themselves, and keep everything.
    EraseLies,
    /// Drives erase all but their last sixteenth.
    EraseStopsShort,
    /// Drives refuse to erase themselves.
    EraseFails,
    /// GPUs and virtual functions cannot be reset.
    ResetFails,
    /// Domains do not start.
    StartFails,
    /// Domains cannot be stopped.
    StopFails,
    /// Guests are never heard.
    GuestSilent,
    /// Virtual functions do not keep the identity that they are given.
    IdentityLost,
    /// Virtual functions keep their identity whatever is set.
    IdentityStays,
    /// Drivers do not let go of functions.
    FunctionsBusy,
    /// The fabric manager activates no partition.
    PartitionRefused,
    /// Partitions of NVSwitches stay active, whatever the fabric manager says.
    PartitionStays,
}

impl SliceFault {
    /// Each of them.
    pub const ALL: [Self; 12] = [
        Self::EraseLies,
        Self::EraseStopsShort,
        Self::EraseFails,
        Self::ResetFails,
        Self::StartFails,
        Self::StopFails,
        Self::GuestSilent,
        Self::IdentityLost,
        Self::IdentityStays,
        Self::FunctionsBusy,
        Self::PartitionRefused,
        Self::PartitionStays,
    ];

    /// Name of the file that says so.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EraseLies => "erase_lies",
            Self::EraseStopsShort => "erase_stops_short",
            Self::EraseFails => "erase_fails",
            Self::ResetFails => "reset_fails",
            Self::StartFails => "start_fails",
            Self::StopFails => "stop_fails",
            Self::GuestSilent => "guest_silent",
            Self::IdentityLost => "identity_lost",
            Self::IdentityStays => "identity_stays",
            Self::FunctionsBusy => "functions_busy",
            Self::PartitionRefused => "partition_refused",
            Self::PartitionStays => "partition_stays",
        }
    }
}

/// A slice host below a folder.
#[derive(Debug, Clone)]
pub struct EmulatedSliceHost {
    folder: PathBuf,
}

impl EmulatedSliceHost {
    /// Writes a host of this layout to an empty folder. Its drives have no room yet
    /// ([`Self::attach_drives`]), so that the folder may be copied.
    ///
    /// # Errors
    /// What keeps the files from being written.
    pub fn write(folder: &Path, layout: &HostLayout) -> io::Result<Self> {
        let host = Self::at(folder);
        HostTree::write_to(folder, layout)?;
        let mut program = OpenOptions::new();
        program.write(true).create(true).truncate(true).mode(0o755);
        program.open(host.emulator())?.write_all(EMULATOR.as_bytes())?;
        let images = folder.join(GUEST_IMAGES_FOLDER.trim_start_matches('/'));
        fs::create_dir_all(&images)?;
        fs::write(images.join(GUEST_IMAGE), "an image of a guest\n".repeat(100))?;
        fs::create_dir_all(folder.join("faults"))?;
        let settings = folder.join("etc/gpuaas");
        fs::create_dir_all(&settings)?;
        fs::write(settings.join("slice.env"), SETTINGS)?;
        Ok(host)
    }

    /// The host that was written to this folder.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The program that plays what files cannot.
    #[must_use]
    pub fn emulator(&self) -> PathBuf {
        self.folder.join("emulator")
    }

    /// Gives each drive its size. What was never written takes no room.
    ///
    /// # Errors
    /// What keeps a file from being made.
    pub fn attach_drives(&self) -> io::Result<()> {
        for drive in fs::read_dir(self.folder.join("sys/block"))? {
            let drive = drive?;
            let sectors = fs::read_to_string(drive.path().join("size"))?;
            let sectors: u64 = sectors.trim().parse().map_err(io::Error::other)?;
            let path = self.folder.join("dev").join(drive.file_name());
            File::create(path)?.set_len(sectors * SECTOR_BYTES)?;
        }
        Ok(())
    }

    /// Has QEMU start guests from `image`, a disk with a system of its own and cloud-init, in place of
    /// those that are played; `libvirt`: this machine's own starts QEMU, and Open vSwitch and dnsmasq are
    /// this machine's, too. Answers the user-data that has each leave [`TENANT_LINE`] where
    /// [`Self::tenant_lines`] looks for it.
    ///
    /// # Errors
    /// What keeps a file from being written.
    pub fn run_guests(&self, image: &Path, libvirt: bool) -> io::Result<String> {
        let images = self.folder.join(GUEST_IMAGES_FOLDER.trim_start_matches('/'));
        fs::remove_file(images.join(GUEST_IMAGE))?;
        symlink(image.canonicalize()?, images.join(GUEST_IMAGE))?;
        let program = self.folder.join("run/emulator/guest_machine");
        fs::create_dir_all(self.folder.join("run/emulator"))?;
        let mut file = OpenOptions::new();
        let file = file.write(true).create(true).truncate(true).mode(0o755).open(program);
        file?.write_all(if libvirt { GUEST_DOMAIN } else { GUEST_MACHINE }.as_bytes())?;
        // Neither keys nor languages are of use to it, and both take long.
        Ok(format!(
            "#cloud-config\nlocale: false\nssh_genkeytypes: []\nruncmd:\n  - yes {TENANT_LINE} | \
             head -c {TENANT_LINES_BYTES} | dd of=$(ls /dev/disk/by-id/virtio-slot? | head -n 1) bs=1M \
             seek={TENANT_LINES_MIB} conv=fsync,notrunc\n"
        ))
    }

    /// Bytes of the lines of a real guest that are on the drive at `path`, of those looked at.
    ///
    /// # Errors
    /// What keeps the drive from being read.
    pub fn tenant_lines(&self, path: &str) -> io::Result<(u64, u64)> {
        let drive = File::open(self.folder.join(path.trim_start_matches('/')))?;
        let mut bytes = vec![0; TENANT_LINES_BYTES];
        drive.read_exact_at(&mut bytes, TENANT_LINES_MIB << 20)?;
        let line = TENANT_LINE.as_bytes();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|found| *found == line).count();
        Ok(((lines * line.len()) as u64, TENANT_LINES_BYTES as u64))
    }

    /// What guests of QEMU said at their console.
    #[must_use]
    pub fn console(&self) -> String {
        let bytes = fs::read(self.folder.join("run/emulator/console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sets what is wrong with the host, in the place of what was.
    ///
    /// # Errors
    /// What keeps a file from being written.
    pub fn set_faults(&self, faults: &[SliceFault]) -> io::Result<()> {
        let folder = self.folder.join("faults");
        fs::remove_dir_all(&folder)?;
        fs::create_dir_all(&folder)?;
        for fault in faults {
            fs::write(folder.join(fault.as_str()), "")?;
        }
        let breaks = faults.contains(&SliceFault::ResetFails);
        for function in fs::read_dir(self.folder.join("sys/bus/pci/devices"))? {
            let reset = function?.path().join("reset");
            // A file that is a folder takes nothing.
            match (breaks, reset.is_dir()) {
                (true, false) => {
                    fs::remove_file(&reset).or_else(there_is_none)?;
                    fs::create_dir(&reset)?;
                }
                (false, true) => fs::remove_dir(&reset)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes a PCI function out of its slot.
    ///
    /// # Errors
    /// Where there is none.
    pub fn unplug(&self, address: &str) -> io::Result<()> {
        let link = self.folder.join("sys/bus/pci/devices").join(address);
        let device = link.canonicalize()?;
        fs::remove_file(link)?;
        fs::remove_dir_all(device)
    }

    /// Partitions of its NVSwitches that are active.
    #[must_use]
    pub fn active_partitions(&self) -> usize {
        fs::read_dir(self.folder.join("run/emulator/partitions")).map_or(0, Iterator::count)
    }

    /// Domains that the host knows.
    #[must_use]
    pub fn domains(&self) -> usize {
        let Ok(files) = fs::read_dir(self.folder.join("run/emulator/domains")) else { return 0 };
        files.flatten().filter(|file| !file.file_name().to_string_lossy().contains('.')).count()
    }

    /// Bytes that a guest wrote to the drive at `path` and that are still there, of those looked at.
    ///
    /// # Errors
    /// What keeps the drive from being read.
    pub fn tenant_bytes(&self, path: &str) -> io::Result<(u64, u64)> {
        let drive = File::open(self.folder.join(path.trim_start_matches('/')))?;
        let (mut left, mut looked_at) = (0, 0);
        for number in TENANT_BLOCKS {
            let mut block = vec![0; usize::try_from(BLOCK_BYTES).unwrap_or_default()];
            drive.read_exact_at(&mut block, number * BLOCK_BYTES)?;
            left += block.iter().map(|byte| u64::from(*byte == TENANT_BYTE)).sum::<u64>();
            looked_at += BLOCK_BYTES;
        }
        Ok((left, looked_at))
    }
}

fn there_is_none(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
