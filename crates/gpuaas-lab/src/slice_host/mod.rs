//! Slice hosts as folders: sysfs and procfs of servers with GPUs, written from a layout.
//!
//! The agent's readers read such a folder as they read a real host, so what is tested with it is the
//! way from files to slots. The layouts are of servers that exist; the order of module ids in them is
//! that of an HGX board, where it is not the order of PCI addresses.

mod layout;
mod pci_tree;
mod tree;

pub use layout::{HostLayout, LAYOUTS, SwitchLayout};
pub use tree::{HostTree, TreeDevice, TreeDrive};
