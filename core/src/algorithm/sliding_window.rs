//! Sliding window by an exact log: never more than `limit` in any stretch of one window's length. Each admitted request
//! is one entry that carries the running total before and after it, so the sum of any part of the log is one subtraction.

use std::num::NonZeroU64;

use super::domain::{self, DomainError, LOG_LIMIT_MAX};
use super::rule::{Rule, Settled};
use super::share::Share;
use super::text;

/// At most `limit` in every stretch of one window's length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u64,
    window_us: NonZeroU64,
}

/// What is stored: a list of entries, oldest first, never empty when stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Oldest first; times never decrease.
    pub entries: Vec<LogEntry>,
}

/// One admitted request, as `"<time_us>:<before>:<after>"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was admitted; it counts while now < time + window.
    pub time_us: u64,
    /// Running total before it.
    pub before: u64,
    /// Running total with it.
    pub after: u64,
}

impl SlidingWindow {
    /// # Errors
    /// When a number is out of range.
    pub fn new(limit: u64, window_us: u64) -> Result<Self, DomainError> {
        let limit = domain::in_range("limit of a sliding window", limit, 1, LOG_LIMIT_MAX)?.get();
        Ok(Self { limit, window_us: domain::window_us("window in µs", window_us)? })
    }

    /// Units a window admits.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of the window, in µs.
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

    fn leaves_us(&self, entry: &LogEntry) -> u64 {
        entry.time_us.saturating_add(self.window_us.get())
    }
}

impl Rule for SlidingWindow {
    type State = LogState;

    fn allowance(&self) -> u64 {
        self.limit
    }

    fn settle(&self, stored: Option<&LogState>, now_us: u64) -> Settled<LogState> {
        let mut log = stored.cloned().unwrap_or_default();
        let healed = log.gather_future(now_us);
        log.entries.retain(|entry| now_us < self.leaves_us(entry));
        Settled { state: log, healed }
    }

    fn available(&self, log: &LogState, _now_us: u64) -> u64 {
        self.limit.saturating_sub(log.sum())
    }

    fn charge(&self, log: &mut LogState, cost: u64, now_us: u64) {
        let before = log.total();
        log.entries.push(LogEntry { time_us: now_us, before, after: before.saturating_add(cost) });
    }

    fn refund(&self, log: &mut LogState, cost: u64, charged_at_us: u64) {
        log.take_back(cost, charged_at_us);
    }

    fn wait_us(&self, log: &LogState, now_us: u64, amount: u64) -> u64 {
        let Some(excess) = log.sum().saturating_add(amount).checked_sub(self.limit).filter(|excess| *excess > 0) else {
            return 0;
        };
        let enough = log.start().saturating_add(excess);
        let last_to_leave = log.entries.iter().find(|entry| entry.after >= enough).or(log.entries.last());
        last_to_leave.map_or(0, |entry| self.leaves_us(entry).saturating_sub(now_us))
    }

    fn fresh_at_us(&self, log: &LogState) -> u64 {
        log.entries.last().map_or(0, |entry| self.leaves_us(entry))
    }
}

impl LogState {
    /// Running total before the first entry.
    fn start(&self) -> u64 {
        self.entries.first().map_or(0, |entry| entry.before)
    }

    /// Running total after the last entry.
    fn total(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.after)
    }

    fn sum(&self) -> u64 {
        self.total().saturating_sub(self.start())
    }

    /// After a step back of the clock, everything from the future becomes one entry at now.
    fn gather_future(&mut self, now_us: u64) -> bool {
        let after = self.total();
        let first_ahead = self.entries.partition_point(|entry| entry.time_us <= now_us);
        let Some(ahead) = self.entries.get_mut(first_ahead) else {
            return false;
        };
        *ahead = LogEntry { time_us: now_us, before: ahead.before, after };
        self.entries.truncate(first_ahead.saturating_add(1));
        true
    }

    /// Reduces the entry that holds what was charged at `charged_at_us`, which is the first one not before it.
    fn take_back(&mut self, cost: u64, charged_at_us: u64) {
        let index = self.entries.partition_point(|entry| entry.time_us < charged_at_us);
        let Some((charged, later)) = self.entries.get_mut(index..).and_then(<[_]>::split_first_mut) else {
            return;
        };
        let back = cost.min(charged.amount());
        charged.after = charged.after.saturating_sub(back);
        for entry in later {
            entry.before = entry.before.saturating_sub(back);
            entry.after = entry.after.saturating_sub(back);
        }
        self.entries.retain(|entry| entry.amount() > 0);
    }

    /// Shortens the log to `length` entries by merging neighbours, closest first, into the later one of the two. What
    /// is merged leaves later than it was due, so a shortened log never admits more than the whole one.
    pub(crate) fn shorten(&mut self, length: usize) {
        while self.entries.len() > length.max(1) {
            let gaps = self.entries.windows(2).map(|pair| match pair {
                [earlier, later] => later.time_us.saturating_sub(earlier.time_us),
                _ => u64::MAX,
            });
            let closest = gaps.enumerate().min_by_key(|(_, gap)| *gap);
            let Some((index, _)) = closest else { return };
            let earlier = self.entries.remove(index);
            if let Some(later) = self.entries.get_mut(index) {
                later.before = earlier.before;
            }
        }
    }

    pub(super) fn parse<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let entries: Vec<LogEntry> = texts.map(LogEntry::parse).collect::<Option<_>>()?;
        let log = Self { entries };
        (log.start() <= log.total() && !log.entries.is_empty()).then_some(log)
    }
}

impl LogEntry {
    /// What the request cost.
    pub(crate) fn amount(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    fn parse(text: &str) -> Option<Self> {
        let [time_us, before, after] = text::numbers(text)?;
        Some(Self { time_us, before, after })
    }

    pub(super) fn text(&self) -> String {
        format!("{}:{}:{}", self.time_us, self.before, self.after)
    }
}
