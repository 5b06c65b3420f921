//! What makes an enum of codes and its table from one list.

/// An enum of codes and its table, from one list.
macro_rules! codes {
    (
        $(#[$meta:meta])* $name:ident, $row:ident, $table:ident;
        $($variant:ident $code:literal $title:literal { $($field:ident: $value:expr),+ $(,)? })+
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $(#[doc = $title] $variant,)+ }

        #[doc = concat!("Every [`", stringify!($name), "`] with its row, in the order of the enum.")]
        pub static $table: &[$row] = &[$(
            $row { code: $name::$variant, title: $title, $($field: $value),+ },
        )+];

        impl $name {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The code as it is on the wire and in the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The row of this code.
            #[must_use]
            pub fn row(self) -> &'static $row {
                &$table[self as usize]
            }

            /// The code of this string; none: no row has it.
            #[must_use]
            pub fn from_code(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == code)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl From<$name> for String {
            fn from(code: $name) -> Self {
                code.as_str().to_owned()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, other: &$name) -> bool {
                self == other.as_str()
            }
        }
    };
}
