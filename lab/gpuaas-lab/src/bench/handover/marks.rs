//! What a tenant leaves on a host: marked data in every place where tenants write.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;

/// What stands in everything that the tenant writes.
const MARK: &[u8] = b"tenant-4711 ";
/// Above this size, in bytes, an executable is not searched.
const LARGE_BYTES: u64 = 1 << 20;
/// What the name of a finding begins with that says that a folder was emptied.
pub(super) const EMPTY_PREFIX: &str = "empty ";
/// Where the tenant writes, and how often the mark.
const PLANTED: [(&str, usize); 14] = [
    ("var/lib/gpuaas/tenant/work/data", 100),
    ("var/lib/gpuaas/scratch/0/data", 100),
    ("dev/shm/data", 10),
    ("home/tenant/.bashrc", 3),
    ("home/ubuntu/.ssh/authorized_keys", 2),
    ("root/.ssh/authorized_keys", 2),
    ("var/spool/cron/crontabs/root", 4),
    ("etc/cron.d/tenant", 4),
    ("var/lib/docker/containers/c1/config.v2.json", 20),
    ("var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/b1", 50),
    ("data/0/model.bin", 500),
    ("swapfile", 300),
    ("tmp/data", 8),
    ("var/tmp/data", 8),
];

/// Writes what a tenant leaves; the bytes of it.
pub(super) fn plant(root: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for (path, times) in PLANTED {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap_or(root))?;
        fs::write(&file, MARK.repeat(times))?;
        bytes += (MARK.len() * times) as u64;
    }
    Ok(bytes)
}

/// Every file with marks, relative to the root, with the bytes of them. What a link points at is not
/// followed, and what goes away meanwhile is not there.
pub(super) fn marked_files(root: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let Some(metadata) = unless_gone(fs::symlink_metadata(&path))? else { continue };
            if metadata.is_dir() {
                folders.push(path);
                continue;
            }
            if !metadata.is_file() || is_large_executable(&metadata) {
                continue;
            }
            let Some(marks) = unless_gone(marks_of(&path))? else { continue };
            if marks > 0 {
                let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
                found.push((path, marks * MARK.len() as u64));
            }
        }
    }
    Ok(found)
}

/// How often the mark stands in a file. A drive of an emulated host is a file of terabytes with hardly
/// anything in it: only where it has data is it read (lseek(2), `SEEK_DATA`).
fn marks_of(path: &Path) -> io::Result<u64> {
    let mut file = fs::File::open(path)?;
    let (mut marks, mut at) = (0, 0);
    while let Some((begin, end)) = next_data(&file, at)? {
        file.seek(SeekFrom::Start(begin))?;
        marks += count_marks(&mut (&file).take(end - begin))?;
        at = end;
    }
    Ok(marks)
}

/// The next part of a file that is no hole, from a place on.
fn next_data(file: &fs::File, at: u64) -> io::Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    match seek(file, SeekFrom::Data(at)) {
        // Nothing but a hole comes after it.
        Err(rustix::io::Errno::NXIO) => Ok(None),
        begin => {
            let begin = begin?;
            Ok(Some((begin, seek(file, SeekFrom::Hole(begin))?)))
        }
    }
}

/// How often the mark stands in what is read, a piece at a time.
fn count_marks(reader: &mut impl io::Read) -> io::Result<u64> {
    const PIECE_BYTES: u64 = 1 << 20;
    let (mut piece, mut marks) = (Vec::new(), 0);
    loop {
        if reader.by_ref().take(PIECE_BYTES).read_to_end(&mut piece)? == 0 {
            return Ok(marks);
        }
        marks += piece.windows(MARK.len()).filter(|window| *window == MARK).count() as u64;
        // A mark may begin in this piece and end in the next one.
        let rest = piece.len().saturating_sub(MARK.len() - 1);
        piece.drain(..rest);
    }
}

/// The agent and the like, which no tenant of this benchmark writes.
fn is_large_executable(metadata: &fs::Metadata) -> bool {
    metadata.len() > LARGE_BYTES && metadata.permissions().mode() & 0o111 != 0
}

fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// The folder of a host cannot be written or read.
pub(super) fn not_made(error: &io::Error) -> Failure {
    Failure::local(CommandCode::TestHostUnavailable, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_in_a_drive_of_holes_and_across_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive");
        let file = fs::File::create(&path).unwrap();
        file.set_len(3_840_755_982_336).unwrap();
        let write = |at: u64| {
            std::os::unix::fs::FileExt::write_all_at(&file, MARK, at).unwrap();
        };
        // The second one lies across the end of the first piece of its part.
        for at in [0, (1 << 20) - 5, 3_000_000_000_000] {
            write(at);
        }
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 1 << 20], 12).unwrap();
        write((1 << 20) - 5);
        let found = marked_files(dir.path()).unwrap();
        assert_eq!(found, [(PathBuf::from("drive"), 3 * MARK.len() as u64)]);
    }
}
