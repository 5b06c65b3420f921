//! Classes of simulated machines, as the command line names them.

use clap::ValueEnum;

/// What machines are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum MachineClass {
    /// 8-GPU server with InfiniBand; the hardware takes about half an hour.
    #[default]
    H200,
    /// 8-GPU server with Ethernet only.
    Ethernet,
    /// The hardware takes no time.
    Zero,
}
