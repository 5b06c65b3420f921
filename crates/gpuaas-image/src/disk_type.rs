//! MAAS' file types for whole disks: how each is packed, and read again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Child;

use crate::command::{Tool, ToolError, need};
use crate::entry::{ArchiveEntry, EntryKind};
use crate::gzip::{DEFAULT_LEVEL, ParallelGzip};
use crate::gzip_stream::GzipStream;
use crate::pack::{PackError, staged};
use crate::stream_digest::stream_digest;
use crate::tar_writer::{TarWriteError, TarWriter};

/// Seconds that compressing or reading a disk may take.
const COMPRESS_SECONDS: u64 = 7200;
/// Length of a block of tar.
const BLOCK: u64 = 512;

/// A file type of MAAS for whole disks (docs/hosts.md#host-images).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskType {
    /// Its name, such as `ddgz`.
    pub name: &'static str,
    /// Whether the disk is the one file of a tar archive.
    pub(crate) is_archive: bool,
    pub(crate) compressor: DiskCompressor,
}

/// What a file is compressed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskCompressor {
    Gzip,
    Bzip2,
    Xz,
}

impl DiskCompressor {
    /// The end of the names of such files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gz",
            Self::Bzip2 => "bz2",
            Self::Xz => "xz",
        }
    }
}

use DiskCompressor::{Bzip2, Gzip, Xz};

const fn row(name: &'static str, is_archive: bool, compressor: DiskCompressor) -> DiskType {
    DiskType { name, is_archive, compressor }
}

/// Every one.
pub const DISK_TYPES: [DiskType; 6] = [
    row("ddtgz", true, Gzip),
    row("ddtbz", true, Bzip2),
    row("ddtxz", true, Xz),
    row("ddgz", false, Gzip),
    row("ddbz2", false, Bzip2),
    row("ddxz", false, Xz),
];

/// A disk that was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackedDisk {
    /// SHA-256 of the file, in hex digits.
    pub(crate) sha256: String,
    /// Its length.
    pub(crate) bytes: u64,
}

impl DiskType {
    /// The one of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        DISK_TYPES.into_iter().find(|one| one.name == name)
    }

    /// The program that packs and unpacks it, where it is another one.
    const fn program(self) -> Option<&'static str> {
        match self.compressor {
            Gzip => None,
            Bzip2 => Some("bzip2"),
            Xz => Some("xz"),
        }
    }

    /// Whether this host can pack it.
    ///
    /// # Errors
    /// [`ToolError::Missing`].
    pub(crate) fn check_host(self) -> Result<(), ToolError> {
        self.program().map_or(Ok(()), need)
    }

    /// Writes a disk to the file `target`, which is complete or not there.
    ///
    /// # Errors
    /// [`ToolError`], [`PackError`]; `target` is as it was then.
    pub(crate) fn pack(self, disk: &Path, target: &Path) -> Result<PackedDisk, DiskPackError> {
        let staged = staged(target)?;
        let packed = match self.program() {
            None => {
                let threads = std::thread::available_parallelism().map_or(1, usize::from);
                let mut gzip = ParallelGzip::new(staged.reopen()?, threads, DEFAULT_LEVEL)?;
                self.write(disk, &mut gzip)?;
                let (_, summary) = gzip.finish()?;
                PackedDisk { sha256: summary.sha256, bytes: summary.written_bytes }
            }
            Some(program) => {
                let tool = Tool::plain("compress the disk", program, COMPRESS_SECONDS).arg("-c");
                // xz uses one core unless it is told to use all.
                let tool = if self.compressor == Xz { tool.arg("-T0") } else { tool };
                tool.filter(|input| self.write(disk, input), staged.reopen()?)?;
                let sha256 = stream_digest(staged.reopen()?)?;
                PackedDisk { sha256, bytes: staged.as_file().metadata()?.len() }
            }
        };
        staged.as_file().sync_all()?;
        staged.persist(target).map_err(|error| error.error)?;
        Ok(packed)
    }

    /// The disk, as a file of an archive where the type wants one.
    fn write(self, disk: &Path, output: &mut impl Write) -> io::Result<()> {
        let mut content = File::open(disk)?;
        if !self.is_archive {
            return io::copy(&mut content, output).map(drop);
        }
        let entry = ArchiveEntry {
            path: b"disk.img".to_vec(),
            kind: EntryKind::File { size_bytes: content.metadata()?.len() },
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime_seconds: 0,
            xattrs: Vec::new(),
        };
        let mut tar = TarWriter::new(output);
        let written = tar.append(&entry, &mut content).and_then(|()| tar.finish());
        written.map(drop).map_err(|error| match error {
            TarWriteError::Output(error) | TarWriteError::Content(error) => error,
            other => io::Error::other(other.to_string()),
        })
    }
}

