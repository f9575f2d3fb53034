//! Token bucket: up to `capacity` at once, then a steady refill. The level is kept in units so small that every
//! quantum of time adds a whole number of them, so that no fraction of a token is ever lost.

use std::num::NonZeroU64;

use super::domain::{self, AMOUNT_MAX, DomainError, EXACT_MAX, FILL_US_MAX};
use super::rule::{Rule, Settled};
use super::share::Share;
use super::text;

/// A bucket of `capacity` tokens, refilled without pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    /// Units of one token, which is also the reduced refill period in quanta.
    unit: NonZeroU64,
    /// Units added each quantum.
    refill: NonZeroU64,
    quantum_us: NonZeroU64,
}

/// What is stored of a bucket, as `"<level>:<mark_us>:<unit>"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// Units in the bucket at the mark.
    pub level: u64,
    /// Time up to which refill has been credited, a multiple of the quantum.
    pub mark_us: u64,
    /// Units of one token when this was written.
    pub unit: NonZeroU64,
}

impl TokenBucket {
    /// `refill_tokens` flow in every `refill_period_us`, evenly; the bucket starts full.
    ///
    /// # Errors
    /// When a number is out of range, or the products are not exact, or the bucket takes over 100 years to fill.
    pub fn new(capacity: u64, refill_tokens: u64, refill_period_us: u64) -> Result<Self, DomainError> {
        let capacity = domain::in_range("capacity", capacity, 1, AMOUNT_MAX)?;
        let refill = domain::in_range("refill", refill_tokens, 1, AMOUNT_MAX)?;
        let period_us = domain::window_us("refill period in µs", refill_period_us)?;
        Self::build(capacity.get(), refill, period_us)
    }

    fn build(capacity: u64, tokens: NonZeroU64, period_us: NonZeroU64) -> Result<Self, DomainError> {
        let divisor = domain::greatest_common_divisor(tokens, period_us);
        let (Some(refill), Some(period_us)) =
            (NonZeroU64::new(tokens.get() / divisor), NonZeroU64::new(period_us.get() / divisor))
        else {
            return Err(DomainError::Range { what: "refill", found: tokens.get(), min: 1, max: AMOUNT_MAX });
        };
        let found_us = u128::from(capacity).saturating_mul(u128::from(period_us.get())).div_ceil(refill.get().into());
        if found_us > u128::from(FILL_US_MAX) {
            return Err(DomainError::Fill { found_us, max_us: FILL_US_MAX });
        }
        let quanta = domain::quanta("capacity × refill period + refill", period_us, capacity, refill.get())?;
        Ok(Self { capacity, unit: quanta.count, refill, quantum_us: quanta.quantum_us })
    }

    /// Tokens a full bucket holds.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The smallest step of time this bucket knows, in µs.
    pub fn quantum_us(&self) -> u64 {
        self.quantum_us.get()
    }

    /// Time from empty to full, in µs.
    pub fn fill_us(&self) -> u64 {
        self.time_us(self.full())
    }

    pub(super) fn scaled(&self, share: Share) -> Result<Self, DomainError> {
        let found = u128::from(self.unit.get())
            .saturating_mul(self.quantum_us.get().into())
            .saturating_mul(share.denominator().get().into());
        let inexact = DomainError::Inexact { what: "refill period × share", found, max: EXACT_MAX };
        let period_us = self.unit.checked_mul(self.quantum_us).and_then(|us| us.checked_mul(share.denominator()));
        let (Some(period_us), Some(refill)) = (period_us, self.refill.checked_mul(share.numerator())) else {
            return Err(inexact);
        };
        Self::build(share.of(self.capacity), refill, period_us)
    }

    /// Capacity, units of a token, units added each quantum, quantum in µs: what the script is told.
    pub(crate) fn numbers(&self) -> [u64; 4] {
        [self.capacity, self.unit.get(), self.refill.get(), self.quantum_us.get()]
    }

    fn full(&self) -> u64 {
        self.units(self.capacity)
    }

    fn units(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.unit.get())
    }

    /// Time in which `units` flow in, in µs.
    fn time_us(&self, units: u64) -> u64 {
        units.div_ceil(self.refill.get()).saturating_mul(self.quantum_us.get())
    }

    fn rest_us(&self, now_us: u64) -> u64 {
        now_us % self.quantum_us
    }

    /// After a change of the refill period only whole tokens are kept: never more than before.
    fn level_now(&self, stored: &BucketState) -> u64 {
        if stored.unit == self.unit {
            return stored.level.min(self.full());
        }
        let tokens = stored.level / stored.unit;
        self.units(tokens.min(self.capacity))
    }
}

impl Rule for TokenBucket {
    type State = BucketState;

    fn allowance(&self) -> u64 {
        self.capacity
    }

    fn settle(&self, stored: Option<&BucketState>, now_us: u64) -> Settled<BucketState> {
        let now_quanta = now_us / self.quantum_us;
        let mark_us = now_us.saturating_sub(self.rest_us(now_us));
        let full = BucketState { level: self.full(), mark_us, unit: self.unit };
        let Some(stored) = stored else {
            return Settled { state: full, healed: false };
        };
        let mark_quanta = stored.mark_us.div_ceil(self.quantum_us.get());
        let elapsed_quanta = now_quanta.saturating_sub(mark_quanta);
        let credit = elapsed_quanta.saturating_mul(self.refill.get());
        let level = self.level_now(stored).saturating_add(credit).min(self.full());
        Settled { state: BucketState { level, ..full }, healed: mark_quanta > now_quanta }
    }

    fn available(&self, state: &BucketState, _now_us: u64) -> u64 {
        state.level / self.unit
    }

    fn charge(&self, state: &mut BucketState, cost: u64, _now_us: u64) {
        state.level = state.level.saturating_sub(self.units(cost));
    }

    fn refund(&self, state: &mut BucketState, cost: u64, _charged_at_us: u64) {
        let level = state.level.saturating_add(self.units(cost));
        state.level = level.min(self.full());
    }

    fn wait_us(&self, state: &BucketState, now_us: u64, amount: u64) -> u64 {
        match self.units(amount).saturating_sub(state.level) {
            0 => 0,
            missing => self.time_us(missing).saturating_sub(self.rest_us(now_us)),
        }
    }

    fn fresh_at_us(&self, state: &BucketState) -> u64 {
        let missing = self.full().saturating_sub(state.level);
        state.mark_us.saturating_add(self.time_us(missing))
    }
}

impl BucketState {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let [level, mark_us, unit] = text::numbers(text)?;
        Some(Self { level, mark_us, unit: NonZeroU64::new(unit)? })
    }

    pub(super) fn text(&self) -> String {
        format!("{}:{}:{}", self.level, self.mark_us, self.unit)
    }
}
