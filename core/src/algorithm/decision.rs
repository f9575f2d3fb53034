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
    let opened: Vec<Account<'_>> = charges
        .iter()
        .zip(&*states)
        .map(|(charge, state)| Account::open(charge.algorithm, state, now_us))
        .collect();
    let allowed = charges
        .iter()
        .zip(&opened)
        .all(|(charge, account)| !charge.enforce || charge.fits(account));
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
        let reset_us = if remaining < allowance {
            account.wait_us(remaining.saturating_add(1))
        } else {
            0
        };
        let retry_us = if admitted {
            0
        } else {
            account.wait_us(self.cost().min(allowance))
        };
        Verdict {
            admitted,
            remaining,
            reset_us,
            retry_us,
        }
    }
}
