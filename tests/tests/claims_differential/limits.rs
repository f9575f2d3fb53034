//! The limits that stand beside claims: windows by the Rust algorithms, and slots by a second implementation.

use std::collections::{BTreeMap, HashMap};

use lockkeeper_core::algorithm::{Algorithm, Charge, Concurrency, FixedWindow, State, Verdict, decide};
use lockkeeper_core::claim::Owner;

/// A holder is told to come back within this, because slots may be given back at any moment.
const RETRY_US_MAX: u64 = 1_000_000;

/// One limit of a request.
#[derive(Clone, Debug)]
pub struct Limit {
    pub key: String,
    pub algorithm: Algorithm,
    pub enforce: bool,
}

impl Limit {
    pub fn window(key: &str, limit: u64, window_us: u64) -> Limit {
        let algorithm = FixedWindow::new(limit, window_us).expect("a window").into();
        Limit { key: key.into(), algorithm, enforce: true }
    }

    pub fn slots(key: &str, limit: u64, lease_us: u64) -> Limit {
        let algorithm = Concurrency::new(limit, lease_us).expect("slots").into();
        Limit { key: key.into(), algorithm, enforce: true }
    }

    pub fn charge(&self) -> Charge<'_> {
        Charge { algorithm: &self.algorithm, cost: 1, enforce: self.enforce }
    }
}

/// What the limits have counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    windows: HashMap<String, State>,
    pub slots: HashMap<String, Slots>,
}

/// Who holds the slots of one key, until when.
pub type Slots = BTreeMap<Owner, u64>;

impl Counts {
    /// All limits are charged or none. Returns whether it was all, and what each says.
    pub fn decide(&mut self, limits: &[Limit], owner: Owner, now_us: u64) -> (bool, Vec<Verdict>) {
        let admits = |limit: &Limit| match &limit.algorithm {
            Algorithm::Concurrency(rule) => slot_is_free(self.slots.get(&limit.key), rule, owner, now_us),
            _ => decide(&[limit.charge()], &mut [self.state(&limit.key)], now_us).verdicts[0].admitted,
        };
        let admitted: Vec<bool> = limits.iter().map(admits).collect();
        let allowed = limits.iter().zip(&admitted).all(|(limit, admitted)| *admitted || !limit.enforce);
        let verdict = |(limit, admitted): (&Limit, &bool)| match &limit.algorithm {
            Algorithm::Concurrency(rule) => {
                let slots = self.slots.entry(limit.key.clone()).or_default();
                take_slot(slots, rule, (owner, *admitted, allowed && *admitted), now_us)
            }
            _ => self.charge_window(limit, allowed, now_us),
        };
        let verdicts = limits.iter().zip(&admitted).map(verdict).collect();
        self.slots.retain(|_, slots| !slots.is_empty());
        (allowed, verdicts)
    }

    fn state(&self, key: &str) -> State {
        self.windows.get(key).cloned().unwrap_or_default()
    }

    /// A limit that nothing fits keeps the window from being charged.
    fn charge_window(&mut self, limit: &Limit, allowed: bool, now_us: u64) -> Verdict {
        let nothing = FixedWindow::new(1, 1_000_000).expect("a window").into();
        let blocker = Charge { algorithm: &nothing, cost: 2, enforce: !allowed };
        let mut states = [self.state(&limit.key), State::Absent];
        let verdict = decide(&[limit.charge(), blocker], &mut states, now_us).verdicts[0];
        let [state, _] = states;
        self.windows.insert(limit.key.clone(), state);
        verdict
    }
}

fn slot_is_free(slots: Option<&Slots>, rule: &Concurrency, owner: Owner, now_us: u64) -> bool {
    let Some(slots) = slots else { return true };
    let live = slots.values().filter(|deadline| **deadline > now_us).count() as u64;
    live < rule.limit() || slots.get(&owner).is_some_and(|deadline| *deadline > now_us)
}

fn take_slot(
    slots: &mut Slots,
    rule: &Concurrency,
    (owner, admitted, charged): (Owner, bool, bool),
    now_us: u64,
) -> Verdict {
    let latest_us = now_us + rule.lease_us();
    slots.values_mut().for_each(|deadline| *deadline = (*deadline).min(latest_us));
    if charged {
        slots.insert(owner, latest_us);
        slots.retain(|_, deadline| *deadline > now_us);
    }
    let live = || slots.values().filter(|deadline| **deadline > now_us);
    let reset_us = live().min().map_or(0, |earliest| earliest - now_us);
    let retry_us = if admitted { 0 } else { reset_us.min(RETRY_US_MAX) };
    Verdict { admitted, remaining: rule.limit().saturating_sub(live().count() as u64), reset_us, retry_us }
}
