//! The facts of a Linux host, read from files below a root folder.
//!
//! Nothing here runs a program, talks to a daemon or needs a privilege: `/proc`, `/sys` and `/etc`
//! are read below [`HostRoot`]. So a fixture tree, a simulated host and a real machine are read by
//! the same code. What a driver or systemd has to be queried for is parsed from the output that the
//! caller got ([`gpu`], [`software`]). A file that is missing, unreadable, oversized or malformed
//! gives `None` or an empty list, never an error: the facts of a host that is half broken are the
//! ones that matter most. Texts have no control characters and at most 1,024 characters, and lists
//! at most 4,096 entries, because a node is not trusted to be well-behaved.
//!
//! ```
//! let folder = tempfile::tempdir()?;
//! std::fs::create_dir_all(folder.path().join("etc"))?;
//! std::fs::write(folder.path().join("etc/hostname"), "j22u11\n")?;
//!
//! let facts = host_facts::HostRoot::new(folder.path()).read();
//! assert_eq!(facts.hostname.as_deref(), Some("j22u11"));
//! assert_eq!(facts.cpu_count, None); // there is no /proc below the folder
//! # Ok::<(), std::io::Error>(())
//! ```

mod facts;
pub mod gpu;
mod image;
pub mod infiniband;
mod isolation;
mod login;
pub mod network;
mod parse;
pub mod pci;
mod root;
pub mod software;
pub mod storage;
pub mod system;
#[cfg(test)]
mod tests;
pub mod topology;

pub use facts::HostFacts;
pub use gpu::NvidiaGpu;
pub use image::{BUILD_RECORD, ImageBuild};
pub use infiniband::InfinibandPort;
pub use login::Login;
pub use network::{LinkAddress, Listener, NetworkLink, Route};
pub use pci::PciFunction;
pub use root::HostRoot;
pub use software::{Package, Unit};
pub use storage::{BlockDevice, Mount};
pub use system::{NumaNode, OsRelease};
