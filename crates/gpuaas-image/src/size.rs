//! Sizes as people write them.

/// Units with their powers of 1024, as qemu-img and truncate read them.
const UNITS: [(char, u32); 4] = [('K', 1), ('M', 2), ('G', 3), ('T', 4)];

/// Bytes of `80G`, `512M` or a plain number; `None` for anything else, and for what 64 bits do not
/// hold.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit = UNITS.iter().find(|(unit, _)| text.to_ascii_uppercase().ends_with(*unit));
    let (digits, power) = match unit {
        Some((_, power)) => (&text[..text.len() - 1], *power),
        None => (text, 0),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = is_number.then(|| digits.parse().ok()).flatten()?;
    number.checked_mul(1024_u64.checked_pow(power)?)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_with_and_without_units() {
        for (text, bytes) in
            [("80G", 80 << 30), ("512m", 512 << 20), ("1T", 1 << 40), ("2K", 2048), ("17", 17)]
        {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "-1", "+1", "1.5G", "1GB", "99999999999T", "8 G", "\u{e4}"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
