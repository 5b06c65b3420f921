//! Lists of CPUs as the kernel writes them: `2-13,98-109`.

/// CPUs that a list may have; the kernel is built for 8192 at most.
const MOST: usize = 8192;

/// The CPUs of a list, as they stand there; none: it is no list, is empty or is too long.
pub(super) fn parse(text: &str) -> Option<Vec<u32>> {
    let mut cpus: Vec<u32> = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let length = usize::try_from(last.checked_sub(first)?).ok()?;
        if length >= MOST || cpus.len() + length >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Numbers as a list, sorted.
pub(super) fn format(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some((_, last)) if number.checked_sub(*last).is_some_and(|gap| gap <= 1) => {
                *last = number;
            }
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): (u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_the_kernel_writes_it() {
        assert_eq!(parse("2-4,98").as_deref(), Some(&[2, 3, 4, 98][..]));
        assert_eq!(parse("7\n").as_deref(), Some(&[7][..]));
        for text in ["", "4-2", "1,,2", "a", "0-4294967295", "0-9000", "-1"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(format(&[98, 2, 3, 4, 4]), "2-4,98");
        assert_eq!(format(&[]), "");
    }
}
