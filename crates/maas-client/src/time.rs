//! The time texts of MAAS, as seconds since 1970 UTC.

/// Reads `Fri, 20 Nov. 2026 13:41:39` (events, no zone, UTC), `Fri, 20 Nov 2026 13:35:42 +0000`
/// (script results) and `Fri, 20 Nov 2026 13:32:07 GMT` (the `Date` header): docs/maas.md#times.
/// `None` where the text has none of these forms.
pub fn parse_maas_time(text: &str) -> Option<i64> {
    let rest = text.split_once(',').map_or(text, |(_, rest)| rest);
    let mut words = rest.split_ascii_whitespace();
    let day: i64 = words.next()?.parse().ok()?;
    let month = month(words.next()?)?;
    let year: i64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':');
    let mut part = |limit: i64| -> Option<i64> {
        let value: i64 = clock.next()?.parse().ok()?;
        (0..limit).contains(&value).then_some(value)
    };
    let (hour, minute, second) = (part(24)?, part(60)?, part(61)?);
    let zone = words.next().map_or(Some(0), zone_seconds)?;
    if !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    Some(days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - zone)
}

fn month(word: &str) -> Option<i64> {
    const NAMES: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let head = word.get(..3)?.to_ascii_lowercase();
    let index = NAMES.iter().position(|name| *name == head)?;
    i64::try_from(index + 1).ok()
}

fn zone_seconds(word: &str) -> Option<i64> {
    if matches!(word, "GMT" | "UTC" | "Z") {
        return Some(0);
    }
    let sign = match word.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let hours: i64 = word.get(1..3)?.parse().ok()?;
    let minutes: i64 = word.get(3..5)?.parse().ok()?;
    Some(sign * (hours * 3_600 + minutes * 60))
}

/// Days since 1970-01-01 of a Gregorian date (the usual era arithmetic, March-based years).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_three_forms() {
        assert_eq!(parse_maas_time("Fri, 20 Nov. 2026 13:41:39"), Some(1_795_182_099));
        assert_eq!(parse_maas_time("Fri, 20 Nov 2026 13:41:39 +0000"), Some(1_795_182_099));
        assert_eq!(parse_maas_time("Fri, 20 Nov 2026 13:41:39 GMT"), Some(1_795_182_099));
        assert_eq!(parse_maas_time("Fri, 20 Nov 2026 15:41:39 +0200"), Some(1_795_182_099));
        assert_eq!(parse_maas_time("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse_maas_time("Thu, 29 Feb. 2024 00:00:00"), Some(1_709_164_800));
    }

    #[test]
    fn refuses_other_texts() {
        for bad in [
            "",
            "soon",
            "Fri, 20 Foo. 2026 13:41:39",
            "Fri, 20 Nov. 2026 25:00:00",
            "2026-11-20T13:26:33Z",
        ] {
            assert_eq!(parse_maas_time(bad), None, "{bad}");
        }
    }
}