/// Why a disk was not packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskPackError {
    /// The program that compresses.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The file.
    #[error(transparent)]
    Pack(#[from] PackError),
}

impl From<io::Error> for DiskPackError {
    fn from(error: io::Error) -> Self {
        Self::Pack(error.into())
    }
}

/// A compressed file, unpacked by what it begins with: gzip, bzip2 or xz.
///
/// # Errors
/// It cannot be read; the program that unpacks it is not here.
pub(crate) fn decompressed(path: &Path) -> io::Result<Box<dyn Read>> {
    let mut magic = Vec::new();
    File::open(path)?.take(6).read_to_end(&mut magic)?;
    let program = match magic.as_slice() {
        [b'B', b'Z', b'h', ..] => "bzip2",
        b"\xfd7zXZ\0" => "xz",
        _ => return Ok(Box::new(GzipStream::new(File::open(path)?))),
    };
    need(program).map_err(|error| io::Error::other(error.to_string()))?;
    let tool = Tool::plain("unpack the disk", program, COMPRESS_SECONDS);
    Ok(Box::new(Unpacking(tool.arg("-dc").arg(path).reader()?)))
}

/// The same; of an archive that begins with a file, from that file's content on: a disk, where it is one.
///
/// # Errors
/// As [`decompressed`]; what is damaged ends early.
pub(crate) fn disk_stream(path: &Path) -> io::Result<Box<dyn Read>> {
    let mut stream = decompressed(path)?;
    loop {
        let mut header = Vec::new();
        stream.by_ref().take(BLOCK).read_to_end(&mut header)?;
        let is_tar = header.get(257..262) == Some(b"ustar");
        match header.get(156) {
            Some(b'0' | 0) if is_tar => return Ok(stream),
            // A record for the next header, with its length.
            Some(b'x' | b'g') if is_tar => {}
            _ => return Ok(Box::new(io::Cursor::new(header).chain(stream))),
        }
        let size = header.get(124..136).unwrap_or_default();
        let digits: String = size.iter().map(|&byte| char::from(byte)).collect();
        let digits = digits.trim_matches(|c: char| c == '\0' || c == ' ');
        let size = u64::from_str_radix(digits, 8).unwrap_or(0);
        io::copy(&mut stream.by_ref().take(size.next_multiple_of(BLOCK)), &mut io::sink())?;
    }
}

/// The output of a program, which ends with this.
struct Unpacking(Child);

impl Read for Unpacking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.stdout.as_mut().map_or(Ok(0), |stdout| stdout.read(buffer))
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        // It may have ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_disk_of_each_type_is_read_again_by_what_curtin_reads_it_with() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        let content: Vec<u8> = (0..3_000_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        std::fs::write(&disk, &content).unwrap();
        // curtin/commands/block_meta.py, write_image_to_disk.
        let readers = [
            ("ddtgz", "tar -xOzf -"),
            ("ddtbz", "tar -xOjf -"),
            ("ddtxz", "tar -xOJf -"),
            ("ddgz", "zcat"),
            ("ddbz2", "bzcat"),
            ("ddxz", "xzcat"),
        ];
        for (name, reader) in readers {
            let kind = DiskType::find(name).unwrap();
            if let Err(error) = kind.check_host() {
                test_report::skip("tool", format!("{name}: {error}"));
                continue;
            }
            let target = folder.path().join(name);
            let packed = kind.pack(&disk, &target).unwrap();
            assert_eq!(packed.bytes, target.metadata().unwrap().len());
            assert_eq!(packed.sha256, stream_digest(File::open(&target).unwrap()).unwrap());
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{reader} <\"$1\""), "sh"]).arg(&target);
            let read = shell.output().unwrap();
            assert!(read.status.success() && read.stdout == content, "{name}");
            let mut ours = Vec::new();
            let ended = disk_stream(&target).unwrap().take(content.len() as u64);
            { ended }.read_to_end(&mut ours).unwrap();
            assert!(ours == content, "{name}");
        }
        assert_eq!(DiskType::find("tgz"), None);
    }
}
