//! A clock written as text, so that one process can tell another on which clock to run.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use gpuaas_types::Timestamp;

use crate::clock::file::FileClock;
use crate::clock::pauses::{PausableClock, Pauses};
use crate::clock::{Clock, PacedClock, RealClock};

/// `real`, or `paced:FACTOR:EPOCH_US`: FACTOR times as fast as the wall since EPOCH_US; with `:FILE`
/// it stands still where that file of [`Pauses`] says so. `file:FILE`: where that [`FileClock`] stands.
#[derive(Debug, Clone, PartialEq)]
pub enum ClockChoice {
    /// The wall clock.
    Real,
    /// A faster one.
    Paced {
        /// Seconds of the clock per second of the wall.
        factor: f64,
        /// When both agreed.
        epoch: Timestamp,
        /// When it stands still; none: never.
        pauses: Option<Pauses>,
    },
    /// One that stands until somebody lets time pass.
    File(FileClock),
}

impl ClockChoice {
    /// The clock itself.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        match self {
            Self::Real => Arc::new(RealClock),
            Self::File(clock) => Arc::new(clock.clone()),
            Self::Paced { factor, epoch, pauses: None } => {
                Arc::new(PacedClock::new(*epoch, *factor))
            }
            Self::Paced { factor, epoch, pauses: Some(pauses) } => {
                Arc::new(PausableClock::new(*epoch, *factor, pauses.clone()))
            }
        }
    }

    /// A paced clock that agrees with the wall at `epoch` and never stands still.
    #[must_use]
    pub const fn paced(factor: f64, epoch: Timestamp) -> Self {
        Self::Paced { factor, epoch, pauses: None }
    }

    /// The file that says when it stands still.
    #[must_use]
    pub const fn pauses(&self) -> Option<&Pauses> {
        match self {
            Self::Real | Self::File(_) => None,
            Self::Paced { pauses, .. } => pauses.as_ref(),
        }
    }
}

impl FromStr for ClockChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "real" {
            return Ok(Self::Real);
        }
        if let Some(path) = text.strip_prefix("file:") {
            let clock = FileClock::open(Path::new(path));
            return clock.map(Self::File).map_err(|error| format!("{path}: {error}"));
        }
        let mut parts = text.splitn(4, ':');
        let (Some("paced"), Some(factor), Some(epoch)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err("invalid clock: expected real, paced:FACTOR:EPOCH_US[:FILE] or file:FILE"
                .to_owned());
        };
        let epoch = epoch
            .parse()
            .map_err(|_| format!("invalid epoch {epoch:?}: expected a number of microseconds"))?;
        let factor = match factor.parse::<f64>() {
            Ok(factor) if factor > 0.0 && factor.is_finite() => factor,
            _ => return Err(format!("invalid factor {factor:?}: expected a number above 0")),
        };
        let open =
            |path: &str| Pauses::open(Path::new(path)).map_err(|error| format!("{path}: {error}"));
        let pauses = parts.next().map(open).transpose()?;
        Ok(Self::Paced { factor, epoch: Timestamp::from_micros(epoch), pauses })
    }
}

impl std::fmt::Display for ClockChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Real => f.write_str("real"),
            Self::File(clock) => write!(f, "file:{}", clock.path().display()),
            Self::Paced { factor, epoch, pauses } => {
                write!(f, "paced:{factor}:{}", epoch.as_micros())?;
                pauses.as_ref().map_or(Ok(()), |pauses| write!(f, ":{}", pauses.path().display()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_as_it_was_written() {
        let epoch = Timestamp::from_micros(1_795_190_400_000_000);
        let dir = tempfile::tempdir().unwrap();
        let pauses = Some(Pauses::open(&dir.path().join("pauses")).unwrap());
        let shared = FileClock::create(&dir.path().join("clock"), epoch).unwrap();
        for clock in [
            ClockChoice::paced(2.5, epoch),
            ClockChoice::Paced { factor: 30.0, epoch, pauses },
            ClockChoice::File(shared),
        ] {
            assert_eq!(clock.to_string().parse::<ClockChoice>().unwrap(), clock);
        }
        assert_eq!("real".parse::<ClockChoice>().unwrap(), ClockChoice::Real);
        for bad in [
            "",
            "paced",
            "paced:0:1",
            "paced:x:1",
            "paced:2:soon",
            "paced:2:1:/no/file",
            "file:/no",
        ] {
            assert!(bad.parse::<ClockChoice>().is_err(), "{bad}");
        }
    }
}
