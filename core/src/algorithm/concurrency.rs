//! Concurrency: up to `limit` requests at once. Who holds a slot is known to the store alone, so here the limit only has
//! its numbers: without the store it admits everything.

use std::num::NonZeroU64;

use super::domain::{self, DomainError};
use super::rule::{Rule, Settled};
use super::share::Share;

/// The largest limit: a store looks at each slot when its clock has stepped back.
pub const CONCURRENCY_MAX: u64 = 10_000;

/// `limit` slots, each held until it is released or its lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    lease_us: NonZeroU64,
}

impl Concurrency {
    /// # Errors
    /// When a number is out of range.
    pub fn new(limit: u64, lease_us: u64) -> Result<Self, DomainError> {
        let limit = domain::in_range("limit of requests at once", limit, 1, CONCURRENCY_MAX)?.get();
        Ok(Self { limit, lease_us: domain::window_us("lease in µs", lease_us)? })
    }

    /// Requests at once.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How long a slot is held without its holder's word, in µs.
    pub fn lease_us(&self) -> u64 {
        self.lease_us.get()
    }

    pub(super) fn scaled(&self, share: Share) -> Self {
        Self { limit: share.of(self.limit), ..self.clone() }
    }

    /// Limit and lease in µs; the script is told the owner in place of the third.
    pub(crate) fn numbers(&self) -> [u64; 4] {
        [self.limit, self.lease_us.get(), 0, 0]
    }
}

impl Rule for Concurrency {
    type State = ();

    fn allowance(&self) -> u64 {
        self.limit
    }

    fn settle(&self, _stored: Option<&()>, _now_us: u64) -> Settled<()> {
        Settled { state: (), healed: false }
    }

    fn available(&self, _state: &(), _now_us: u64) -> u64 {
        self.limit
    }

    fn charge(&self, _state: &mut (), _cost: u64, _now_us: u64) {}

    fn refund(&self, _state: &mut (), _cost: u64, _charged_at_us: u64) {}

    fn wait_us(&self, _state: &(), _now_us: u64, _amount: u64) -> u64 {
        0
    }

    fn fresh_at_us(&self, _state: &()) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, Charge, State, decide};

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(Concurrency::new(1, 1_000).is_ok() && Concurrency::new(CONCURRENCY_MAX, 60_000_000).is_ok());
        for (limit, lease_us) in [(0, 1_000), (CONCURRENCY_MAX + 1, 1_000), (1, 0), (1, 999)] {
            assert!(Concurrency::new(limit, lease_us).is_err(), "{limit} {lease_us}");
        }
    }

    #[test]
    fn without_the_store_everything_is_admitted_and_nothing_kept() {
        let algorithm: Algorithm = Concurrency::new(1, 1_000_000).unwrap().into();
        let charge = Charge { algorithm: &algorithm, cost: 1, enforce: true };
        let mut states = [State::Absent];
        for _ in 0..3 {
            let decision = decide(&[charge], &mut states, 1_796_083_212_345_678);
            assert!(decision.allowed && decision.verdicts[0].remaining == 1);
            assert_eq!(states, [State::Absent]);
        }
        assert_eq!(algorithm.scaled(crate::algorithm::Share::new(1, 4).unwrap()).unwrap().allowance(), 1);
    }
}
