//! How a call ends: with the verdicts of its limits, with what became of its claims, or by the policy's failure modes.

use std::sync::Arc;

use super::Call;
use super::reply::ClaimReply;
use crate::algorithm::{Algorithm, Verdict};
use crate::answer;
use crate::claim::{Admission, ClaimKind, Granted, HeldClaim, HeldSlot, Kept};
use crate::decision::{Action, Claimed, DecidedBy, Decision, Header, LimitVerdict, Outcome, Report, UpstreamRequest};
use crate::engine::{Step, Wait};
use crate::lease::{Lease, LeaseCall, LeasedClaim};
use crate::local_call::LocalCall;
use crate::policy::{ClaimFailure, FailureMode, Idempotency, LimitId, Policy};
use crate::rate_limit_fields::{RateLimitFields, fields, fields_of};

impl Call {
    /// The store did not decide.
    pub(crate) fn failed(self) -> Step {
        match self.claim_failure() {
            Some(ClaimFailure::Deny) => self.unavailable(),
            Some(ClaimFailure::Local) => Step::Local(LocalCall::new(self)),
            Some(ClaimFailure::Allow) | None => self.limits_failed(),
        }
    }

    /// What the policy says of its claims when the store cannot take them: the strictest, where there are several.
    pub(crate) fn claim_failure(&self) -> Option<ClaimFailure> {
        let policy = self.policy()?;
        let modes = self.asks().iter().filter_map(|ask| match ask.kind {
            ClaimKind::Idempotency => Some(policy.idempotency.as_deref()?.on_store_failure),
            ClaimKind::Lock => Some(policy.lock.as_deref()?.on_store_failure),
        });
        modes.max()
    }

    /// 503: no request of this policy passes without its claim.
    fn unavailable(self) -> Step {
        let base = self.problem_base();
        let report = self.report(None, Outcome::Unavailable, DecidedBy::FailureMode, Vec::new());
        self.ended(answer::store_unavailable(base), report)
    }

    fn problem_base(&self) -> &str {
        let policy = self.policy();
        let idempotency = policy.and_then(|policy| policy.idempotency.as_deref()).map(|rules| &rules.problem_base);
        let lock = policy.and_then(|policy| policy.lock.as_deref()).map(|rules| &rules.problem_base);
        idempotency.or(lock).map_or("", String::as_str)
    }

    fn limits_failed(self) -> Step {
        let policies = Arc::clone(&self.policies);
        let Some(policy) = policies.applied(self.policy) else { return self.decided(&[], DecidedBy::Policy) };
        let limits = self.charges_of(policy).map(|(_, limit)| limit);
        let enforced: Vec<&str> = limits.filter(|limit| limit.enforce).map(|limit| limit.label.as_str()).collect();
        let outcome = match policy.limits_on_store_failure {
            FailureMode::Local if !self.counted.is_empty() => return Step::Local(LocalCall::new(self)),
            // Limits that only measure never turn a request away.
            FailureMode::Deny if !enforced.is_empty() => Outcome::Unavailable,
            FailureMode::Local | FailureMode::Allow | FailureMode::Deny => Outcome::Allowed,
        };
        let report = self.report(None, outcome, DecidedBy::FailureMode, Vec::new());
        let action = match outcome {
            Outcome::Unavailable => answer::unavailable(&policies.custom(report.policy).unavailable, &enforced),
            _ => Action::Forward { response_headers: Vec::new() },
        };
        self.ended(action, report)
    }

    /// Ends without holding anything; what an unanswered command may have taken is given back.
    fn ended(&self, action: Action, report: Report) -> Step {
        let forwards = matches!(action, Action::Forward { .. });
        let claimed = self.unclaimed(forwards);
        Step::Decide(Decision { claimed, ..Decision::new(action, report) })
    }

    /// A request that holds nothing: what an unanswered command may have taken is given back.
    fn unclaimed(&self, forwards: bool) -> Option<Box<Claimed>> {
        self.asked.as_deref()?;
        let upstream = if forwards { self.unprotected() } else { UpstreamRequest::default() };
        Some(Box::new(Claimed { upstream, lease: None, releases: self.abandoned().into_iter().collect() }))
    }

    /// The command that gives back what this request may hold, if it may hold anything.
    pub fn abandoned(&self) -> Option<LeaseCall> {
        self.asked.as_deref().filter(|asked| asked.may_hold)?;
        Some(self.lease(&[])?.abandon())
    }

    /// The client went away while the command was on its way.
    pub fn abandon(mut self) -> Option<LeaseCall> {
        self.asked.as_deref_mut()?.may_hold = true;
        self.abandoned()
    }

    /// Ends the decision with what each counted limit said.
    pub(crate) fn decided(self, verdicts: &[LimitVerdict], decided_by: DecidedBy) -> Step {
        Step::Decide(self.by_limits(verdicts, decided_by, &[]))
    }

