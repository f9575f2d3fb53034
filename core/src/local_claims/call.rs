//! A decision whose claims the instance's own table is asked about: because the store failed, or because it granted them.

use super::step::ClaimStep;
use super::table::{ClaimTable, Taken};
use crate::call::Call;
use crate::claim::Granted;
use crate::decision::LimitVerdict;
use crate::engine::Step;

/// One request's claims for the table.
#[derive(Debug)]
pub struct LocalClaimCall {
    call: Call,
    /// What the store granted and its limits said; `None` when it failed.
    by_store: Option<(Vec<Granted>, Vec<LimitVerdict>)>,
}

impl LocalClaimCall {
    /// The store failed.
    pub(crate) fn take(call: Call) -> LocalClaimCall {
        LocalClaimCall { call, by_store: None }
    }

    /// The store granted.
    pub(crate) fn adopt(call: Call, granted: Vec<Granted>, verdicts: Vec<LimitVerdict>) -> LocalClaimCall {
        LocalClaimCall { call, by_store: Some((granted, verdicts)) }
    }

    /// Asks the table, at `now_us` of the monotonic clock.
    pub fn start<'a>(&'a self, table: &ClaimTable, now_us: u64) -> ClaimStep<'a, Taken> {
        let (asks, owner) = (self.call.asks(), self.call.owner());
        match &self.by_store {
            Some((granted, _)) => table.adopt(asks, granted, owner, now_us),
            None => table.take(asks, owner, now_us),
        }
    }

    /// Goes on with what the table says.
    pub fn resume(self, taken: Taken) -> Step {
        let LocalClaimCall { call, by_store } = self;
        match by_store {
            Some((granted, verdicts)) => call.adopted(&granted, &verdicts, taken),
            None => call.taken(taken),
        }
    }
}
