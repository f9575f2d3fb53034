//! A decision that the instance's own limiter makes because the store failed.

use crate::algorithm::{Charge, Verdict};
use crate::call::Call;
use crate::decision::{DecidedBy, LimitVerdict};
use crate::engine::{Counted, Step};
use crate::local::LocalCharge;
use crate::policy::Limit;

/// One decision for the local limiter.
#[derive(Debug)]
pub struct LocalCall {
    call: Call,
}

impl LocalCall {
    pub(crate) fn new(call: Call) -> LocalCall {
        LocalCall { call }
    }

    /// What the request asks of each limit that counts it: the same identities as in the store, this host's share of
    /// the numbers.
    pub fn charges(&self) -> Vec<LocalCharge<'_>> {
        let limits = self.call.policy().map_or(&[][..], |policy| &policy.limits);
        self.call.counted().iter().filter_map(|one| Some(local_charge(one, limits.get(one.limit)?))).collect()
    }

    /// Ends the decision with the verdicts for [`LocalCall::charges`], in their order.
    pub fn resume(self, verdicts: &[Verdict]) -> Step {
        let counted = self.call.counted().iter().zip(verdicts);
        let verdicts: Vec<_> =
            counted.map(|(counted, verdict)| LimitVerdict { limit: counted.limit, verdict: *verdict }).collect();
        self.call.decided(&verdicts, DecidedBy::Local)
    }
}

fn local_charge<'a>(counted: &'a Counted, limit: &'a Limit) -> LocalCharge<'a> {
    let identity = counted.store_key.strip_prefix(&limit.store_key_prefix).unwrap_or(&counted.store_key);
    let charge = Charge { algorithm: &limit.local_algorithm, cost: limit.cost, enforce: limit.enforce };
    LocalCharge { limit_id: &limit.store_key_prefix, identity: identity.as_bytes(), charge }
}
