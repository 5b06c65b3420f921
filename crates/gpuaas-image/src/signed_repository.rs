//! Archives of packages that a recipe names, with what a site sets for them.

/// An archive of packages and who may sign it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRepository {
    /// Name of its file in `/etc/apt/sources.list.d`, without the ending.
    pub name: String,
    /// URL of the folder with its index.
    pub url: String,
    /// URL of the keys that may sign the index.
    pub key_url: String,
    /// Fingerprints that these keys have to have, in upper-case hex digits; empty: the keys that the URL
    /// serves count.
    pub fingerprints: Vec<String>,
    /// Whether its packages win over the base's own of the same name.
    pub prefer: bool,
}
