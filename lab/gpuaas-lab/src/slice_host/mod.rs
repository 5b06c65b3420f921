//! Slice hosts as folders: sysfs and procfs of servers with GPUs, written from a layout.
//!
//! The agent's readers read such a folder as they read a real host, so what is tested with it is the
//! way from files to slots. The layouts are of servers that exist; the order of module ids in them is
//! that of an HGX board, where it is not the order of PCI addresses.
//!
//! An emulated host has drives as well, which are files without blocks, and a program that plays
//! libvirt, its drives' controllers and its guests (`emulator.sh`): the agent launches and releases
//! slices there with what it does on a real host. A guest may be real, too: QEMU without KVM boots it
//! (`guest_machine.sh`), and its own cloud-init reads the seed and calls.

mod emulated;
mod furnish;
mod layout;
mod pci_tree;
mod tree;

pub use emulated::{EMULATOR, EmulatedSliceHost, GUEST_IMAGE, SliceFault, TENANT_BLOCKS};
pub use furnish::furnish;
pub use layout::{HostLayout, LAYOUTS, SwitchLayout};
pub use tree::{HostTree, TreeDevice, TreeDrive};
