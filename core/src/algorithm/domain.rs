//! The numbers the algorithms compute exactly, here and in Lua, where every number is a double:
//! amounts, windows, and the quantum of time that keeps each product below 2^53.

use std::fmt;
use std::num::NonZeroU64;

/// The largest integer up to which a double holds every integer: 2^53 − 1.
pub const EXACT_MAX: u64 = (1 << 53) - 1;
/// The largest limit, capacity or refill.
pub const AMOUNT_MAX: u64 = 1_000_000_000_000;
/// The largest limit of the sliding log, which stores one entry for each admitted request.
pub const LOG_LIMIT_MAX: u64 = 10_000;
/// The shortest window or refill period: 1 ms.
pub const WINDOW_US_MIN: u64 = 1_000;
/// The longest window or refill period: 366 days.
pub const WINDOW_US_MAX: u64 = 366 * 86_400 * 1_000_000;
/// The longest time an empty token bucket may take to fill: 100 years of 366 days. Now plus this stays exact.
pub const FILL_US_MAX: u64 = 100 * WINDOW_US_MAX;

const QUANTA_US: [u64; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// Why numbers make no limit. The policy's author is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainError {
    /// One number is out of its range.
    Range {
        /// Which number, with its unit.
        what: &'static str,
        /// What was given.
        found: u64,
        /// The smallest that loads.
        min: u64,
        /// The largest that loads.
        max: u64,
    },
    /// Each number is in its range, but not all products can be computed exactly at any usable quantum of time.
    Inexact {
        /// Which product.
        what: &'static str,
        /// Its size at the coarsest quantum that divides the period.
        found: u128,
        /// The largest that is exact.
        max: u64,
    },
    /// An empty token bucket would take too long to fill.
    Fill {
        /// The time from empty to full, in µs.
        found_us: u128,
        /// The longest that loads, in µs.
        max_us: u64,
    },
}

impl fmt::Display for DomainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { what, found, min, max } => write!(f, "{what}: found {found}, expected {min} to {max}"),
            Self::Inexact { what, found, max } => {
                write!(f, "{what} cannot be computed exactly: found {found}, expected at most {max}")
            }
            Self::Fill { found_us, max_us } => {
                write!(f, "time from empty to full: found {found_us} µs, expected at most {max_us} µs")
            }
        }
    }
}

impl std::error::Error for DomainError {}

pub(super) fn in_range(what: &'static str, found: u64, min: u64, max: u64) -> Result<NonZeroU64, DomainError> {
    let error = DomainError::Range { what, found, min, max };
    match NonZeroU64::new(found) {
        Some(number) if (min..=max).contains(&found) => Ok(number),
        _ => Err(error),
    }
}

pub(super) fn window_us(what: &'static str, found: u64) -> Result<NonZeroU64, DomainError> {
    in_range(what, found, WINDOW_US_MIN, WINDOW_US_MAX)
}

/// A stretch of time cut into quanta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quanta {
    pub quantum_us: NonZeroU64,
    pub count: NonZeroU64,
}

/// Cuts `span_us` into the finest quanta with which `amount × quanta + extra` is exact.
pub(super) fn quanta(what: &'static str, span_us: NonZeroU64, amount: u64, extra: u64) -> Result<Quanta, DomainError> {
    let mut found = u128::MAX;
    for quantum_us in QUANTA_US.into_iter().filter_map(NonZeroU64::new) {
        if span_us.get() % quantum_us != 0 {
            break;
        }
        let Some(count) = NonZeroU64::new(span_us.get() / quantum_us) else {
            break;
        };
        found = u128::from(amount).saturating_mul(u128::from(count.get())).saturating_add(u128::from(extra));
        if found <= u128::from(EXACT_MAX) {
            return Ok(Quanta { quantum_us, count });
        }
    }
    Err(DomainError::Inexact { what, found, max: EXACT_MAX })
}

