//! When a token is used, renewed, or replaced.

use std::time::Duration;

use secrecy::SecretString;

/// A token, as a sign-in or a renewal gave it.
pub(crate) struct Token {
    pub(crate) secret: SecretString,
    /// How long it counts; zero: for ever.
    pub(crate) lease: Duration,
    pub(crate) is_renewable: bool,
}

/// What is done before a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenStep {
    Use,
    Renew,
    SignIn,
}

impl Token {
    /// What to do with a token of this age. It is renewed once two thirds of its time are over.
    pub(crate) fn step(&self, age: Duration) -> TokenStep {
        if self.lease.is_zero() || age < self.lease * 2 / 3 {
            TokenStep::Use
        } else if age < self.lease && self.is_renewable {
            TokenStep::Renew
        } else {
            TokenStep::SignIn
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_in_time_and_replaced_when_it_has_ended() {
        let token = |lease, is_renewable| Token {
            secret: String::new().into(),
            lease: Duration::from_secs(lease),
            is_renewable,
        };
        let step = |lease, renewable, age| token(lease, renewable).step(Duration::from_secs(age));
        assert_eq!(step(90, true, 59), TokenStep::Use);
        assert_eq!(step(90, true, 60), TokenStep::Renew);
        assert_eq!(step(90, true, 90), TokenStep::SignIn);
        assert_eq!(step(90, false, 60), TokenStep::SignIn);
        assert_eq!(step(0, false, 1_000_000), TokenStep::Use);
    }
}
