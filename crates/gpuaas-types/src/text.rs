//! Kinds of text, as the schemas of the API describe them.
//!
//! A field that holds one of them stays a `String` and names its kind
//! (`#[schemars(with = "text::WordsText")]`), so a rule has one pattern, wherever it is asked for. What a
//! schema cannot say, such as that an address is within a subnet, is checked by the handler alone.

use std::borrow::Cow;
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Whether the host of a URL or a connection is this machine. No proxy knows the way there.
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a character has no glyph of its own and may change how others are shown: the categories Cc
/// and Cf of Unicode, such as line breaks, escapes and the controls of writing direction.
///
/// Text of others loses them before it is stored or shown (Unicode 16, `UnicodeData.txt`).
#[must_use]
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}' | '\u{e0020}'..='\u{e007f}')
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $pattern:expr;)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $name {}

            impl $name {
                /// The pattern of the schema, a regular expression of ECMA-262.
                pub const PATTERN: &'static str = $pattern;
            }

            impl JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({ "type": "string", "pattern": Self::PATTERN })
                }
            }
        )+

        /// Every kind with its pattern.
        pub const KINDS: &[(&str, &str)] = &[$((stringify!($name), $name::PATTERN)),+];
    };
}

kinds! {
    /// Words of a person, such as a reason: something besides white space and control characters.
    WordsText = r"[^\s\x00-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]";
    /// Text that is not empty.
    FilledText = r"[\s\S]";
    /// Name of a site, a profile, a batch or a token: a label of RFC 1123 in lower case.
    NameText = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
    /// Short hostname: a label of RFC 1123 section 2.1.
    HostnameText = r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$";
    /// MAC address: pairs with colons or dashes between them, groups of four with dots or colons, or
    /// twelve digits; neither all zeros nor all ones.
    MacAddressText = r"^(?![0.:-]+$)(?![Ff.:-]+$)([0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}([.:][0-9A-Fa-f]{4}){2}|[0-9A-Fa-f]{12})$";
    /// Power driver of MAAS.
    PowerTypeText = r"^[A-Za-z0-9_-]{1,128}$";
    /// Identifier that MAAS gives a machine.
    SystemIdText = r"^[A-Za-z0-9_-]{1,128}$";
    /// The same, or nothing.
    OptionalSystemIdText = r"^[A-Za-z0-9_-]{0,128}$";
    /// Architecture of a machine, such as `amd64/generic`.
    ArchitectureText = r"^[A-Za-z0-9_.-]{1,63}/[A-Za-z0-9_.-]{1,64}$";
    /// Text without control characters: a BMC's user, its password.
    PrintableText = r"^[^\x00-\x1f\x7f-\x9f]+$";
    /// Serial number of a machine.
    SerialText = r"^(?=.*\S)[^\x00-\x1f\x7f-\x9f]{1,128}$";
    /// The same, or nothing.
    OptionalSerialText = r"^[^\x00-\x1f\x7f-\x9f]{0,128}$";
    /// Name of a network interface.
    InterfaceText = r"^[A-Za-z0-9._-]{1,128}$";
    /// Key of a MAAS user: `consumer:token:secret`.
    MaasKeyText = r"^[!-9;-~]+:[!-9;-~]+:[!-9;-~]+$";
    /// Where such a key is kept: `vault:MOUNT/PATH#FIELD`.
    KeyReferenceText = r"^vault:[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127})+#[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$";
    /// Bytes in base64 (RFC 4648 section 4).
    Base64Text = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";
    /// A public key: 32 bytes in base64.
    PublicKeyText = r"^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$";
    /// SHA-256, in hexadecimal digits.
    Sha256Text = r"^[0-9A-Fa-f]{64}$";
    /// Name of an image of a guest: a file name.
    ImageNameText = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$";
    /// Name of a host image in MAAS, with or without `custom/` or its system.
    HostImageText = r"^[A-Za-z0-9/._:+-]{1,128}$";
    /// Identifier of an item.
    IdText = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";
    /// Number of a line or a row.
    NumberText = r"^[0-9]{1,18}$";
    /// Where events may be posted: https, or http to an address of loopback; no user, no password.
    WebhookUrlText = r"^(https://([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:]{2,39}\])|http://(127(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}|\[::1\]))(:[1-9][0-9]{0,4})?(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,500}(\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,500})?)?$";
    /// A moment, as RFC 3339 writes it.
    TimestampText = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_of_writing_direction_are_invisible() {
        for c in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{1b}', '\n'] {
            assert!(is_invisible(c), "{c:?}");
        }
        assert!("naïve – 東京 😀".chars().all(|c| !is_invisible(c)));
    }
}
