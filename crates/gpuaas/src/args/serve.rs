//! `gpuaas serve`, and the clock that a control plane shares with a simulator.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use gpuaas_types::Timestamp;

/// `gpuaas serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Address to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Folder of the embedded store, the artifacts, the master key and the admin token.
    #[arg(long, value_name = "DIR", default_value = "gpuaas-data")]
    pub data: PathBuf,
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE` or `sqlite:PATH` [default: DATA/gpuaas.db].
    #[arg(long, value_name = "URL", env = "GPUAAS_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
    /// URL under which nodes reach this control plane [default: http://LISTEN].
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// The node agent's executable [default: gpuaas-node-agent beside this executable].
    #[arg(long, value_name = "PATH")]
    pub agent_binary: Option<PathBuf>,
    /// Run on a clock shared with a simulator.
    #[arg(long, value_name = "CLOCK", default_value = "real", hide = true)]
    pub clock: ClockChoice,
}

/// `real`, or `paced:FACTOR:EPOCH_US`: FACTOR times as fast as the wall since EPOCH_US.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClockChoice {
    /// The wall clock.
    Real,
    /// A faster one.
    Paced {
        /// Seconds of the clock per second of the wall.
        factor: f64,
        /// When both agreed.
        epoch: Timestamp,
    },
}

impl FromStr for ClockChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "real" {
            return Ok(Self::Real);
        }
        let mut parts = text.splitn(3, ':');
        let (Some("paced"), Some(factor), Some(epoch)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err("write real, or paced:FACTOR:EPOCH_US".to_owned());
        };
        let epoch = epoch.parse().map_err(|_| format!("{epoch:?} is no number of microseconds"))?;
        Ok(Self::Paced { factor: positive(factor)?, epoch: Timestamp::from_micros(epoch) })
    }
}

impl std::fmt::Display for ClockChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Real => f.write_str("real"),
            Self::Paced { factor, epoch } => write!(f, "paced:{factor}:{}", epoch.as_micros()),
        }
    }
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!("{text:?} is not a number above 0")),
    }
}
