//! What every algorithm can answer about its own state: one trait, so that decisions are written once.

/// A state brought up to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled<S> {
    pub state: S,
    /// The stored state lay in the future (the clock stepped back), so this one must be stored even on a denial.
    pub healed: bool,
}

/// One algorithm with its numbers. Except in `settle`, states are settled ones and `now_us` is the time they were settled at.
pub(crate) trait Rule {
    type State: Clone;

    /// The most that can be available at once.
    fn allowance(&self) -> u64;

    /// The state at `now_us`; `None` is an absent key.
    fn settle(&self, stored: Option<&Self::State>, now_us: u64) -> Settled<Self::State>;

    /// Whole units available.
    fn available(&self, state: &Self::State, now_us: u64) -> u64;

    /// Takes `cost`, which must be available.
    fn charge(&self, state: &mut Self::State, cost: u64, now_us: u64);

    /// Gives back `cost` that was charged at `charged_at_us`: never past full, and only where it was charged.
    fn refund(&self, state: &mut Self::State, cost: u64, charged_at_us: u64);

    /// Time until `amount`, at most the allowance, is available when nobody spends; 0 when it is.
    fn wait_us(&self, state: &Self::State, now_us: u64, amount: u64) -> u64;

    /// Time from which the state equals an absent one.
    fn fresh_at_us(&self, state: &Self::State) -> u64;
}
