//! A tree as a PAX archive (POSIX.1-2001, pax Interchange Format), entry by entry.
//!
//! An entry is a ustar header. Before it stands an extended header for what ustar has no room for:
//! names of more than 100 bytes, large owners and sizes, times before 1970, and extended attributes
//! under `SCHILY.xattr.NAME`, which GNU tar, bsdtar and Python read. Owners are numbers alone, since
//! curtin extracts with `--numeric-owner`. The bytes depend on the entries and nothing else.
//!
//! The tar crate's own `append_dir_all` was not used: it writes hard links as copies, leaves out
//! extended attributes and stops at a socket.

use std::io::{self, Read, Write};

use crate::entry::{ArchiveEntry, EntryKind};

/// Unit of an archive, in bytes.
const BLOCK: usize = 512;
/// Longest name of a ustar header, in bytes.
const NAME_BYTES: usize = 100;
/// Largest number of seven octal digits: owners, groups and device numbers.
const MAX_OCTAL_7: u64 = 0o7_777_777;
/// Largest number of eleven octal digits: sizes and times.
const MAX_OCTAL_11: u64 = 0o77_777_777_777;
/// Bytes of a content that are read at once.
const COPY_BYTES: usize = 256 << 10;

/// Why an entry could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TarWriteError {
    /// The archive has no way to say what the entry is.
    #[error("an archive cannot store it: {0}")]
    Unrepresentable(&'static str),
    /// The content could not be read.
    #[error("cannot read its content: {0}")]
    Content(io::Error),
    /// The content has another length than the entry says.
    #[error("it changed while being read")]
    Changed,
    /// The archive could not be written.
    #[error("cannot write the archive: {0}")]
    Output(io::Error),
}

/// Writes a PAX archive to `W`.
#[derive(Debug)]
pub struct TarWriter<W> {
    output: W,
    buffer: Vec<u8>,
    written_bytes: u64,
}

impl<W: Write> TarWriter<W> {
    /// An archive without entries.
    pub fn new(output: W) -> Self {
        Self { output, buffer: vec![0; COPY_BYTES], written_bytes: 0 }
    }

    /// Length of the archive so far, in bytes.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Adds an entry; `content` is read to its end, where the entry is a file.
    ///
    /// # Errors
    /// [`TarWriteError`]. The archive is of no use after one.
    pub fn append(
        &mut self,
        entry: &ArchiveEntry,
        content: &mut dyn Read,
    ) -> Result<(), TarWriteError> {
        let header = encode(entry)?;
        self.write(&header)?;
        let size = entry.kind.content_bytes();
        let mut left = size;
        while left > 0 {
            let wanted = self.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = read_some(content, &mut self.buffer[..wanted])?;
            if count == 0 {
                return Err(TarWriteError::Changed);
            }
            self.output.write_all(&self.buffer[..count]).map_err(TarWriteError::Output)?;
            self.written_bytes += count as u64;
            left -= count as u64;
        }
        if size > 0 && read_some(content, &mut [0])? > 0 {
            return Err(TarWriteError::Changed);
        }
        self.write(&[0; BLOCK][..padding(size)])
    }

