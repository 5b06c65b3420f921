//! The mark that control planes keep in a region: the comment of one tag.
//!
//! MAAS tells no API client which region it is (docs/maas.md#identity-of-a-region), so the mark
//! holds an identity of our own: two addresses that show the same mark lead to one region.

use std::fmt;
use std::str::FromStr;

/// Name of the tag whose comment is the mark. No machine has it.
pub const MARK_TAG: &str = "gpuaas-control-plane";

/// Longest identity that is taken for one, in characters.
const LONGEST_IDENTITY: usize = 64;

/// What the mark says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlMark {
    /// Identity of the region, made when the first control plane came to it.
    pub region: String,
}

impl fmt::Display for ControlMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept by GPUaaS; do not change or delete it. region={}", self.region)
    }
}

/// A comment that is no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMark;

impl FromStr for ControlMark {
    type Err = NoMark;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let field = |name: &str| {
            text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let is_identity = |text: &&str| {
            (1..=LONGEST_IDENTITY).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        let region = field("region").filter(is_identity).ok_or(NoMark)?.to_owned();
        Ok(Self { region })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_as_it_was_written_and_other_comments_are_none() {
        let mark = ControlMark { region: "0198c5a0-0000-7000-8000-000000000001".to_owned() };
        assert_eq!(mark.to_string().parse(), Ok(mark.clone()));
        let edited = format!("do not touch (ann) {mark} 2026");
        assert_eq!(edited.parse(), Ok(mark));
        for other in
            ["", "region", "region=", "the region=is/mine", &format!("region={}", "a".repeat(65))]
        {
            assert_eq!(other.parse::<ControlMark>(), Err(NoMark), "{other}");
        }
    }
}
