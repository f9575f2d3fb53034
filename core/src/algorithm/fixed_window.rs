//! Fixed window: up to `limit` in each window, windows aligned to the epoch. It does not promise a bound on every
//! stretch of one window's length: around an edge up to twice the limit can pass.

use std::num::NonZeroU64;

use super::domain::{self, AMOUNT_MAX, DomainError};
use super::rule::{Rule, Settled};
use super::share::Share;
use super::text;

/// `limit` in each aligned window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window_us: NonZeroU64,
}

/// What is stored of a window, as `"<start_us>:<count>"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// The window's start.
    pub start_us: u64,
    /// What was admitted in it; above the limit after the limit was lowered.
    pub count: u64,
}

impl FixedWindow {
    /// # Errors
    /// When a number is out of range.
    pub fn new(limit: u64, window_us: u64) -> Result<Self, DomainError> {
        let limit = domain::in_range("limit", limit, 1, AMOUNT_MAX)?.get();
        Ok(Self { limit, window_us: domain::window_us("window in µs", window_us)? })
    }

    /// Units each window admits.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of a window, in µs.
    pub fn window_us(&self) -> u64 {
        self.window_us.get()
    }

    pub(super) fn scaled(&self, share: Share) -> Self {
        Self { limit: share.of(self.limit), ..self.clone() }
    }

    /// Limit and window in µs: what the script is told.
    pub(crate) fn numbers(&self) -> [u64; 4] {
        [self.limit, self.window_us.get(), 0, 0]
    }

    fn start_us(&self, at_us: u64) -> u64 {
        at_us.saturating_sub(at_us % self.window_us)
    }

    fn end_us(&self, state: &WindowState) -> u64 {
        state.start_us.saturating_add(self.window_us.get())
    }
}

impl Rule for FixedWindow {
    type State = WindowState;

    fn allowance(&self) -> u64 {
        self.limit
    }

    fn settle(&self, stored: Option<&WindowState>, now_us: u64) -> Settled<WindowState> {
        let start_us = self.start_us(now_us);
        let count = stored.filter(|stored| stored.start_us >= start_us).map_or(0, |stored| stored.count);
        let healed = stored.is_some_and(|stored| stored.start_us > start_us);
        Settled { state: WindowState { start_us, count }, healed }
    }

    fn available(&self, state: &WindowState, _now_us: u64) -> u64 {
        self.limit.saturating_sub(state.count)
    }

    fn charge(&self, state: &mut WindowState, cost: u64, _now_us: u64) {
        state.count = state.count.saturating_add(cost);
    }

    fn refund(&self, state: &mut WindowState, cost: u64, charged_at_us: u64) {
        if state.start_us == self.start_us(charged_at_us) {
            state.count = state.count.saturating_sub(cost);
        }
    }

    fn wait_us(&self, state: &WindowState, now_us: u64, amount: u64) -> u64 {
        if amount <= self.available(state, now_us) {
            return 0;
        }
        self.end_us(state).saturating_sub(now_us)
    }

    fn fresh_at_us(&self, state: &WindowState) -> u64 {
        if state.count == 0 { state.start_us } else { self.end_us(state) }
    }
}

impl WindowState {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let [start_us, count] = text::numbers(text)?;
        Some(Self { start_us, count })
    }

    pub(super) fn text(&self) -> String {
        format!("{}:{}", self.start_us, self.count)
    }
}