    /// Writes the end of the archive, and hands its output back.
    ///
    /// # Errors
    /// [`TarWriteError::Output`].
    pub fn finish(mut self) -> Result<W, TarWriteError> {
        self.write(&[0; 2 * BLOCK])?;
        Ok(self.output)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TarWriteError> {
        self.output.write_all(bytes).map_err(TarWriteError::Output)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }
}

fn read_some(content: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, TarWriteError> {
    loop {
        match content.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(TarWriteError::Content),
        }
    }
}

/// Bytes from the end of a content to the next block.
fn padding(size: u64) -> usize {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or_default();
    if over == 0 { 0 } else { BLOCK - over }
}

/// The headers of an entry, the extended one first where there is one.
fn encode(entry: &ArchiveEntry) -> Result<Vec<u8>, TarWriteError> {
    let name = archived_name(&entry.path, matches!(entry.kind, EntryKind::Directory));
    let link = match &entry.kind {
        EntryKind::Symlink { target } => target.clone(),
        EntryKind::HardLink { target } => archived_name(target, false),
        _ => Vec::new(),
    };
    if [&name, &link].iter().any(|text| text.contains(&0)) {
        return Err(TarWriteError::Unrepresentable("a name contains a zero byte"));
    }
    let records = extended_records(entry, &name, &link)?;
    let mut bytes = Vec::new();
    if !records.is_empty() {
        let mut header = Header::new(b"./PaxHeaders", b'x');
        header.octal(SIZE, records.len() as u64);
        header.octal(MODE, 0o644);
        bytes.extend(header.finish());
        bytes.extend(&records);
        bytes.extend(&[0; BLOCK][..padding(records.len() as u64)]);
    }
    let (flag, device) = match &entry.kind {
        EntryKind::File { .. } => (b'0', None),
        EntryKind::HardLink { .. } => (b'1', None),
        EntryKind::Symlink { .. } => (b'2', None),
        EntryKind::CharacterDevice(device) => (b'3', Some(device)),
        EntryKind::BlockDevice(device) => (b'4', Some(device)),
        EntryKind::Directory => (b'5', None),
        EntryKind::Fifo => (b'6', None),
    };
    let mut header = Header::new(&name, flag);
    header.text(LINK, &link);
    header.octal(MODE, u64::from(entry.mode & 0o7777));
    header.octal(UID, u64::from(entry.uid));
    header.octal(GID, u64::from(entry.gid));
    header.octal(SIZE, entry.kind.content_bytes());
    header.octal(MTIME, u64::try_from(entry.mtime_seconds).unwrap_or_default());
    if let Some(device) = device {
        if u64::from(device.major.max(device.minor)) > MAX_OCTAL_7 {
            return Err(TarWriteError::Unrepresentable("the device number is too large"));
        }
        header.octal(MAJOR, u64::from(device.major));
        header.octal(MINOR, u64::from(device.minor));
    }
    bytes.extend(header.finish());
    Ok(bytes)
}

/// The path as archives of a root have it: `./etc/fstab`, and `./etc/` of a folder.
fn archived_name(path: &[u8], is_folder: bool) -> Vec<u8> {
    let mut name = b"./".to_vec();
    name.extend(path);
    if is_folder && !path.is_empty() {
        name.push(b'/');
    }
    name
}

/// What ustar has no room for, in a fixed order.
fn extended_records(
    entry: &ArchiveEntry,
    name: &[u8],
    link: &[u8],
) -> Result<Vec<u8>, TarWriteError> {
    let mut records = Vec::new();
    if name.len() > NAME_BYTES {
        add_record(&mut records, b"path", name);
    }
    if link.len() > NAME_BYTES {
        add_record(&mut records, b"linkpath", link);
    }
    for (key, number, most) in [
        (b"size".as_slice(), entry.kind.content_bytes(), MAX_OCTAL_11),
        (b"uid", u64::from(entry.uid), MAX_OCTAL_7),
        (b"gid", u64::from(entry.gid), MAX_OCTAL_7),
    ] {
        if number > most {
            add_record(&mut records, key, number.to_string().as_bytes());
        }
    }
    let fits = u64::try_from(entry.mtime_seconds).is_ok_and(|seconds| seconds <= MAX_OCTAL_11);
    if !fits {
        add_record(&mut records, b"mtime", entry.mtime_seconds.to_string().as_bytes());
    }
    let mut xattrs: Vec<_> = entry.xattrs.iter().collect();
    xattrs.sort();
    for (xattr, value) in xattrs {
        if xattr.contains(&b'=') {
            let why = "the name of an extended attribute contains an equals sign";
            return Err(TarWriteError::Unrepresentable(why));
        }
        add_record(&mut records, &[b"SCHILY.xattr.".as_slice(), xattr].concat(), value);
    }
    Ok(records)
}

/// A record is its own length in decimal, a space, `KEY=VALUE` and a line end.
fn add_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend(length.to_string().as_bytes());
    records.push(b' ');
    records.extend(key);
    records.push(b'=');
    records.extend(value);
    records.push(b'\n');
}

/// Where a field of a ustar header is: its first byte and its length.
type Field = (usize, usize);
const MODE: Field = (100, 8);
const UID: Field = (108, 8);
const GID: Field = (116, 8);
const SIZE: Field = (124, 12);
const MTIME: Field = (136, 12);
const CHECKSUM: Field = (148, 8);
const LINK: Field = (157, NAME_BYTES);
const MAJOR: Field = (329, 8);
const MINOR: Field = (337, 8);

/// A ustar header.
struct Header([u8; BLOCK]);

impl Header {
    fn new(name: &[u8], flag: u8) -> Self {
        let mut header = Self([0; BLOCK]);
        header.text((0, NAME_BYTES), name);
        header.0[156] = flag;
        header.text((257, 8), b"ustar\x0000");
        for number in [MODE, UID, GID, SIZE, MTIME, MAJOR, MINOR] {
            header.octal(number, 0);
        }
        header
    }

    /// As much of `text` as the field holds; an extended header has all of it.
    fn text(&mut self, (at, length): Field, text: &[u8]) {
        let length = text.len().min(length);
        self.0[at..at + length].copy_from_slice(&text[..length]);
    }

    /// `number` in octal digits with a zero byte behind; one that is too large is in an extended
    /// header, and here it is zero.
    fn octal(&mut self, (at, length): Field, number: u64) {
        let digits = format!("{number:0width$o}", width = length - 1);
        let digits = if digits.len() < length { digits } else { "0".repeat(length - 1) };
        self.text((at, length), digits.as_bytes());
    }

    /// The bytes, with the sum of all of them, where the sum itself counts as spaces.
    fn finish(mut self) -> [u8; BLOCK] {
        self.text(CHECKSUM, b"        ");
        let sum: u32 = self.0.iter().map(|byte| u32::from(*byte)).sum();
        self.text(CHECKSUM, format!("{sum:06o}\0 ").as_bytes());
        self.0
    }
}
