//! Parsers of the texts of `/proc` and `/sys`.

/// Longest text of a fact, in characters.
const MAX_CHARS: usize = 1024;

/// Trimmed, without control characters, cut; `None` when nothing is left.
pub(crate) fn clean(text: &str) -> Option<String> {
    let text: String = text
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .chars()
        .map(|c| if gpuaas_types::text::is_invisible(c) { '\u{fffd}' } else { c })
        .take(MAX_CHARS)
        .collect();
    (!text.is_empty()).then_some(text)
}

/// `NAME: 123 kB` of a meminfo file, in bytes. Lines of a NUMA node begin with `Node N`.
pub(crate) fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (head, value) = line.split_once(':')?;
        if head.split_whitespace().last() != Some(name) {
            return None;
        }
        let (number, unit) = value.trim().split_once(' ')?;
        (unit.trim() == "kB").then_some(())?;
        number.parse::<u64>().ok()?.checked_mul(1024)
    })
}

/// Numbers in a kernel list such as `0-3,8,10-11`.
pub(crate) fn list_length(text: &str) -> Option<u32> {
    text.split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The numbers of a kernel list such as `0-3,8,10-11`, at most 65,536 of them.
pub(crate) fn list_numbers(text: &str) -> Option<Vec<u32>> {
    if list_length(text)? > 1 << 16 {
        return None;
    }
    let mut numbers = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// `0x10de` as `10de`.
pub(crate) fn hex_digits(text: &str) -> Option<String> {
    let digits = text.strip_prefix("0x")?;
    let good = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    good.then(|| digits.to_ascii_lowercase())
}

/// Value of `NAME=value` in an os-release file; quotes are taken off.
pub(crate) fn shell_value(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?.trim();
    let unquoted = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(value);
    clean(unquoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_of_a_host_and_of_a_node() {
        assert_eq!(meminfo_bytes("MemTotal:  2 kB\nMemFree: 1 kB\n", "MemTotal"), Some(2048));
        assert_eq!(meminfo_bytes("Node 0 MemTotal:   4 kB\n", "MemTotal"), Some(4096));
        for bad in [
            "",
            "MemTotal",
            "MemTotal: x kB",
            "MemTotal: 5 MB",
            "MemTotal: 99999999999999999999 kB",
        ] {
            assert_eq!(meminfo_bytes(bad, "MemTotal"), None, "{bad}");
        }
        assert_eq!(meminfo_bytes(&format!("MemTotal: {} kB", u64::MAX), "MemTotal"), None);
    }

    #[test]
    fn kernel_lists() {
        assert_eq!(list_length("0-15,32-47"), Some(32));
        assert_eq!(list_length("3"), Some(1));
        assert_eq!(list_numbers("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(list_numbers("0-99999"), None);
        for bad in ["", "a", "3-1", "0-4294967295", "1-2-3"] {
            assert_eq!(list_length(bad), None, "{bad}");
        }
    }

    #[test]
    fn os_release_values() {
        let text = "PRETTY_NAME=\"Ubuntu 24.04\"\nID=ubuntu\nVERSION_ID='24.04'\nEMPTY=\n";
        assert_eq!(shell_value(text, "PRETTY_NAME").as_deref(), Some("Ubuntu 24.04"));
        assert_eq!(shell_value(text, "ID").as_deref(), Some("ubuntu"));
        assert_eq!(shell_value(text, "VERSION_ID").as_deref(), Some("24.04"));
        assert_eq!(shell_value(text, "EMPTY"), None);
    }
}
