//! Values that firmware shows where a vendor wrote none: many boards share them, so they identify nothing.

/// UUIDs of boards as vendors leave them, in digits.
const UUIDS: [&str; 6] = [
    "03000200040005000006000700080009",
    "00020003000400050006000700080009",
    "12345678123456781234567812345678",
    "12345678123412341234123456789abc",
    "4c4c454400002010802080c04f202020",
    "00000000000000000000000000000001",
];
/// Serial numbers and tags of boards as vendors leave them, without case, blanks and punctuation.
const TEXTS: [&str; 22] = [
    "",
    "assettag",
    "chassisserialnumber",
    "default",
    "defaultstring",
    "empty",
    "invalid",
    "na",
    "nodata",
    "none",
    "notapplicable",
    "notavailable",
    "notspecified",
    "null",
    "oem",
    "serialnumber",
    "systemserialnumber",
    "tbd",
    "tobefilledbyoem",
    "undefined",
    "unknown",
    "unspecified",
];
/// Neighbouring digits that follow each other, of the 31 of a UUID: a random one has two, and hardly ever
/// twelve.
const MOST_RISING: usize = 12;

/// Whether 32 hexadecimal digits in lower case are nobody's UUID: one digit or one group over and over,
/// counted up, made of small numbers alone, or known.
#[must_use]
pub fn is_placeholder_uuid(digits: &str) -> bool {
    let bytes = digits.as_bytes();
    let repeats = |length: usize| {
        let Some((group, rest)) = bytes.split_at_checked(length) else { return false };
        rest.chunks(length).all(|next| next == group)
    };
    let value = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or_default();
    let values: Vec<u32> = bytes.iter().map(value).collect();
    let rising = values.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    let falling = values.windows(2).filter(|pair| pair[0] == pair[1] + 1).count();
    let is_small = values.chunks(2).all(|pair| pair[0] == 0);
    let known = UUIDS.contains(&digits);
    [1, 2, 4, 8, 16].into_iter().any(repeats)
        || rising > MOST_RISING
        || falling > MOST_RISING
        || is_small
        || known
}

/// Whether a serial number or a tag is nobody's.
#[must_use]
pub fn is_placeholder_text(text: &str) -> bool {
    let plain: String =
        text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let first = plain.chars().next().unwrap_or_default();
    let same = plain.chars().all(|c| c == first);
    let counted =
        "01234567890123456789".contains(&plain) || "abcdefghijklmnopqrstuvwxyz".contains(&plain);
    TEXTS.contains(&plain.as_str()) || same || counted && plain.len() >= 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_that_vendors_leave_in_are_nobodys() {
        let digits = |text: &str| text.replace('-', "").to_lowercase();
        for text in [
            "03000200-0400-0500-0006-000700080009",
            "12345678-1234-5678-90ab-cddeefaabbcc",
            "fefefefe-fefe-fefe-fefe-fefefefefefe",
            "00020003-0004-0005-0006-000700080009",
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "01234567-89ab-cdef-0123-456789abcdef",
            "deadbeef-dead-beef-dead-beefdeadbeef",
            "4C4C4544-0000-2010-8020-80C04F202020",
        ] {
            assert!(is_placeholder_uuid(&digits(text)), "{text}");
        }
        for text in [
            "4C4C4544-0042-3510-8052-B4C04F4D4D32",
            "00000000-0000-0000-0000-ac1f6b123456",
            "38393550-3435-5355-4538-30334e394432",
            "11111111-2222-3333-4444-555555555556",
        ] {
            assert!(!is_placeholder_uuid(&digits(text)), "{text}");
        }
    }

    #[test]
    fn serial_numbers_that_vendors_leave_in_are_nobodys() {
        for text in [
            "To be filled by O.E.M.",
            "Default string",
            "0123456789",
            "",
            "00000000",
            "N/A",
            "System Serial Number",
            "XXXX",
        ] {
            assert!(is_placeholder_text(text), "{text}");
        }
        for text in ["ABC123", "CN7475153A0123", "S269317X0507111", "12", "J3012345678"] {
            assert!(!is_placeholder_text(text), "{text}");
        }
    }
}
