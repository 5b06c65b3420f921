//! A clock written as text, so that one process can tell another on which clock to run.

use std::str::FromStr;
use std::sync::Arc;

use gpuaas_types::Timestamp;

use crate::clock::{Clock, PacedClock, RealClock};

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

impl ClockChoice {
    /// The clock itself.
    #[must_use]
    pub fn clock(self) -> Arc<dyn Clock> {
        match self {
            Self::Real => Arc::new(RealClock),
            Self::Paced { factor, epoch } => Arc::new(PacedClock::new(epoch, factor)),
        }
    }
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
        let factor = match factor.parse::<f64>() {
            Ok(factor) if factor > 0.0 && factor.is_finite() => factor,
            _ => return Err(format!("{factor:?} is not a number above 0")),
        };
        Ok(Self::Paced { factor, epoch: Timestamp::from_micros(epoch) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_as_it_was_written() {
        let epoch = Timestamp::from_micros(1_795_190_400_000_000);
        let clock = ClockChoice::Paced { factor: 2.5, epoch };
        assert_eq!(clock.to_string().parse::<ClockChoice>().unwrap(), clock);
        assert_eq!("real".parse::<ClockChoice>().unwrap(), ClockChoice::Real);
        for bad in ["", "paced", "paced:0:1", "paced:x:1", "paced:2:soon"] {
            assert!(bad.parse::<ClockChoice>().is_err(), "{bad}");
        }
    }
}
