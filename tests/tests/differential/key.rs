//! What is known of one key: its state by Rust, and when it vanishes from the store in virtual time.

use lockkeeper_core::algorithm::{Algorithm, State};

/// The script keeps a key at least this long beyond the time its state is worth anything.
const MARGIN_MS: u64 = 1000;
/// And this long when it sets an expiry.
const RENEWED_MS: u64 = 3000;
/// Real time passes too, between a step and the reading of its lifetimes.
const LAG_MS: u64 = 900;
/// The store's own clock must not let a key vanish within a step.
pub const REST_MS_MIN: u64 = 50;

#[derive(Clone, Debug)]
pub struct Key {
    pub oracle: State,
    /// Who wrote it.
    pub algorithm: Algorithm,
    /// Virtual time at which it vanishes; `None` is never.
    pub vanishes_us: Option<u64>,
    /// What is stored is foreign, so the oracle does not know its text.
    pub planted: bool,
}

impl Key {
    /// Sees the key as another algorithm does, if it is another.
    pub fn reread(&mut self, algorithm: &Algorithm) {
        if std::mem::discriminant(&self.algorithm) == std::mem::discriminant(algorithm) {
            return;
        }
        self.planted = true;
        let is_list = |it: &Algorithm| matches!(it, Algorithm::SlidingWindow(_));
        self.oracle = if is_list(&self.algorithm) || is_list(algorithm) {
            State::Absent
        } else {
            let texts = self.oracle.texts();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            State::parse(algorithm, &texts)
        };
    }

    /// Time the key has left in the store.
    pub fn rest_ms(&self, now_us: u64) -> Option<u64> {
        let rest_us = self.vanishes_us?.saturating_sub(now_us);
        Some(rest_us.div_ceil(1000).max(REST_MS_MIN))
    }
}

/// The lifetime the script must have left, given what it read: `None` if `found_ms` is not it.
///
/// A sufficient rest is kept, anything else renewed. Either is right where the rest is barely sufficient, or where
/// something foreign had to be removed first.
pub fn lifetime_ms(needed_ms: u64, was: Option<&Key>, now_us: u64, found_ms: u64) -> Option<u64> {
    let sufficient_ms = needed_ms + MARGIN_MS;
    let kept_ms = was.and_then(|key| key.rest_ms(now_us)).filter(|rest_ms| *rest_ms >= sufficient_ms);
    let may_renew =
        kept_ms.is_none_or(|rest_ms| rest_ms < sufficient_ms + LAG_MS) || was.is_some_and(|key| key.planted);
    let renewed_ms = may_renew.then_some(needed_ms + RENEWED_MS);
    let mut expected_ms = [kept_ms, renewed_ms].into_iter().flatten();
    expected_ms.find(|it| (it.saturating_sub(LAG_MS)..=*it).contains(&found_ms))
}
