//! Before a body is held for its fingerprint: this instance's own limit on how often a client may ask for that. A flood of
//! slow or large bodies is turned away at its headers, without a word to the store.

use crate::algorithm::{Charge, Verdict};
use crate::answer;
use crate::decision::{Decision, Outcome, Report};
use crate::engine::{Counted, NeedBody, Step};
use crate::local::LocalCharge;
use crate::policy::{Idempotency, Limit, Policy};
use crate::values::Values;

/// A request that wants its body held, counted.
#[derive(Debug)]
pub(crate) struct Hold {
    need: NeedBody,
    counted: Counted,
}

/// How the limit counts the request; `None` when there is no such limit.
pub(crate) fn count(rules: &Idempotency, values: &Values<'_>) -> Option<Counted> {
    let limit = rules.hold_limit.as_ref()?;
    let store_key = values.store_key(limit).ok()?;
    Some(Counted { limit: 0, override_index: None, cost: 1, store_key })
}

impl Hold {
    pub fn new(need: NeedBody, counted: Counted) -> Hold {
        Hold { need, counted }
    }

    fn rules(&self) -> Option<&Idempotency> {
        self.need.call.policy()?.idempotency.as_deref()
    }

    fn limit(&self) -> Option<&Limit> {
        self.rules()?.hold_limit.as_ref()
    }

    /// What it asks of the limit. The numbers are those of one instance, so no share is taken of them.
    pub fn charge(&self) -> Option<LocalCharge<'_>> {
        let limit = self.limit()?;
        let identity = self.counted.store_key.strip_prefix(&limit.store_key_prefix)?;
        let charge = Charge { algorithm: &limit.base.algorithm, cost: 1, enforce: true };
        Some(LocalCharge { limit_id: &limit.store_key_prefix, identity: identity.as_bytes(), charge })
    }

    /// Goes on with the limit's verdict: `None` when it was not asked.
    pub fn resume(self, verdict: Option<Verdict>) -> Step {
        match (self.rules(), verdict) {
            (Some(rules), Some(verdict)) if !verdict.admitted => {
                let policy = self.need.call.policy().and_then(Policy::reported);
                let report = Report::uncounted(policy, Outcome::HoldLimited);
                Step::Decide(Decision::new(answer::hold_limited(rules, verdict.retry_us), report))
            }
            _ => Step::NeedBody(self.need),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Arrival, Body};
    use crate::algorithm;
    use crate::claim::Owner;
    use crate::decision::Action;
    use crate::engine::{Collected, Engine};
    use crate::identity::Attribute;
    use crate::local::LocalDecision;
    use crate::policy::PolicySet;
    use crate::policy::load::LoadOptions;

    /// The first step of a payment with a body, with these further members of `fingerprint`.
    fn begun(more: &str, body: Body) -> Step {
        let json = format!(
            r#"{{ "version": 1, "default_policy": "p", "policies": {{ "p": {{ "idempotency": {{
                "scope": ["header:authorization"], "on_unknown": "reject", "fingerprint": {{ {more} }} }} }} }} }}"#
        );
        let policies = PolicySet::from_json(json.as_bytes(), LoadOptions { local_share: 0.5 });
        let engine = Engine::new(policies.unwrap_or_else(|error| panic!("{error}")));
        let selection = engine.select("POST", "example.com", "/payments");
        let value = |attribute: &Attribute| match attribute {
            Attribute::Header(name) if name == "idempotency-key" || name == "authorization" => Some(b"x".to_vec()),
            Attribute::ClientAddress => Some(b"192.0.2.1".to_vec()),
            _ => None,
        };
        let values: Vec<_> = engine.attributes(&selection).iter().map(value).collect();
        let arrival = Arrival { owner: Some(Owner::new([7; 16])), floor: 0, body };
        engine.begin_arrived(&selection, &values, &arrival)
    }

    fn said(admitted: bool, contended: bool) -> LocalDecision {
        let verdict = Verdict { admitted, remaining: 0, reset_us: 5, retry_us: if admitted { 0 } else { 1_500_000 } };
        LocalDecision {
            decision: algorithm::Decision { allowed: admitted, verdicts: vec![verdict] },
            overflowed: 0,
            mismatches: 0,
            contended,
            lost_refunds: 0,
        }
    }

    #[test]
    fn a_body_is_asked_for_only_when_the_limit_admits() {
        let Step::Local(local) = begun("", Body::Unknown) else { panic!("not counted") };
        let [charge] = local.charges()[..] else { panic!("one charge") };
        assert!(charge.limit_id.contains(".idempotency.hold_limit:"), "{}", charge.limit_id);
        // Each instance has all of it, whatever its share of the other limits.
        assert_eq!(charge.charge.algorithm.allowance(), 1_000);
        let Step::NeedBody(need) = local.resume(&said(true, false)) else { panic!("no body is asked for") };
        assert!(matches!(need.resume(Collected::Whole(b"{}")), Step::Call(_)));
    }

    #[test]
    fn above_the_limit_the_answer_is_429_and_no_command_goes_out() {
        for (admitted, contended, retry_after) in [(false, false, "2"), (true, true, "1")] {
            let Step::Local(local) = begun(r#""body": "json""#, Body::Bytes(10)) else { panic!("not counted") };
            let Step::Decide(decision) = local.resume(&said(admitted, contended)) else { panic!("not decided") };
            assert_eq!(decision.report.outcome, Outcome::HoldLimited);
            assert!(decision.claimed.is_none());
            let Action::Answer(answer) = decision.action else { panic!("not answered") };
            assert_eq!(answer.status, 429);
            let waits: Vec<_> = answer.headers.iter().filter(|(name, _)| name == "retry-after").collect();
            assert_eq!(waits, [&("retry-after".into(), retry_after.to_owned())]);
        }
    }

    #[test]
    fn what_is_not_held_is_not_counted() {
        assert!(matches!(begun("", Body::Absent), Step::Call(_)));
        assert!(matches!(begun("", Body::Bytes(0)), Step::Call(_)));
        assert!(matches!(begun(r#""over_max": "unfingerprinted""#, Body::Bytes(1 << 20)), Step::Call(_)));
        assert!(matches!(begun(r#""body": "ignored""#, Body::Unknown), Step::Call(_)));
        assert!(matches!(begun(r#""hold_limit": false"#, Body::Unknown), Step::NeedBody(_)));
    }
}
