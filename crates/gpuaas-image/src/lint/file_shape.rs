//! What a file is, told by its bytes: how it is compressed, and what is inside.
//!
//! MAAS does not look: it writes what the declared type says. A gz of a disk declared as `ddtgz`, or a
//! tar of one declared as `ddgz`, deploys without a word and does not boot.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::subject::ImageFileType;
use crate::disk_image::is_disk;
use crate::disk_type::{DiskCompressor, decompressed, disk_stream};

/// Bytes of a file's begin that tell what it is.
const BEGIN: u64 = 4096;
/// Files that are none of MAAS' types, by what they begin with.
const OTHERS: [(&[u8], &str); 12] = [
    (b"QFI\xFB", "a qcow2 disk"),
    (b"KDMV", "a vmdk disk"),
    (b"conectix", "a vhd disk"),
    (b"vhdxfile", "a vhdx disk"),
    (b"\x28\xB5\x2F\xFD", "a zstd file"),
    (b"\x04\x22\x4D\x18", "an lz4 file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"7z\xBC\xAF\x27\x1C", "a 7z archive"),
    (b"hsqs", "a squashfs"),
    (b"LZIP", "an lzip file"),
    (b"\x5D\x00\x00", "an lzma file"),
    (b"070701", "a cpio archive"),
];

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileShape {
    /// Compressed.
    Compressed(DiskCompressor, ShapeContent),
    /// Something else that is known, with its article.
    Other(&'static str),
    /// Cut off, damaged, or of no known kind.
    Unknown,
}

/// What is inside of a compressed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShapeContent {
    /// A tar archive of files.
    Files,
    /// A tar archive that begins with a disk.
    DiskInTar,
    /// A disk.
    Disk,
    /// Nothing that was recognised; an archive of an old tar looks so.
    Unknown,
}

impl FileShape {
    /// Looks at the file's begin.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let mut begin = Vec::new();
        File::open(path)?.take(BEGIN).read_to_end(&mut begin)?;
        let compressor = match begin.as_slice() {
            [0x1F, 0x8B, ..] => DiskCompressor::Gzip,
            [b'B', b'Z', b'h', ..] => DiskCompressor::Bzip2,
            begin if begin.starts_with(b"\xFD7zXZ\0") => DiskCompressor::Xz,
            begin => return Ok(uncompressed(begin)),
        };
        Ok(Self::Compressed(compressor, content(path)?))
    }

    /// Why it is not what MAAS is told; none: it is, or nobody can tell.
    pub(crate) fn differs_from(self, declared: ImageFileType) -> Option<String> {
        let (wanted_compressor, wanted, text) = match declared {
            ImageFileType::Tgz => (
                DiskCompressor::Gzip,
                ShapeContent::Files,
                "a tar.gz of a root file system".to_owned(),
            ),
            ImageFileType::Disk(kind) => {
                let end = kind.compressor.name();
                match kind.is_archive {
                    true => {
                        (kind.compressor, ShapeContent::DiskInTar, format!("a tar.{end} of a disk"))
                    }
                    false => (kind.compressor, ShapeContent::Disk, format!("a {end} of a disk")),
                }
            }
        };
        let is_same = match self {
            Self::Unknown => true,
            Self::Other(_) => false,
            Self::Compressed(compressor, content) => {
                let is_content = content == wanted || content == ShapeContent::Unknown;
                compressor == wanted_compressor && is_content
            }
        };
        let name = declared.name();
        (!is_same).then(|| format!("the file is {}, but the type {name} means {text}", self.text()))
    }

    fn text(self) -> String {
        match self {
            Self::Unknown => "of an unknown type".to_owned(),
            Self::Other(name) => name.to_owned(),
            Self::Compressed(compressor, content) => {
                let end = compressor.name();
                match content {
                    ShapeContent::Files => format!("a tar.{end} of files"),
                    ShapeContent::DiskInTar => format!("a tar.{end} of a disk"),
                    ShapeContent::Disk => format!("a {end} of a disk"),
                    ShapeContent::Unknown => format!("a {end} of something else"),
                }
            }
        }
    }
}

fn uncompressed(begin: &[u8]) -> FileShape {
    if let Some((_, name)) = OTHERS.iter().find(|(magic, _)| begin.starts_with(magic)) {
        return FileShape::Other(name);
    }
    if is_tar(begin) {
        return FileShape::Other("an uncompressed tar archive");
    }
    if is_disk(begin) {
        return FileShape::Other("an uncompressed disk");
    }
    FileShape::Unknown
}

fn is_tar(begin: &[u8]) -> bool {
    begin.get(257..262) == Some(b"ustar")
}

/// What is behind the compression.
fn content(path: &Path) -> io::Result<ShapeContent> {
    let (Some(begin), Some(first)) = (sectors(decompressed(path))?, sectors(disk_stream(path))?)
    else {
        return Ok(ShapeContent::Unknown);
    };
    Ok(match (is_tar(&begin), is_disk(&first)) {
        (true, true) => ShapeContent::DiskInTar,
        (true, false) => ShapeContent::Files,
        (false, true) => ShapeContent::Disk,
        (false, false) => ShapeContent::Unknown,
    })
}

/// The first kibibyte of a stream; `None` where it is damaged, shorter, or nothing here unpacks it.
fn sectors(stream: io::Result<Box<dyn io::Read>>) -> io::Result<Option<Vec<u8>>> {
    let mut begin = vec![0; 1024];
    match stream.and_then(|mut stream| stream.read_exact(&mut begin)) {
        Ok(()) => Ok(Some(begin)),
        Err(error) => match error.kind() {
            io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData
            | io::ErrorKind::Other
            | io::ErrorKind::UnexpectedEof => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_declared_is_compared_with_what_is_there() {
        let told = |shape: FileShape, name: &str| {
            shape.differs_from(ImageFileType::find(name).unwrap()).unwrap_or_default()
        };
        let disk = FileShape::Compressed(DiskCompressor::Gzip, ShapeContent::Disk);
        let text = "the file is a gz of a disk, but the type ddtgz means a tar.gz of a disk";
        assert_eq!(told(disk, "ddtgz"), text);
        assert_eq!(told(disk, "ddgz"), "");
        let archive = FileShape::Compressed(DiskCompressor::Gzip, ShapeContent::DiskInTar);
        let text = "the file is a tar.gz of a disk, but the type ddgz means a gz of a disk";
        assert_eq!(told(archive, "ddgz"), text);
        let files = FileShape::Compressed(DiskCompressor::Xz, ShapeContent::Files);
        let text =
            "the file is a tar.xz of files, but the type tgz means a tar.gz of a root file system";
        assert_eq!(told(files, "tgz"), text);
        assert!(told(FileShape::Other("a qcow2 disk"), "ddgz").contains("a qcow2 disk"));
        assert_eq!(told(FileShape::Unknown, "tgz"), "");
        assert_eq!(uncompressed(b"QFI\xFB\0\0"), FileShape::Other("a qcow2 disk"));
    }
}
