//! One request against several limits: all of them are charged, or none.

use super::state::Account;
use super::{Algorithm, State};

/// What one request asks of one limit.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The limit's rule.
    pub algorithm: &'a Algorithm,
    /// Units the request costs: 1 to the allowance. 0 counts as 1; more than the allowance is never admitted.
    pub cost: u64,
    /// Whether the limit may deny. A limit that only watches is charged when it and all enforced limits admit.
    pub enforce: bool,
}

/// One limit's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether this limit, on its own, admits the request.
    pub admitted: bool,
    /// Whole units available after the decision.
    pub remaining: u64,
    /// Time until at least one unit more than `remaining` is available, in µs; 0 when nothing is spent.
    pub reset_us: u64,
    /// Time until the cost is available when nobody else spends, in µs; 0 when admitted.
    pub retry_us: u64,
}

/// The answer of all limits of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether every enforced limit admits.
    pub allowed: bool,
    /// In the order of the charges.
    pub verdicts: Vec<Verdict>,
}

/// Decides one request at `now_us` and updates `states`: exactly one for each charge, in the same order.
/// A denial charges nothing; it only brings back states that lie in the future.
pub fn decide(charges: &[Charge<'_>], states: &mut [State], now_us: u64) -> Decision {
    debug_assert_eq!(charges.len(), states.len());
    let opened: Vec<Account<'_>> =
        charges.iter().zip(&*states).map(|(charge, state)| Account::open(charge.algorithm, state, now_us)).collect();
    let allowed = charges.iter().zip(&opened).all(|(charge, account)| !charge.enforce || charge.fits(account));
    let mut verdicts = Vec::with_capacity(charges.len());
    for ((charge, mut account), state) in charges.iter().zip(opened).zip(states) {
        let admitted = charge.fits(&account);
        let charged = allowed && admitted;
        if charged {
            account.charge(charge.cost());
        }
        verdicts.push(charge.verdict(&account, admitted));
        if charged || account.healed() {
            *state = account.into_state();
        }
    }
    Decision { allowed, verdicts }
}

impl Charge<'_> {
    /// The answer at `now_us` for a stored state, without charging it: `remaining` is what is there.
    pub fn peek(&self, state: &State, now_us: u64) -> Verdict {
        let account = Account::open(self.algorithm, state, now_us);
        self.verdict(&account, self.fits(&account))
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost.max(1)
    }

    pub(crate) fn fits(&self, account: &Account<'_>) -> bool {
        self.cost() <= account.available()
    }

    pub(crate) fn verdict(&self, account: &Account<'_>, admitted: bool) -> Verdict {
        let (allowance, remaining) = (account.allowance(), account.available());
        let reset_us = if remaining < allowance { account.wait_us(remaining.saturating_add(1)) } else { 0 };
        let retry_us = if admitted { 0 } else { account.wait_us(self.cost().min(allowance)) };
        Verdict { admitted, remaining, reset_us, retry_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, SlidingWindow, SlidingWindowCounter, TokenBucket};

    const NOW_US: u64 = 1_796_083_212_345_678;

    fn every(limit: u64, window_us: u64) -> [Algorithm; 4] {
        [
            FixedWindow::new(limit, window_us).unwrap().into(),
            SlidingWindow::new(limit, window_us).unwrap().into(),
            SlidingWindowCounter::new(limit, window_us).unwrap().into(),
            TokenBucket::new(limit, limit, window_us).unwrap().into(),
        ]
    }

    fn ask(algorithm: &Algorithm, cost: u64) -> Charge<'_> {
        Charge { algorithm, cost, enforce: true }
    }

    #[test]
    fn a_denial_charges_nothing_and_says_how_long_to_wait() {
        for algorithm in every(5, 60_000_000) {
            let mut state = [State::Absent];
            assert!(decide(&[ask(&algorithm, 4)], &mut state, NOW_US).allowed);
            let before = state.clone();
            let denied = decide(&[ask(&algorithm, 3)], &mut state, NOW_US).verdicts[0];
            assert_eq!((denied.admitted, denied.remaining), (false, 1), "{algorithm:?}");
            assert_eq!(state, before);
            let at = |now_us| decide(&[ask(&algorithm, 3)], &mut before.clone(), now_us).allowed;
            let due_us = NOW_US.checked_add(denied.retry_us).unwrap();
            assert_eq!((at(due_us.checked_sub(1).unwrap()), at(due_us)), (false, true), "{algorithm:?}");
        }
    }

    #[test]
    fn all_enforced_limits_are_charged_or_none() {
        for (large, small) in every(5, 60_000_000).iter().zip(&every(1, 60_000_000)) {
            let mut states = [State::Absent, State::Absent];
            let charges = [ask(large, 1), ask(small, 1)];
            assert!(decide(&charges, &mut states, NOW_US).allowed);
            let denied = decide(&charges, &mut states, NOW_US);
            let verdicts: Vec<_> = denied.verdicts.iter().map(|it| (it.admitted, it.remaining)).collect();
            assert_eq!((denied.allowed, verdicts), (false, vec![(true, 4), (false, 0)]));
        }
    }

    #[test]
    fn a_cost_above_the_limit_is_never_admitted_and_no_cost_counts_as_one() {
        for algorithm in every(5, 60_000_000) {
            let mut state = [State::Absent];
            assert!(!decide(&[ask(&algorithm, u64::MAX)], &mut state, NOW_US).allowed);
            let verdict = decide(&[ask(&algorithm, 0)], &mut state, NOW_US).verdicts[0];
            assert_eq!((verdict.admitted, verdict.remaining), (true, 4));
        }
    }

    #[test]
    fn what_is_stored_is_read_back() {
        for algorithm in every(5, 60_000_000) {
            let mut state = [State::Absent];
            decide(&[ask(&algorithm, 2)], &mut state, NOW_US);
            decide(&[ask(&algorithm, 1)], &mut state, NOW_US.checked_add(1_000).unwrap());
            let texts = state[0].texts();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            assert_eq!(State::parse(&algorithm, &texts), state[0]);
        }
    }
}
