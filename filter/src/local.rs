//! The local limiter's table in Envoy's shared data: one for all workers of the process.

use std::cell::OnceCell;

use lockkeeper_core::local::{LocalDecision, LocalStep, Swap as TableSwap, Table};
use lockkeeper_core::local_call::LocalCall;

use crate::host::{self, Swap};
use crate::metrics::Metrics;

/// A decision that lost every race is tried again this often before it denies.
const ATTEMPTS_MAX: usize = 4;
const SEED_KEY: &str = "lockkeeper/seed";

/// The table, with the seed that all workers share once one of them has drawn it.
pub struct LocalTable {
    sets: u32,
    table: OnceCell<Table>,
}

impl LocalTable {
    /// A table of that many sets. Nothing is written before the first decision.
    pub fn new(sets: u32) -> LocalTable {
        LocalTable { sets, table: OnceCell::new() }
    }

    /// Decides one request.
    pub fn decide(&self, call: &LocalCall, now_us: u64, metrics: &Metrics) -> LocalDecision {
        let table = self.table.get_or_init(|| Table::new(self.sets, seed()));
        let charges = call.charges();
        let mut local = run(table.start(&charges, now_us));
        for _ in 1..ATTEMPTS_MAX {
            if !local.contended {
                break;
            }
            metrics.local_contention(1);
            local = run(table.start(&charges, host::monotonic_us()));
        }
        metrics.local_overflow(u64::from(local.overflowed));
        metrics.local_contention(u64::from(local.mismatches));
        local
    }
}

fn run(mut step: LocalStep<'_>) -> LocalDecision {
    loop {
        step = match step {
            LocalStep::Done(decision) => return decision,
            LocalStep::Read(read) => match host::shared_data(read.key()) {
                Ok(Some((bytes, cas))) => read.resume(&bytes, Some(cas)),
                Ok(None) | Err(_) => read.resume(&[], None),
            },
            LocalStep::Write(write) => match host::swap_shared_data(write.key(), write.bytes(), write.version()) {
                Ok(Swap::Written) => write.resume(TableSwap::Written),
                Ok(Swap::Mismatch) | Err(_) => write.resume(TableSwap::Mismatch),
            },
        };
    }
}

/// The seed of this process: drawn by the worker that comes first, read by the others.
pub fn seed() -> [u8; 16] {
    let drawn: [u8; 16] = host::random_bytes().unwrap_or_default();
    match host::swap_shared_data(SEED_KEY, &drawn, None) {
        Ok(Swap::Written) => drawn,
        Ok(Swap::Mismatch) | Err(_) => {
            let shared = host::shared_data(SEED_KEY).ok().flatten();
            shared.and_then(|(bytes, _)| bytes.try_into().ok()).unwrap_or(drawn)
        }
    }
}
