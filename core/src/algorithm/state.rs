//! The stored state of one limit, whatever its algorithm: parsed from and formatted to what the store holds.

use super::rule::{Rule, Settled};
use super::{Algorithm, BucketState, CounterState, LogState, WindowState};

/// What is stored for one limit and one identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing is stored, or what is stored is not of this limit's algorithm.
    #[default]
    Absent,
    /// Of a fixed window.
    FixedWindow(WindowState),
    /// Of a sliding window.
    SlidingWindow(LogState),
    /// Of a sliding window by two counters.
    SlidingWindowCounter(CounterState),
    /// Of a token bucket.
    TokenBucket(BucketState),
}

impl State {
    /// Reads what a store holds for `algorithm`: one text, or for a sliding window the list's elements. Anything foreign is absent.
    pub fn parse(algorithm: &Algorithm, texts: &[&str]) -> Self {
        let parsed = match (algorithm, texts) {
            (Algorithm::SlidingWindow(_), texts) => LogState::parse(texts.iter().copied()).map(Self::SlidingWindow),
            (Algorithm::FixedWindow(_), [text]) => WindowState::parse(text).map(Self::FixedWindow),
            (Algorithm::SlidingWindowCounter(_), [text]) => CounterState::parse(text).map(Self::SlidingWindowCounter),
            (Algorithm::TokenBucket(_), [text]) => BucketState::parse(text).map(Self::TokenBucket),
            _ => None,
        };
        parsed.unwrap_or_default()
    }

    /// What a store holds: nothing, one text, or a list's elements.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::Absent => Vec::new(),
            Self::FixedWindow(state) => vec![state.text()],
            Self::SlidingWindow(log) => log.entries.iter().map(|entry| entry.text()).collect(),
            Self::SlidingWindowCounter(state) => vec![state.text()],
            Self::TokenBucket(state) => vec![state.text()],
        }
    }
}

/// Runs one expression with the rule and the settled state of whichever algorithm it is.
macro_rules! each {
    ($current:expr, $rule:ident, $settled:ident => $body:expr) => {
        match $current {
            Current::Concurrency($rule, $settled) => $body,
            Current::FixedWindow($rule, $settled) => $body,
            Current::SlidingWindow($rule, $settled) => $body,
            Current::SlidingWindowCounter($rule, $settled) => $body,
            Current::TokenBucket($rule, $settled) => $body,
        }
    };
}

/// A rule together with its state brought up to one time.
#[derive(Clone, Debug)]
pub(crate) struct Account<'a> {
    current: Current<'a>,
    now_us: u64,
}

#[derive(Clone, Debug)]
enum Current<'a> {
    Concurrency(&'a super::Concurrency, Settled<()>),
    FixedWindow(&'a super::FixedWindow, Settled<WindowState>),
    SlidingWindow(&'a super::SlidingWindow, Settled<LogState>),
    SlidingWindowCounter(&'a super::SlidingWindowCounter, Settled<CounterState>),
    TokenBucket(&'a super::TokenBucket, Settled<BucketState>),
}

impl<'a> Account<'a> {
    pub fn open(algorithm: &'a Algorithm, stored: &State, now_us: u64) -> Self {
        let current = match algorithm {
            Algorithm::Concurrency(rule) => Current::Concurrency(rule, rule.settle(None, now_us)),
            Algorithm::FixedWindow(rule) => {
                let stored = if let State::FixedWindow(state) = stored { Some(state) } else { None };
                Current::FixedWindow(rule, rule.settle(stored, now_us))
            }
            Algorithm::SlidingWindow(rule) => {
                let stored = if let State::SlidingWindow(state) = stored { Some(state) } else { None };
                Current::SlidingWindow(rule, rule.settle(stored, now_us))
            }
            Algorithm::SlidingWindowCounter(rule) => {
                let stored = if let State::SlidingWindowCounter(state) = stored { Some(state) } else { None };
                Current::SlidingWindowCounter(rule, rule.settle(stored, now_us))
            }
            Algorithm::TokenBucket(rule) => {
                let stored = if let State::TokenBucket(state) = stored { Some(state) } else { None };
                Current::TokenBucket(rule, rule.settle(stored, now_us))
            }
        };
        Self { current, now_us }
    }

    pub fn healed(&self) -> bool {
        each!(&self.current, _rule, settled => settled.healed)
    }

    pub fn allowance(&self) -> u64 {
        each!(&self.current, rule, _settled => rule.allowance())
    }

    pub fn available(&self) -> u64 {
        each!(&self.current, rule, settled => rule.available(&settled.state, self.now_us))
    }

    pub fn charge(&mut self, cost: u64) {
        each!(&mut self.current, rule, settled => rule.charge(&mut settled.state, cost, self.now_us));
    }

    pub fn refund(&mut self, cost: u64, charged_at_us: u64) {
        each!(&mut self.current, rule, settled => rule.refund(&mut settled.state, cost, charged_at_us));
    }

    /// Bounds the length of a log.
    pub fn shorten(&mut self, length: usize) {
        if let Current::SlidingWindow(_, settled) = &mut self.current {
            settled.state.shorten(length);
        }
    }

    /// Time until `amount`, at most the allowance, is available; 0 when it is.
    pub fn wait_us(&self, amount: u64) -> u64 {
        each!(&self.current, rule, settled => rule.wait_us(&settled.state, self.now_us, amount))
    }

    pub fn fresh_at_us(&self) -> u64 {
        each!(&self.current, rule, settled => rule.fresh_at_us(&settled.state))
    }

    pub fn into_state(self) -> State {
        match self.current {
            Current::Concurrency(..) => State::Absent,
            Current::FixedWindow(_, settled) => State::FixedWindow(settled.state),
            Current::SlidingWindow(_, settled) => State::SlidingWindow(settled.state),
            Current::SlidingWindowCounter(_, settled) => State::SlidingWindowCounter(settled.state),
            Current::TokenBucket(_, settled) => State::TokenBucket(settled.state),
        }
    }
}
