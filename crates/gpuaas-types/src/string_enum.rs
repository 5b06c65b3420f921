//! Fieldless enumerations that have one written form: on the wire, in the database, in output.

use std::fmt;

/// A text that is no written form of any value of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownValue {
    /// Name of the enumeration's Rust type, such as `NodeState`.
    pub kind: &'static str,
    /// The text that was read.
    pub text: String,
}

impl fmt::Display for UnknownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}", self.text, self.kind)
    }
}

impl std::error::Error for UnknownValue {}

/// Declares a fieldless enumeration from one table of variants and their written forms: `ALL`,
/// `as_str`, `Display`, `FromStr` and serde's two traits all read that table.
macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The written form: on the wire, in the database and in output.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::string_enum::UnknownValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::string_enum::UnknownValue {
                        kind: stringify!($name),
                        text: text.to_owned(),
                    }),
                }
            }
        }
    };
}

pub(crate) use string_enum;