    fn by_limits(&self, verdicts: &[LimitVerdict], decided_by: DecidedBy, granted: &[Granted]) -> Decision {
        let policies = Arc::clone(&self.policies);
        let Some(policy) = policies.applied(self.policy) else {
            let action = Action::Forward { response_headers: Vec::new() };
            return Decision::new(action, Report::uncounted(None, Outcome::Allowed));
        };
        let (denials, shadow_denials) = denials(policy, verdicts);
        // Of several that wait equally long, the first of the file.
        let denying = denials.iter().rev().max_by_key(|one| one.verdict.retry_us).map(|one| one.limit);
        let denying = denying.and_then(|index| policy.limits.get(index)).map(|limit| limit.id);
        let outcome = if denying.is_some() { Outcome::Denied } else { Outcome::Allowed };
        let report = self.report(denying, outcome, decided_by, shadow_denials);
        let RateLimitFields { headers, reset_in_s } = fields(policies.answers.headers, policy, verdicts);
        let action = match denying {
            None => Action::Forward { response_headers: headers },
            Some(_) => answer::too_many_requests(&policies.custom(report.policy).denied, policy, verdicts, headers),
        };
        let decision = Decision { reset_in_s, ..Decision::new(action, report) };
        let claimed = match (denying, decided_by) {
            (None, DecidedBy::Store) => self.claimed(granted),
            (_, _) => self.unclaimed(denying.is_none()),
        };
        Decision { claimed, ..decision }
    }

    /// A request that holds what it asked for.
    fn claimed(&self, granted: &[Granted]) -> Option<Box<Claimed>> {
        self.asked.as_deref()?;
        let (upstream, lease) = (self.protected(granted), self.lease(granted));
        Some(Box::new(Claimed { upstream, lease, releases: Vec::new() }))
    }

    /// Goes on with what the store says of the claims.
    pub(super) fn admitted(self, reply: ClaimReply) -> Step {
        let ClaimReply { admission, verdicts, replay } = reply;
        let told = replay.and_then(|verdict| self.replay_fields(verdict));
        let step = match admission {
            Admission::Granted { claims, .. } => Step::Decide(self.by_limits(&verdicts, DecidedBy::Store, &claims)),
            Admission::Denied => Step::Decide(self.by_limits(&verdicts, DecidedBy::Store, &[])),
            Admission::Busy { claim, remaining_us } => self.busy(claim, remaining_us),
            other => self.known(&other, replay.map_or(0, |verdict| verdict.retry_us)),
        };
        match told {
            Some(told) => with_fields(step, told),
            None => step,
        }
    }

    /// What the client is told of the limit that answers from records are charged to.
    fn replay_fields(&self, verdict: Verdict) -> Option<RateLimitFields> {
        let limit = self.policy()?.idempotency.as_deref()?.replay_limit.as_ref()?;
        Some(fields_of(self.policies.answers.headers, limit, verdict))
    }

    /// Another request holds it: wait for that to end, if the policy says so, else answer.
    fn busy(mut self, claim: usize, remaining_us: u64) -> Step {
        if let Some(asked) = self.asked.as_deref_mut().filter(|asked| asked.wait_left_us > 0) {
            let after_us = asked.next_wait_us();
            return Step::WaitUntil(Wait { after_us, call: self });
        }
        let policies = Arc::clone(&self.policies);
        let policy = policies.applied(self.policy);
        let kind = self.asks().get(claim).map(|ask| ask.kind);
        let idempotency = policy.and_then(|policy| policy.idempotency.as_deref());
        let (outcome, action) = match (kind, idempotency) {
            (Some(ClaimKind::Idempotency), Some(rules)) => (Outcome::InFlight, answer::in_flight(rules, remaining_us)),
            _ => (Outcome::Locked, answer::locked(self.problem_base(), remaining_us)),
        };
        self.answered(outcome, action)
    }

    /// The store knows the key: answer by what it knows.
    fn known(self, admission: &Admission, replay_retry_us: u64) -> Step {
        let policies = Arc::clone(&self.policies);
        let rules = policies.applied(self.policy).and_then(|policy| policy.idempotency.as_deref());
        let Some(rules) = rules else { return self.failed() };
        let (outcome, action) = match admission {
            Admission::Mismatch { .. } => (Outcome::Mismatch, answer::key_reused(rules)),
            Admission::Unknown { .. } => (Outcome::OutcomeUnknown, answer::outcome_unknown(rules)),
            Admission::Limited => (Outcome::ReplayLimited, answer::replay_limited(rules, replay_retry_us)),
            Admission::Kept(kept) => return self.kept(rules, kept),
            // Never taken for absent, and never for finished.
            _ => return self.failed(),
        };
        self.answered(outcome, action)
    }

    /// It has run: the client gets what was kept of it.
    fn kept(self, rules: &Idempotency, kept: &Kept) -> Step {
        let client = self.asked.as_deref().and_then(|asked| asked.accept_encoding.as_deref());
        match answer::of_kept(rules, kept, client) {
            Some((outcome, action)) => self.answered(outcome, action),
            // Nothing of ours: never taken for absent.
            None => self.failed(),
        }
    }

