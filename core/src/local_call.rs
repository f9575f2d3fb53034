//! A decision that the instance's own limiter makes because the store failed.

use crate::algorithm::{Charge, Verdict};
use crate::call::Call;
use crate::decision::{DecidedBy, LimitVerdict};
use crate::engine::Step;

/// One decision for the local limiter.
#[derive(Debug)]
pub struct LocalCall {
    call: Call,
}

impl LocalCall {
    pub(crate) fn new(call: Call) -> LocalCall {
        LocalCall { call }
    }

    /// What the request asks of each limit that counts it, and the key it counts under.
    pub fn charges(&self) -> Vec<(&str, Charge<'_>)> {
        let limits = self.call.policy().map_or(&[][..], |policy| &policy.limits);
        let charge = |position: usize| {
            let limit = limits.get(position)?;
            Some(Charge { algorithm: &limit.local_algorithm, cost: limit.cost, enforce: limit.enforce })
        };
        let counted = self.call.counted().iter();
        counted.filter_map(|one| Some((one.store_key.as_str(), charge(one.limit)?))).collect()
    }

    /// Ends the decision with the verdicts for [`LocalCall::charges`], in their order.
    pub fn resume(self, verdicts: &[Verdict]) -> Step {
        let verdicts: Vec<LimitVerdict> = self
            .call
            .counted()
            .iter()
            .zip(verdicts)
            .map(|(counted, verdict)| LimitVerdict { limit: counted.limit, verdict: *verdict })
            .collect();
        self.call.decided(&verdicts, DecidedBy::Local)
    }
}
