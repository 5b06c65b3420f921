//! What an operator can do about a parked run, as commands.

/// What an operator can do about a parked run once its cause is gone.
///
/// A resume has the run look at the world again and go on from what it sees. A retry does so too,
/// and forgets what was tried in the step, so it is the cure where the run stopped because its
/// tries were used up or MAAS refused a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cure {
    /// `gpuaas run resume RUN --reason WHY`.
    Resume,
    /// `gpuaas run resume RUN --latest-profile --reason WHY`: also pins the newest revision of the
    /// profile, for a cause that lies in the profile.
    ResumeLatestProfile,
    /// `gpuaas run retry RUN --reason WHY`.
    Retry,
    /// `gpuaas run retry RUN --latest-profile --reason WHY`.
    RetryLatestProfile,
    /// `gpuaas run skip-check RUN --check NAME --reason WHY`: an operator answers for a check.
    SkipCheck,
    /// `gpuaas run cancel RUN --reason WHY`: the run cannot reach its end.
    Cancel,
    /// `gpuaas run take-over RUN --reason WHY`: the run gets a machine that is in use.
    TakeOver,
}

impl Cure {
    /// Every cure.
    pub const ALL: &'static [Self] = &[
        Self::Resume,
        Self::ResumeLatestProfile,
        Self::Retry,
        Self::RetryLatestProfile,
        Self::SkipCheck,
        Self::Cancel,
        Self::TakeOver,
    ];

    /// The command, with placeholders in capitals.
    #[must_use]
    pub const fn command(self) -> &'static str {
        match self {
            Self::Resume => "gpuaas run resume RUN --reason WHY",
            Self::ResumeLatestProfile => "gpuaas run resume RUN --latest-profile --reason WHY",
            Self::Retry => "gpuaas run retry RUN --reason WHY",
            Self::RetryLatestProfile => "gpuaas run retry RUN --latest-profile --reason WHY",
            Self::SkipCheck => "gpuaas run skip-check RUN --check NAME --reason WHY",
            Self::Cancel => "gpuaas run cancel RUN --reason WHY",
            Self::TakeOver => "gpuaas run take-over RUN --reason WHY",
        }
    }

    /// The cure that has this command.
    #[must_use]
    pub fn from_command(command: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cure| cure.command() == command)
    }

    /// Whether an advice names this cure's command.
    #[must_use]
    pub fn is_named_in(self, advice: &str) -> bool {
        advice.split('`').skip(1).step_by(2).any(|command| command == self.command())
    }
}
