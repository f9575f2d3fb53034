//! The instance's own table of claims in Envoy's shared data: one for all workers of the process.

use std::cell::{Cell, OnceCell};

use lockkeeper_core::claim::Word;
use lockkeeper_core::engine::Step;
use lockkeeper_core::lease::LeaseCall;
use lockkeeper_core::local::Swap as TableSwap;
use lockkeeper_core::local_claims::{ClaimStep, ClaimTable, Known, LocalClaimCall, Taken};
use lockkeeper_core::policy::{ClaimFailure, Policy, PolicySet};

use crate::host::{self, Swap};
use crate::local;
use crate::metrics::{LocalClaimEvent, Metrics};

/// So many sets are swept in one tick.
const SWEPT_AT_ONCE: u32 = 8;
/// The next of them come so much later.
const SWEEP_TICK_US: u64 = 10_000;
/// A table that still had something for the store is swept again so much later.
const SWEPT_AGAIN_AFTER_US: u64 = 1_000_000;

/// The table, and how far this worker has swept it.
pub struct LocalClaims {
    sets: u32,
    table: OnceCell<ClaimTable>,
    sweep: Cell<Option<Sweep>>,
}

#[derive(Clone, Copy)]
struct Sweep {
    at_us: u64,
    next_set: u32,
    is_clean: bool,
}

impl LocalClaims {
    /// A table of that many sets. What an earlier configuration left in it is swept up.
    pub fn new(sets: u32, policies: &PolicySet) -> LocalClaims {
        let is_used = policies.policies.iter().any(protects_by_instance);
        let sweep = is_used.then_some(Sweep { at_us: 0, next_set: 0, is_clean: true });
        LocalClaims { sets, table: OnceCell::new(), sweep: Cell::new(sweep) }
    }

    fn table(&self) -> &ClaimTable {
        self.table.get_or_init(|| ClaimTable::new(self.sets, local::seed()))
    }

    /// Goes on with a request whose claims the table is asked about.
    pub fn decide(&self, call: LocalClaimCall, metrics: &Metrics) -> Step {
        let taken = run(call.start(self.table(), host::monotonic_us()));
        if taken == Taken::NoRoom {
            metrics.local_claim_event(LocalClaimEvent::NoRoom, 1);
        }
        call.resume(taken)
    }

    /// Does in the table what a command does in the store.
    pub fn tell(&self, call: &LeaseCall, known: Known, now_us: u64) -> Vec<Word> {
        run(self.table().tell(call.command(), known, now_us))
    }

    /// There is something to tell the store.
    pub fn sweep_soon(&self, now_us: u64) {
        if self.sweep.get().is_none_or(|sweep| sweep.next_set == 0) {
            self.sweep.set(Some(Sweep { at_us: now_us, next_set: 0, is_clean: true }));
        } else if let Some(sweep) = self.sweep.get() {
            self.sweep.set(Some(Sweep { is_clean: false, ..sweep }));
        }
    }

    /// When the next sets are to be swept, if any.
    pub fn next_us(&self) -> Option<u64> {
        self.sweep.get().map(|sweep| sweep.at_us)
    }

    /// Goes through the next sets, if it is time: what the store is to be told.
    pub fn sweep(&self, now_us: u64) -> Vec<LeaseCall> {
        let Some(mut sweep) = self.sweep.get().filter(|sweep| sweep.at_us <= now_us) else { return Vec::new() };
        let table = self.table();
        let end = sweep.next_set.saturating_add(SWEPT_AT_ONCE).min(table.sets());
        // Above all that was given in this second.
        let fence = host::unix_s().saturating_add(1).saturating_mul(1_000_000);
        let mut due = Vec::new();
        for set in sweep.next_set..end {
            let swept = run(table.sweep(set, fence, now_us));
            sweep.is_clean &= swept.is_clean;
            due.extend(swept.due.into_iter().map(LeaseCall::push));
        }
        self.sweep.set(match (end < table.sets(), sweep.is_clean) {
            (true, is_clean) => Some(Sweep { at_us: now_us.saturating_add(SWEEP_TICK_US), next_set: end, is_clean }),
            (false, true) => None,
            (false, false) => {
                let at_us = now_us.saturating_add(SWEPT_AGAIN_AFTER_US);
                Some(Sweep { at_us, next_set: 0, is_clean: true })
            }
        });
        due
    }
}

/// Whether this instance protects claims of the policy by itself while the store fails.
fn protects_by_instance(policy: &Policy) -> bool {
    let idempotency = policy.idempotency.as_deref().map(|rules| rules.on_store_failure);
    let lock = policy.lock.as_deref().map(|rules| rules.on_store_failure);
    idempotency.into_iter().chain(lock).any(|mode| mode == ClaimFailure::Local)
}

fn run<T>(mut step: ClaimStep<'_, T>) -> T {
    loop {
        step = match step {
            ClaimStep::Done(result) => return result,
            ClaimStep::Read(read) => match host::shared_data(read.key()) {
                Ok(Some((bytes, cas))) => read.resume(&bytes, Some(cas)),
                Ok(None) | Err(_) => read.resume(&[], None),
            },
            ClaimStep::Write(write) => match host::swap_shared_data(write.key(), write.bytes(), write.version()) {
                Ok(Swap::Written) => write.resume(TableSwap::Written),
                Ok(Swap::Mismatch) | Err(_) => write.resume(TableSwap::Mismatch),
            },
        };
    }
}