    fn answered(self, outcome: Outcome, action: Action) -> Step {
        let report = self.report(None, outcome, DecidedBy::Store, Vec::new());
        self.ended(action, report)
    }

    pub(super) fn report(
        &self,
        limit: Option<LimitId>,
        outcome: Outcome,
        decided_by: DecidedBy,
        shadow_denials: Vec<LimitId>,
    ) -> Report {
        let own = self.policy().and_then(Policy::reported);
        let policy = limit.map(|limit| limit.policy).or(own);
        Report { policy, limit: limit.map(|limit| limit.limit), outcome, decided_by, shadow_denials }
    }

    /// What the request holds when these claims are granted: without grants, what an unanswered command may have taken.
    fn lease(&self, granted: &[Granted]) -> Option<Lease> {
        let (asked, policy) = (self.asked.as_deref()?, self.policy()?);
        let claims = asked.asks.iter().enumerate().filter_map(|(position, ask)| {
            let rules = match ask.kind {
                ClaimKind::Idempotency => policy.idempotency.as_deref()?.lease,
                ClaimKind::Lock => policy.lock.as_deref()?.lease,
            };
            let grant = granted.get(position);
            let held = HeldClaim {
                record_key: ask.record_key.clone(),
                fence_key: ask.fence_key.clone(),
                fence: grant.map(|grant| grant.fence),
                lease_us: ask.lease_us,
                ttl_ms: ask.ttl_ms,
            };
            let attempt = grant.map_or(0, |grant| grant.attempt);
            Some(LeasedClaim { kind: ask.kind, held, attempt, rules, fingerprint: ask.fingerprint.clone() })
        });
        let claims: Vec<LeasedClaim> = claims.collect();
        let slots = self.charges_of(policy).filter_map(|(counted, limit)| {
            let Algorithm::Concurrency(rule) = &limit.grant(counted.override_index).algorithm else { return None };
            let lease_us = rule.lease_us();
            Some(HeldSlot { key: counted.store_key.clone(), lease_us })
        });
        let slots: Vec<HeldSlot> = slots.collect();
        let holds = !claims.is_empty() || !slots.is_empty();
        holds.then(|| Lease {
            policies: Arc::clone(&self.policies),
            policy: self.policy,
            owner: asked.owner,
            claims,
            slots,
        })
    }

    /// How the request goes on with its claims granted.
    fn protected(&self, granted: &[Granted]) -> UpstreamRequest {
        let Some(policy) = self.policy() else { return UpstreamRequest::default() };
        let mut set: Vec<Header> = Vec::new();
        for (ask, grant) in self.asks().iter().zip(granted) {
            let fence = format!("{:016}", grant.fence);
            match (ask.kind, policy.idempotency.as_deref(), policy.lock.as_deref()) {
                (ClaimKind::Idempotency, Some(rules), _) => {
                    set.push((rules.attempt_header.clone().into(), grant.attempt.to_string()));
                    set.push((rules.fence_header.clone().into(), fence));
                }
                // The lock protects the resource, so its token is the one to check where both use the same header.
                (ClaimKind::Lock, _, Some(rules)) => {
                    set.retain(|(name, _)| *name != rules.fence_header);
                    set.push((rules.fence_header.clone().into(), fence));
                }
                _ => {}
            }
        }
        UpstreamRequest { set, once: !granted.is_empty(), ..self.unprotected() }
    }

    /// How the request goes on without claims.
    fn unprotected(&self) -> UpstreamRequest {
        let rules = self.policy().and_then(|policy| policy.idempotency.as_deref());
        let hidden = rules.filter(|rules| !rules.forward_key).map(|rules: &Idempotency| rules.header.clone());
        UpstreamRequest { removed: hidden.into_iter().collect(), ..UpstreamRequest::default() }
    }
}

/// An answer that tells of a limit, too.
fn with_fields(mut step: Step, told: RateLimitFields) -> Step {
    if let Step::Decide(decision) = &mut step
        && let Action::Answer(answer) = &mut decision.action
    {
        answer.headers.extend(told.headers);
        decision.reset_in_s = told.reset_in_s;
    }
    step
}

/// The limits that deny, and those that only measure but would have denied.
fn denials<'v>(policy: &Policy, verdicts: &'v [LimitVerdict]) -> (Vec<&'v LimitVerdict>, Vec<LimitId>) {
    let denying = verdicts.iter().filter(|one| !one.verdict.admitted);
    let (enforced, shadow): (Vec<_>, Vec<_>) =
        denying.partition(|one| policy.limits.get(one.limit).is_some_and(|limit| limit.enforce));
    (enforced, shadow.into_iter().filter_map(|one| policy.limits.get(one.limit)).map(|limit| limit.id).collect())
}
