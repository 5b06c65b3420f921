//! The state of what a build begins with: indices of archives, fetched as apt does.

use std::fs;
use std::io;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::error::BuildError;
use crate::command::{Tool, ToolError, need};

/// Seconds that fetching an index may take.
const INDEX_SECONDS: u64 = 60;

/// The state of a source, by which builds are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseSnapshot {
    /// Digest of what names every package, in hex digits.
    pub digest: String,
    /// When that was made, in seconds since 1970: the latest time of a file in the image.
    pub epoch_seconds: i64,
}

/// The state of an archive of packages: its signed index.
pub(super) fn archive_snapshot(
    mirror: &str,
    suite: &str,
    scratch: &Path,
) -> Result<BaseSnapshot, BuildError> {
    index_snapshot(&format!("{}/dists/{suite}/InRelease", mirror.trim_end_matches('/')), scratch)
}

/// The state of an archive whose index is at `url`.
pub(super) fn index_snapshot(url: &str, scratch: &Path) -> Result<BaseSnapshot, BuildError> {
    let target = scratch.join("InRelease");
    fetch(url, &target, INDEX_SECONDS)?;
    let text = fs::read_to_string(&target)?;
    let malformed = || BuildError::SourceMalformed(url.to_owned());
    let epoch_seconds = release_date(&text).ok_or_else(malformed)?;
    let digest = hex::encode(Sha256::digest(text.as_bytes()));
    Ok(BaseSnapshot { digest, epoch_seconds })
}

/// Fetches a file as apt does.
pub(super) fn fetch(url: &str, target: &Path, seconds: u64) -> Result<(), BuildError> {
    let client = "/usr/lib/apt/apt-helper";
    need(client)?;
    // What is there would be asked for with its time, and kept where the server has none that is newer.
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let fetch = Tool::plain("fetch a file", client, seconds);
    let fetched = fetch.arg("download-file").arg(url).arg(target).run();
    let unreachable =
        |output: String| BuildError::SourceUnreachable { url: url.to_owned(), output };
    fetched.map(drop).map_err(|error| match error {
        ToolError::Step { output, .. } => unreachable(output),
        ToolError::TimedOut { seconds, .. } => unreachable(format!("no answer within {seconds} s")),
        other => other.into(),
    })
}

/// The field `Date` of a signed index, in seconds since 1970.
fn release_date(text: &str) -> Option<i64> {
    let date = text.lines().find_map(|line| line.strip_prefix("Date:"))?;
    // Sat, 06 Sep 2025 09:00:00 UTC
    let mut words = date.split_whitespace().skip(1);
    let day: i64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = i64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()? + 1;
    let year: i64 = words.next()?.parse().ok()?;
    let mut time = words.next()?.split(':').map(str::parse::<i64>);
    let (hour, minute, second) = (time.next()?.ok()?, time.next()?.ok()?, time.next()?.ok()?);
    Some(((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days of the Gregorian calendar since 1970-01-01. Years begin in March here, so that the day of a
/// leap year is the last.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_index_is_read() {
        let text = "-----BEGIN PGP SIGNED MESSAGE-----\nOrigin: Debian\nDate: Sat, 06 Sep 2025 09:52:20 UTC\nAcquire-By-Hash: yes\n";
        assert_eq!(release_date(text), Some(1_757_152_340));
        assert_eq!(release_date("Date: Thu, 01 Jan 1970 00:00:00 UTC"), Some(0));
        assert_eq!(release_date("Date: Thu, 29 Feb 2024 23:59:59 UTC"), Some(1_709_251_199));
        for odd in ["", "Date:", "Date: Sat, 06 Foo 2025 09:52:20 UTC", "Date: Sat, 06 Sep 2025"] {
            assert_eq!(release_date(odd), None, "{odd}");
        }
    }
}
