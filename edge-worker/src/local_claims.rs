//! The isolate's own table of claims, for policies that each isolate protects by itself while the store fails.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use lockkeeper_core::claim::Word;
use lockkeeper_core::engine::Step;
use lockkeeper_core::lease::{Act, LeaseCall};
use lockkeeper_core::local::Swap;
use lockkeeper_core::local_claims::{ClaimStep, ClaimTable, Known, LocalClaimCall};

use crate::host;

/// A table that still had something for the store is looked through again so much later.
const SWEPT_AGAIN_AFTER_US: u64 = 1_000_000;

/// The table of one isolate. Requests share it; none waits while it asks, so none comes between.
pub struct LocalClaims {
    table: ClaimTable,
    shared: RefCell<HashMap<String, (Vec<u8>, u32)>>,
    /// Its clock counts from here.
    epoch_us: u64,
    /// When it is to be looked through for what the store is to be told.
    sweep_at_us: Cell<Option<u64>>,
}

impl LocalClaims {
    /// An empty table. `seed` is random.
    pub fn new(seed: [u8; 16]) -> LocalClaims {
        LocalClaims {
            table: ClaimTable::new(ClaimTable::SETS, seed),
            shared: RefCell::default(),
            epoch_us: host::now_us(),
            sweep_at_us: Cell::new(None),
        }
    }

    fn now_us(&self) -> u64 {
        host::now_us().saturating_sub(self.epoch_us)
    }

    /// Goes on with a request whose claims the table is asked about.
    pub fn decide(&self, call: LocalClaimCall) -> Step {
        let taken = self.run(call.start(&self.table, self.now_us()));
        call.resume(taken)
    }

    /// Does in the table what a command does in the store, where the table alone knows of the lease or of its renewal.
    pub fn tell(&self, call: &LeaseCall) -> Vec<Word> {
        let words = self.run(self.table.tell(call.command(), Known::Not, self.now_us()));
        if call.act() != Act::Renew {
            self.sweep_at_us.set(Some(0));
        }
        words
    }

    /// Notes what the store said to a command, if anything.
    pub fn note(&self, call: &LeaseCall, words: Option<&[Word]>) {
        match Known::after(words.and_then(|words| words.first().copied())) {
            Known::Not => drop(self.tell(call)),
            known => drop(self.run(self.table.tell(call.command(), known, self.now_us()))),
        }
    }

    /// Whether it is time to [`LocalClaims::sweep`]; one request is told so each time.
    pub fn takes_sweep(&self) -> bool {
        let is_due = self.sweep_at_us.get().is_some_and(|at_us| at_us <= self.now_us());
        if is_due {
            self.sweep_at_us.set(None);
        }
        is_due
    }

    /// Looks the table through: what the store is to be told now.
    pub fn sweep(&self) -> Vec<LeaseCall> {
        let now_us = self.now_us();
        // Above all that was given in this second.
        let fence = host::now_us().saturating_add(1_000_000);
        let (mut due, mut is_clean) = (Vec::new(), true);
        for set in 0..self.table.sets() {
            let swept = self.run(self.table.sweep(set, fence, now_us));
            is_clean &= swept.is_clean;
            due.extend(swept.due.into_iter().map(LeaseCall::push));
        }
        if !is_clean {
            self.sweep_at_us.set(Some(now_us.saturating_add(SWEPT_AGAIN_AFTER_US)));
        }
        due
    }

    fn run<T>(&self, mut step: ClaimStep<'_, T>) -> T {
        let mut shared = self.shared.borrow_mut();
        loop {
            step = match step {
                ClaimStep::Done(result) => return result,
                ClaimStep::Read(read) => match shared.get(read.key()) {
                    Some((bytes, version)) => read.resume(bytes, Some(*version)),
                    None => read.resume(&[], None),
                },
                ClaimStep::Write(write) => {
                    let version = write.version().unwrap_or_default().wrapping_add(1);
                    shared.insert(write.key().to_owned(), (write.bytes().to_vec(), version));
                    write.resume(Swap::Written)
                }
            };
        }
    }
}