pub(super) fn greatest_common_divisor(a: NonZeroU64, b: NonZeroU64) -> NonZeroU64 {
    match NonZeroU64::new(a.get() % b) {
        Some(rest) => greatest_common_divisor(b, rest),
        None => b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finest_exact_quantum_is_chosen() {
        let minute = NonZeroU64::new(60_000_000).unwrap();
        let fine = quanta("limit × window", minute, 100, 0).unwrap();
        assert_eq!((fine.quantum_us.get(), fine.count.get()), (1, 60_000_000));
        let coarse = quanta("limit × window", minute, 1_000_000_000, 0).unwrap();
        assert_eq!((coarse.quantum_us.get(), coarse.count.get()), (10, 6_000_000));
    }

    #[test]
    fn an_error_says_what_was_found_and_the_range() {
        let range = in_range("limit", 0, 1, 10).unwrap_err();
        assert_eq!(range.to_string(), "limit: found 0, expected 1 to 10");
        let odd = quanta("limit × window", NonZeroU64::new(1_000_003).unwrap(), AMOUNT_MAX, 0).unwrap_err();
        assert_eq!(
            odd.to_string(),
            "limit × window cannot be computed exactly: found 1000003000000000000, expected at most 9007199254740991"
        );
    }

    #[test]
    fn the_smallest_and_the_largest_numbers_load() {
        use crate::algorithm::{FixedWindow, SlidingWindow, SlidingWindowCounter, TokenBucket};
        let day_us = 86_400_000_000;
        assert!(FixedWindow::new(1, WINDOW_US_MIN).is_ok());
        assert!(FixedWindow::new(AMOUNT_MAX, WINDOW_US_MAX).is_ok());
        assert!(SlidingWindow::new(LOG_LIMIT_MAX, WINDOW_US_MAX).is_ok());
        assert!(SlidingWindowCounter::new(AMOUNT_MAX, WINDOW_US_MIN).is_ok());
        assert!(SlidingWindowCounter::new(100_000_000_000, day_us).is_ok());
        assert!(TokenBucket::new(1, 1, WINDOW_US_MAX).is_ok());
        assert!(TokenBucket::new(AMOUNT_MAX, AMOUNT_MAX, WINDOW_US_MIN).is_ok());
    }

    #[test]
    fn other_numbers_are_refused_and_the_error_names_them() {
        use crate::algorithm::{FixedWindow, SlidingWindow, SlidingWindowCounter, TokenBucket};
        let errors = [
            FixedWindow::new(0, WINDOW_US_MIN).unwrap_err(),
            FixedWindow::new(AMOUNT_MAX + 1, WINDOW_US_MIN).unwrap_err(),
            FixedWindow::new(1, 0).unwrap_err(),
            FixedWindow::new(1, 999).unwrap_err(),
            SlidingWindow::new(10_001, WINDOW_US_MIN).unwrap_err(),
            SlidingWindowCounter::new(AMOUNT_MAX, WINDOW_US_MAX).unwrap_err(),
            TokenBucket::new(0, 1, WINDOW_US_MIN).unwrap_err(),
            TokenBucket::new(10, 0, WINDOW_US_MIN).unwrap_err(),
            TokenBucket::new(10, 1, u64::MAX).unwrap_err(),
            TokenBucket::new(101, 1, WINDOW_US_MAX).unwrap_err(),
            TokenBucket::new(AMOUNT_MAX, 1_000_000, 100_003).unwrap_err(),
        ];
        let found = errors.map(|error| error.to_string()).join("\n");
        let expected = "\
limit: found 0, expected 1 to 1000000000000
limit: found 1000000000001, expected 1 to 1000000000000
window in µs: found 0, expected 1000 to 31622400000000
window in µs: found 999, expected 1000 to 31622400000000
limit of a sliding window: found 10001, expected 1 to 10000
limit × window + limit cannot be computed exactly: found 31622401000000000000, expected at most 9007199254740991
capacity: found 0, expected 1 to 1000000000000
refill: found 0, expected 1 to 1000000000000
refill period in µs: found 18446744073709551615, expected 1000 to 31622400000000
time from empty to full: found 3193862400000000 µs, expected at most 3162240000000000 µs
capacity × refill period + refill cannot be computed exactly: found 100003000001000000, expected at most 9007199254740991
";
        assert_eq!(found, expected.trim_end());
    }
}
