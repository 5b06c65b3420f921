//! Versions of the agent, in the order of their releases.

use std::str::FromStr;

/// A version of the agent, ordered as Semantic Versioning 2.0 orders them: numbers with dots, then
/// `-` and a pre-release, then `+` and a build, which does not count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentVersion {
    numbers: Vec<u32>,
    /// A pre-release comes before its release.
    is_release: bool,
    pre_release: Vec<Identifier>,
}

/// A part of a pre-release; numbers come before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl FromStr for AgentVersion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str =
            "expected one to four numbers separated by dots, such as 1.4.0 or 1.4.0-rc.1";
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b".-".contains(&b);
        let (version, build) = text.split_once('+').unwrap_or((text, ""));
        if text.len() > 64 || !build.bytes().all(is_plain) {
            return Err(WANTED);
        }
        let (numbers, pre_release) = match version.split_once('-') {
            Some((_, "")) => return Err(WANTED),
            Some((numbers, pre_release)) => (numbers, Some(pre_release)),
            None => (version, None),
        };
        let number = |part: &str| {
            let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            part.parse::<u32>().ok().filter(|_| is_number)
        };
        let mut numbers: Vec<u32> =
            numbers.split('.').map(number).collect::<Option<_>>().ok_or(WANTED)?;
        if numbers.len() > 4 {
            return Err(WANTED);
        }
        while numbers.len() > 1 && numbers.last() == Some(&0) {
            numbers.pop();
        }
        let identifier = |part: &str| {
            let is_good = !part.is_empty() && part.bytes().all(is_plain);
            let word = || Identifier::Word(part.to_owned());
            is_good.then(|| part.parse().map_or_else(|_| word(), Identifier::Number))
        };
        let is_release = pre_release.is_none();
        let parts = pre_release.into_iter().flat_map(|text| text.split('.'));
        let pre_release = parts.map(identifier).collect::<Option<_>>().ok_or(WANTED)?;
        Ok(Self { numbers, is_release, pre_release })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_their_releases() {
        let order = [
            "0.1.0-alpha",
            "0.1.0-alpha.2",
            "0.1.0-alpha.10",
            "0.1.0-rc.1",
            "0.1.0",
            "0.1.1",
            "0.9.0",
            "0.10.0",
            "1",
            "1.0.0.1",
            "2.0",
        ];
        let order: Vec<AgentVersion> = order.iter().map(|text| text.parse().unwrap()).collect();
        assert!(order.is_sorted_by(|one, next| one < next), "{order:?}");
        let same = ["1.0", "1", "1.0.0", "1.0.0+build.7"].map(|text| text.parse::<AgentVersion>());
        assert!(same.iter().all(|one| *one == same[0] && one.is_ok()), "{same:?}");
        for text in ["", "v1", "1.", ".1", "1.2.3.4.5", "1-", "1-rc..1", "1.x", "+1", "1+ü", "1.-2"]
        {
            assert!(text.parse::<AgentVersion>().is_err(), "{text}");
        }
    }
}
