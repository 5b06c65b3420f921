//! The virtual machine of a claim, as libvirt is told of it.
//!
//! What a guest gets is decided by its claim: devices, cores, pages and addresses belong to the
//! claimed slots. [`DomainPlan::new`] lays them out as the host has them, and [`DomainPlan::xml`]
//! writes the layout in libvirt's words. Both are pure, so the same claim on the same host is the same
//! document, byte for byte, and a reviewer reads a change of it as a difference of golden files.
//!
//! - Each host root complex that functions of the claim are below becomes an expander bus with the
//!   guest's NUMA node, and each function has a root port of its own there: a guest that looks for the
//!   nearest adapter of a GPU finds the one that is nearest on the host.
//! - Memory is pages of 1 GiB, locked, strictly of the nodes that the slots have their pages at.
//!   Virtual CPUs are pinned one by one, threads of a core side by side; the emulator runs on the cores
//!   that the host keeps.
//! - The firmware maps the registers of GPUs into a window above the guest's memory. Its size follows
//!   from the registers ([`mmio`](DomainPlan::mmio_window_gib)). Too small a window makes a guest that
//!   starts and has no GPU, so such a domain is refused before it is defined.
//! - The identifier of the domain is that of the claim: whoever finds a domain knows whose it is, and a
//!   second domain of one claim is refused by libvirt itself.

mod cpu_list;
mod fault;
mod mmio;
mod plan;
mod policy;
mod render;
mod xml;

#[cfg(test)]
mod tests;

pub use self::fault::DomainFault;
pub use self::plan::{
    DomainPlan, DomainRequest, GuestCell, GuestDrive, GuestFunction, GuestRootComplex,
};
pub use self::policy::{DomainPolicy, NvmeAttachment, VirtType};

impl DomainPlan {
    /// The domain as libvirt's XML.
    #[must_use]
    pub fn xml(&self, policy: &DomainPolicy) -> String {
        render::domain(self, policy).xml()
    }
}
