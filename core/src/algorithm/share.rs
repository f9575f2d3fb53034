//! A part of a limit, for one instance of several that cannot ask each other.

use std::num::NonZeroU64;

use super::domain::{self, DomainError};

const DENOMINATOR_MAX: u64 = 1_000_000;

/// A fraction above 0 and up to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    numerator: NonZeroU64,
    denominator: NonZeroU64,
}

impl Share {
    /// Everything.
    pub const WHOLE: Self = Self { numerator: NonZeroU64::MIN, denominator: NonZeroU64::MIN };

    /// `numerator` of `denominator`, which is at most 1,000,000.
    ///
    /// # Errors
    /// When it is zero, above 1, or too fine.
    pub fn new(numerator: u64, denominator: u64) -> Result<Self, DomainError> {
        let denominator = domain::in_range("denominator of share", denominator, 1, DENOMINATOR_MAX)?;
        let numerator = domain::in_range("numerator of share", numerator, 1, denominator.get())?;
        Ok(Self { numerator, denominator })
    }

    pub(super) fn numerator(self) -> NonZeroU64 {
        self.numerator
    }

    pub(super) fn denominator(self) -> NonZeroU64 {
        self.denominator
    }

    /// This share of an amount, rounded down, at least 1.
    pub(super) fn of(self, amount: u64) -> u64 {
        let part = amount.saturating_mul(self.numerator.get()) / self.denominator;
        part.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, FixedWindow, TokenBucket};

    #[test]
    fn a_share_scales_the_burst_and_the_refill() {
        let quarter = Share::new(1, 4).unwrap();
        let bucket: Algorithm = TokenBucket::new(100, 10, 1_000_000).unwrap().into();
        let expected: Algorithm = TokenBucket::new(25, 10, 4_000_000).unwrap().into();
        assert_eq!(bucket.scaled(quarter), Ok(expected));
        assert_eq!(bucket.scaled(Share::WHOLE), Ok(bucket));
    }

    #[test]
    fn a_share_of_little_is_one() {
        let window: Algorithm = FixedWindow::new(3, 1_000_000).unwrap().into();
        assert_eq!(window.scaled(Share::new(1, 10).unwrap()).unwrap().allowance(), 1);
    }

    #[test]
    fn no_share_is_zero_or_above_one() {
        for (numerator, denominator) in [(0, 1), (2, 1), (1, 0), (1, 1_000_001)] {
            assert!(Share::new(numerator, denominator).is_err(), "{numerator}/{denominator}");
        }
    }
}
