//! Sliding window by two counters: the current window plus the still covered share of the one before, as if that one
//! had been even. Small and constant in memory; it does not promise the limit for every stretch of one window's length.

use std::num::NonZeroU64;

use super::domain::{self, AMOUNT_MAX, DomainError, Quanta};
use super::rule::{Rule, Settled};
use super::share::Share;
use super::text;

/// `limit` in the window that ends now, estimated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowCounter {
    limit: u64,
    window_us: NonZeroU64,
    window: Quanta,
}

/// What is stored of two windows, as `"<start_us>:<current>:<previous>"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterState {
    /// The current window's start.
    pub start_us: u64,
    /// What was admitted in it.
    pub current: u64,
    /// What was admitted in the window before.
    pub previous: u64,
}

impl SlidingWindowCounter {
    /// # Errors
    /// When a number is out of range, or `limit × window + limit` is not exact at any quantum that divides the window.
    pub fn new(limit: u64, window_us: u64) -> Result<Self, DomainError> {
        let limit = domain::in_range("limit", limit, 1, AMOUNT_MAX)?.get();
        let window_us = domain::window_us("window in µs", window_us)?;
        Ok(Self { limit, window_us, window: domain::quanta("limit × window + limit", window_us, limit, limit)? })
    }

    /// Units a window admits.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of the window, in µs.
    pub fn window_us(&self) -> u64 {
        self.window_us.get()
    }

    /// The smallest step of time this limit knows, in µs.
    pub fn quantum_us(&self) -> u64 {
        self.window.quantum_us.get()
    }

    pub(super) fn scaled(&self, share: Share) -> Self {
        Self { limit: share.of(self.limit), ..self.clone() }
    }

    /// Limit, window in quanta, quantum in µs: what the script is told.
    pub(crate) fn numbers(&self) -> [u64; 4] {
        [self.limit, self.quanta(), self.quantum_us(), 0]
    }

    fn start_us(&self, at_us: u64) -> u64 {
        at_us.saturating_sub(at_us % self.window_us)
    }

    fn quanta(&self) -> u64 {
        self.window.count.get()
    }

    /// Quanta of the current window that lie ahead, which is how many of the previous one are still covered.
    fn covered(&self, now_us: u64) -> u64 {
        let elapsed_quanta = (now_us % self.window_us) / self.window.quantum_us;
        self.quanta().saturating_sub(elapsed_quanta)
    }

    /// What the previous window still weighs, rounded up.
    fn weight(&self, state: &CounterState, now_us: u64) -> u64 {
        state.previous.saturating_mul(self.covered(now_us)).div_ceil(self.quanta())
    }

    /// Quanta, counted back from a window's end, from which on `count` of the window before leaves `room` units free.
    fn covered_with_room(&self, count: u64, room: u64) -> u64 {
        room.saturating_mul(self.quanta()).checked_div(count).unwrap_or(u64::MAX).min(self.quanta())
    }
}

impl Rule for SlidingWindowCounter {
    type State = CounterState;

    fn allowance(&self) -> u64 {
        self.limit
    }

    fn settle(&self, stored: Option<&CounterState>, now_us: u64) -> Settled<CounterState> {
        let start_us = self.start_us(now_us);
        let (current, previous) = match stored {
            Some(stored) if stored.start_us >= start_us => (stored.current, stored.previous),
            Some(stored) if stored.start_us.saturating_add(self.window_us.get()) >= start_us => (0, stored.current),
            _ => (0, 0),
        };
        let healed = stored.is_some_and(|stored| stored.start_us > start_us);
        let state = CounterState { start_us, current: current.min(self.limit), previous: previous.min(self.limit) };
        Settled { state, healed }
    }

    fn available(&self, state: &CounterState, now_us: u64) -> u64 {
        self.limit.saturating_sub(state.current).saturating_sub(self.weight(state, now_us))
    }

    fn charge(&self, state: &mut CounterState, cost: u64, _now_us: u64) {
        state.current = state.current.saturating_add(cost);
    }

    fn refund(&self, state: &mut CounterState, cost: u64, charged_at_us: u64) {
        let charged = self.start_us(charged_at_us);
        if charged == state.start_us {
            state.current = state.current.saturating_sub(cost);
        } else if charged.saturating_add(self.window_us.get()) == state.start_us {
            state.previous = state.previous.saturating_sub(cost);
        }
    }

    fn wait_us(&self, state: &CounterState, now_us: u64, amount: u64) -> u64 {
        if amount <= self.available(state, now_us) {
            return 0;
        }
        let room = self.limit.saturating_sub(amount);
        let windows_end_us = state.start_us.saturating_add(self.window_us.get());
        let (end_us, covered) = match room.checked_sub(state.current) {
            Some(room) => (windows_end_us, self.covered_with_room(state.previous, room)),
            None => (windows_end_us.saturating_add(self.window_us.get()), self.covered_with_room(state.current, room)),
        };
        let covered_us = covered.saturating_mul(self.quantum_us());
        end_us.saturating_sub(covered_us).saturating_sub(now_us)
    }

    fn fresh_at_us(&self, state: &CounterState) -> u64 {
        let windows = match (state.current, state.previous) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        };
        let kept_us = self.window_us.get().saturating_mul(windows);
        state.start_us.saturating_add(kept_us)
    }
}

impl CounterState {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let [start_us, current, previous] = text::numbers(text)?;
        Some(Self { start_us, current, previous })
    }

    pub(super) fn text(&self) -> String {
        format!("{}:{}:{}", self.start_us, self.current, self.previous)
    }
}
