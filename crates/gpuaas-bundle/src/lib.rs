//! What a bundle is: the folder that gives a node its personality, as bytes that can be trusted.
//!
//! Four parts, used by whoever builds a bundle and by whoever runs one:
//!
//! - [`manifest`]: what a bundle says of itself. Typed and checked whole, so what a build let
//!   through needs no second opinion on the node.
//! - [`archive`]: the folder as one file. The same folder gives the same bytes everywhere, and a
//!   reader takes only what a writer of this crate could have written.
//! - [`signature`]: who vouches for the bytes, and until when.
//! - [`delivery`]: what a node is told of all that.
//!
//! A task for an agent is signed in the same envelope: [`order`].
//!
//! No clock, no network, and no file is touched but those below a folder that the caller names.

pub mod archive;
pub mod delivery;
pub mod digest;
pub mod input;
pub mod manifest;
pub mod order;
pub mod signature;

pub use archive::{Archive, ArchiveError, Entry};
pub use delivery::{Artifact, Delivery, SignedBundle};
pub use digest::Digest;
pub use input::{Input, InputError, InputType, Inputs};
pub use manifest::{Fault, Gate, Kind, Manifest, Phase, Reference, Requirement};
pub use signature::{Envelope, PublicKey, SignatureError, SigningKey, Statement, TrustedKey};
