//! The isolate's own limiter, for when the store cannot be asked: one for all requests of the isolate.

use std::cell::RefCell;
use std::collections::HashMap;

use lockkeeper_core::local::{LocalDecision, LocalStep, Swap, Table};
use lockkeeper_core::local_call::LocalCall;

/// The table of one isolate. Requests share it; none waits while it decides, so none comes between.
pub struct LocalTable {
    table: Table,
    shared: RefCell<HashMap<String, (Vec<u8>, u32)>>,
}

impl LocalTable {
    /// An empty table of that many sets. `seed` is random.
    pub fn new(sets: u32, seed: [u8; 16]) -> LocalTable {
        LocalTable { table: Table::new(sets, seed), shared: RefCell::default() }
    }

    /// Decides one request at that time, in microseconds.
    pub fn decide(&self, call: &LocalCall, now_us: u64) -> LocalDecision {
        let charges = call.charges();
        let mut shared = self.shared.borrow_mut();
        let mut step = self.table.start(&charges, now_us);
        loop {
            step = match step {
                LocalStep::Done(decision) => return decision,
                LocalStep::Read(read) => match shared.get(read.key()) {
                    Some((bytes, version)) => read.resume(bytes, Some(*version)),
                    None => read.resume(&[], None),
                },
                LocalStep::Write(write) => {
                    let version = write.version().unwrap_or_default().wrapping_add(1);
                    shared.insert(write.key().to_owned(), (write.bytes().to_vec(), version));
                    write.resume(Swap::Written)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::decision::Outcome;
    use lockkeeper_core::engine::{Engine, Step};
    use lockkeeper_core::policy::PolicySet;
    use lockkeeper_core::policy::load::LoadOptions;
    use lockkeeper_core::store::StoreFailure;

    const POLICY: &[u8] = br#"{ "version": 1, "default_policy": "p", "policies": { "p": { "limits": [
        { "name": "all", "algorithm": "token_bucket", "capacity": 4, "refill": "1/s", "key": ["method"] } ] } } }"#;

    #[test]
    fn clk_04_decisions_at_one_standing_time_stay_within_the_capacity() {
        let engine = Engine::new(PolicySet::from_json(POLICY, LoadOptions::default()).unwrap());
        let table = LocalTable::new(16, [7; 16]);
        let decide = |now_us| {
            let selection = engine.select("GET", "example.com", "/");
            let Step::Call(call) = engine.begin(&selection, &[]) else { panic!("no call") };
            let Step::Local(local) = call.resume(Err(StoreFailure::NotSent)) else { panic!("not local") };
            let decision = table.decide(&local, now_us);
            let Step::Decide(decided) = local.resume(&decision) else { panic!("not decided") };
            decided.report.outcome
        };
        let standing: Vec<_> = (0..10).map(|_| decide(1_700_000_000_000_000)).collect();
        assert_eq!(standing.iter().filter(|outcome| **outcome == Outcome::Allowed).count(), 4);
        assert_eq!(decide(1_700_000_001_000_000), Outcome::Allowed);
        assert_eq!(decide(1_700_000_001_000_000), Outcome::Denied);
    }
}
