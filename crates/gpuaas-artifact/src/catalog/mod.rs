//! The catalog of bundles: digest to bundle, and `name@version` to digest.
//!
//! Every bundle is an archive with a signature, whether it came with the control plane or was
//! published to it. Its bytes are in the artifact store, so a node fetches them by digest. A
//! published version never changes. The bundles of this repository may change with a newer control
//! plane; what was resolved before stays as it was, because a profile's revision stores the digests
//! ([`BundleCatalog::pins`]).
//!
//! The catalog is what one process has loaded. The database is the source: a name that is not found
//! here may be there.
//!
//! From the ground up: `error`, `bundle`, `index`, then `built_in` and `inputs`.

mod built_in;
mod bundle;
mod error;
mod index;
mod inputs;
#[cfg(test)]
mod tests;

pub use built_in::built_in_archives;
pub use bundle::{CatalogBundle, CheckedBundle};
pub use error::{CatalogError, secret_hint};
pub use index::{BundleCatalog, OWN_NAME, own_key_name};
