//! The algorithms as pure integer arithmetic on values: the oracle of the store's script and the body of the local
//! limiter. Nothing here reads a clock; every product stays below 2^53, so the script computes the very same numbers.

mod concurrency;
mod decision;
mod domain;
mod fixed_window;
mod rule;
mod share;
mod sliding_window;
mod sliding_window_counter;
mod state;
mod text;
mod token_bucket;

pub use concurrency::{CONCURRENCY_MAX, Concurrency};
pub use decision::{Charge, Decision, Verdict, decide};
pub use domain::{AMOUNT_MAX, DomainError, EXACT_MAX, FILL_US_MAX, LOG_LIMIT_MAX, WINDOW_US_MAX, WINDOW_US_MIN};
pub use fixed_window::{FixedWindow, WindowState};
pub use share::Share;
pub use sliding_window::{LogEntry, LogState, SlidingWindow};
pub use sliding_window_counter::{CounterState, SlidingWindowCounter};
pub(crate) use state::Account;
pub use state::State;
pub use token_bucket::{BucketState, TokenBucket};

/// One limit's rule with its numbers, checked when built: no number here can make a decision inexact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Requests at once.
    Concurrency(Concurrency),
    /// Fixed window, aligned to the epoch.
    FixedWindow(FixedWindow),
    /// Sliding window, exact.
    SlidingWindow(SlidingWindow),
    /// Sliding window, estimated from two counters.
    SlidingWindowCounter(SlidingWindowCounter),
    /// Token bucket.
    TokenBucket(TokenBucket),
}

impl Algorithm {
    /// The most that can be available at once: capacity or limit. A greater cost is never admitted.
    pub fn allowance(&self) -> u64 {
        match self {
            Self::Concurrency(rule) => rule.limit(),
            Self::FixedWindow(rule) => rule.limit(),
            Self::SlidingWindow(rule) => rule.limit(),
            Self::SlidingWindowCounter(rule) => rule.limit(),
            Self::TokenBucket(rule) => rule.capacity(),
        }
    }

    /// The name that policy files use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Concurrency(_) => "concurrency",
            Self::FixedWindow(_) => "fixed_window",
            Self::SlidingWindow(_) => "sliding_window",
            Self::SlidingWindowCounter(_) => "sliding_window_counter",
            Self::TokenBucket(_) => "token_bucket",
        }
    }

    /// The time in which the whole allowance comes back: the window, the bucket's time from
    /// empty to full, or the lease of a slot, in µs.
    pub fn window_us(&self) -> u64 {
        match self {
            Self::Concurrency(rule) => rule.lease_us(),
            Self::FixedWindow(rule) => rule.window_us(),
            Self::SlidingWindow(rule) => rule.window_us(),
            Self::SlidingWindowCounter(rule) => rule.window_us(),
            Self::TokenBucket(rule) => rule.fill_us(),
        }
    }

    /// The smallest step of time this limit knows, in µs. Waits end on a multiple of it.
    pub fn quantum_us(&self) -> u64 {
        match self {
            Self::Concurrency(_) | Self::FixedWindow(_) | Self::SlidingWindow(_) => 1,
            Self::SlidingWindowCounter(rule) => rule.quantum_us(),
            Self::TokenBucket(rule) => rule.quantum_us(),
        }
    }

    /// Time from which `state`, as seen at `now_us`, equals an absent one: the least that the store must keep it, in µs.
    pub fn fresh_at_us(&self, state: &State, now_us: u64) -> u64 {
        Account::open(self, state, now_us).fresh_at_us()
    }

    /// The same rule for a part of the traffic: limit, capacity and refill are multiplied by `share`, rounded down, at least 1.
    ///
    /// # Errors
    /// When the refill of a token bucket is not exact any more.
    pub fn scaled(&self, share: Share) -> Result<Self, DomainError> {
        Ok(match self {
            Self::Concurrency(rule) => Self::Concurrency(rule.scaled(share)),
            Self::FixedWindow(rule) => Self::FixedWindow(rule.scaled(share)),
            Self::SlidingWindow(rule) => Self::SlidingWindow(rule.scaled(share)),
            Self::SlidingWindowCounter(rule) => Self::SlidingWindowCounter(rule.scaled(share)),
            Self::TokenBucket(rule) => Self::TokenBucket(rule.scaled(share)?),
        })
    }

    /// Whether the script is told the request's owner: it then holds a slot until it is released.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Concurrency(_))
    }

    /// The name and the numbers the script is told.
    pub(crate) fn script_fields(&self) -> (&'static str, [u64; 4]) {
        match self {
            Self::Concurrency(rule) => ("slots", rule.numbers()),
            Self::FixedWindow(rule) => ("window", rule.numbers()),
            Self::SlidingWindow(rule) => ("log", rule.numbers()),
            Self::SlidingWindowCounter(rule) => ("counter", rule.numbers()),
            Self::TokenBucket(rule) => ("bucket", rule.numbers()),
        }
    }
}

impl From<Concurrency> for Algorithm {
    fn from(rule: Concurrency) -> Self {
        Self::Concurrency(rule)
    }
}

impl From<FixedWindow> for Algorithm {
    fn from(rule: FixedWindow) -> Self {
        Self::FixedWindow(rule)
    }
}

impl From<SlidingWindow> for Algorithm {
    fn from(rule: SlidingWindow) -> Self {
        Self::SlidingWindow(rule)
    }
}

impl From<SlidingWindowCounter> for Algorithm {
    fn from(rule: SlidingWindowCounter) -> Self {
        Self::SlidingWindowCounter(rule)
    }
}

impl From<TokenBucket> for Algorithm {
    fn from(rule: TokenBucket) -> Self {
        Self::TokenBucket(rule)
    }
}
