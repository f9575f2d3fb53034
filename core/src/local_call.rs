//! What the instance's own limiter decides: for the store, when that failed, or before a body is held.

use crate::algorithm::{Charge, Verdict};
use crate::call::Call;
use crate::decision::DecidedBy;
use crate::engine::{Counted, NeedBody, Step};
use crate::hold_limit::Hold;
use crate::local::{LocalCharge, LocalDecision};
use crate::policy::Limit;

/// One decision for the local limiter.
#[derive(Debug)]
pub struct LocalCall {
    asks: Asks,
}

/// Who asks.
#[derive(Debug)]
enum Asks {
    /// A decision that the store did not make.
    Decision(Call),
    /// A request whose body is to be held.
    Hold(Hold),
}

impl LocalCall {
    pub(crate) fn new(call: Call) -> LocalCall {
        LocalCall { asks: Asks::Decision(call) }
    }

    pub(crate) fn hold(need: NeedBody, counted: Counted) -> LocalCall {
        LocalCall { asks: Asks::Hold(Hold::new(need, counted)) }
    }

    /// What the request asks of each limit that counts it: the same identities as in the store, this host's share of
    /// the numbers.
    pub fn charges(&self) -> Vec<LocalCharge<'_>> {
        match &self.asks {
            Asks::Decision(call) => charges(call),
            Asks::Hold(hold) => hold.charge().into_iter().collect(),
        }
    }

    /// Goes on with the local decision for [`LocalCall::charges`].
    pub fn resume(self, decision: &LocalDecision) -> Step {
        match self.asks {
            Asks::Decision(call) => decided(call, decision),
            Asks::Hold(hold) => {
                let verdict = decision.decision.verdicts.first().copied();
                hold.resume(verdict.map(|verdict| if decision.contended { out_raced(verdict) } else { verdict }))
            }
        }
    }
}

fn charges(call: &Call) -> Vec<LocalCharge<'_>> {
    let limits = call.policy().map_or(&[][..], |policy| &policy.limits);
    call.counted().iter().filter_map(|one| Some(local_charge(one, limits.get(one.limit)?))).collect()
}

fn decided(call: Call, decision: &LocalDecision) -> Step {
    let limits = call.policy().map_or(&[][..], |policy| &policy.limits);
    let counted = call.counted().iter().zip(&decision.decision.verdicts);
    let verdicts: Vec<_> = counted
        .map(|(counted, verdict)| {
            let enforced = limits.get(counted.limit).is_some_and(|limit| limit.enforce);
            let verdict = if decision.contended && enforced { out_raced(*verdict) } else { *verdict };
            counted.verdict(verdict)
        })
        .collect();
    call.decided(&verdicts, DecidedBy::Local)
}

/// Other workers were faster each time, so nothing was charged: the request is denied and may come back at once.
fn out_raced(verdict: Verdict) -> Verdict {
    Verdict { admitted: false, retry_us: verdict.retry_us.max(1), ..verdict }
}

fn local_charge<'a>(counted: &'a Counted, limit: &'a Limit) -> LocalCharge<'a> {
    let identity = counted.store_key.strip_prefix(&limit.store_key_prefix).unwrap_or(&counted.store_key);
    let algorithm = &limit.grant(counted.override_index).local_algorithm;
    let charge = Charge { algorithm, cost: counted.cost, enforce: limit.enforce };
    LocalCharge { limit_id: &limit.store_key_prefix, identity: identity.as_bytes(), charge }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Decision;
    use crate::decision::Outcome;
    use crate::engine::Engine;
    use crate::policy::PolicySet;
    use crate::policy::load::LoadOptions;
    use crate::store::StoreFailure;

    const POLICY: &[u8] = br#"{ "version": 1, "default_policy": "p", "policies": { "p": { "limits": [
        { "name": "watched", "algorithm": "fixed_window", "limit": 5, "window": "1m", "key": ["method"], "enforce": false },
        { "name": "enforced", "algorithm": "fixed_window", "limit": 5, "window": "1m", "key": ["method"] } ] } } }"#;

    #[test]
    fn a_decision_that_lost_every_race_denies_though_each_limit_admits() {
        let engine = Engine::new(PolicySet::from_json(POLICY, LoadOptions::default()).unwrap());
        let selection = engine.select("GET", "example.com", "/");
        let Step::Call(call) = engine.begin(&selection, &[]) else { panic!("no call") };
        let Step::Local(local) = call.resume(Err(StoreFailure::NotSent)) else { panic!("not local") };
        let admits = Verdict { admitted: true, remaining: 4, reset_us: 7, retry_us: 0 };
        let decision = LocalDecision {
            decision: Decision { allowed: false, verdicts: vec![admits; local.charges().len()] },
            overflowed: 0,
            mismatches: 16,
            contended: true,
            lost_refunds: 0,
        };
        let Step::Decide(decided) = local.resume(&decision) else { panic!("not decided") };
        assert_eq!(decided.report.outcome, Outcome::Denied);
        assert_eq!(decided.report.limit, Some(1));
        assert!(decided.report.shadow_denials.is_empty());
    }
}
