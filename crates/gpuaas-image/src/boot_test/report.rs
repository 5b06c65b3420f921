//! What a system says of itself after its boot.

use std::collections::BTreeSet;

/// What `assets/boot-test-report.sh` wrote, a line `NAME VALUE` each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SystemReport {
    lines: Vec<(String, String)>,
}

impl SystemReport {
    /// Reads it; none where its last line is missing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let pairs = text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
        let lines: Vec<(String, String)> =
            pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
        let is_whole = lines.last().is_some_and(|(name, _)| name == "reported");
        is_whole.then_some(Self { lines })
    }

    /// The value of a name; empty where it is not there.
    pub(super) fn value(&self, name: &str) -> &str {
        let found = self.lines.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// The values of a name.
    pub(super) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.lines.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Public host keys.
    pub(super) fn host_keys(&self) -> BTreeSet<&str> {
        self.values("host_key").collect()
    }

    /// Seconds until multi-user.target since a moment of the same clock, in microseconds; 0: it was not
    /// reached.
    pub(super) fn seconds_to_multi_user(&self, since_microseconds: f64) -> f64 {
        let reached: f64 = self.value("multi_user_us").parse().unwrap_or(0.0);
        if self.value("multi_user") == "active" && reached > since_microseconds {
            (reached - since_microseconds) / 1e6
        } else {
            0.0
        }
    }

    /// When systemd began, in microseconds of its clock.
    pub(super) fn userspace_microseconds(&self) -> f64 {
        self.value("userspace_us").parse().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_once_it_is_whole() {
        let text = "state running\nmulti_user active\nmulti_user_us 9500000\nuserspace_us 2500000\nhost_key a b\nhost_key c d\nvalidator_fails kernel argument\n";
        assert_eq!(SystemReport::parse(text), None, "it may have been cut");
        let report = SystemReport::parse(&format!("{text}reported yes\n")).unwrap();
        assert_eq!((report.value("state"), report.value("nothing")), ("running", ""));
        assert_eq!(report.host_keys().len(), 2);
        assert!((report.seconds_to_multi_user(0.0) - 9.5).abs() < 1e-9);
        let since = report.userspace_microseconds();
        assert!((report.seconds_to_multi_user(since) - 7.0).abs() < 1e-9);
        assert_eq!(report.value("validator_fails"), "kernel argument");
        // What firmware and boot loader left on the same port stands before it.
        let noise = format!("\u{1b}[2J\u{1b}[01;01HGNU GRUB state bad\n{text}reported yes\n");
        assert_eq!(SystemReport::parse(&noise).unwrap().value("state"), "running");
        let early = SystemReport::parse("multi_user activating\nmulti_user_us 7\nreported yes\n");
        assert!(early.unwrap().seconds_to_multi_user(0.0).abs() < 1e-9);
    }
}
