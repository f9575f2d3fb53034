//! How a call ends: with the verdicts of its limits, with what became of its claims, or by the policy's failure modes.

use std::sync::Arc;

use super::reply::ClaimReply;
use super::{Call, Form};
use crate::algorithm::{Algorithm, Verdict};
use crate::answer;
use crate::claim::{Admission, ClaimKind, Granted, HeldClaim, HeldSlot, Kept, Owner};
use crate::decision::{Action, Claimed, DecidedBy, Decision, Header, LimitVerdict, Outcome, Report, UpstreamRequest};
use crate::engine::{Counted, Step, Wait};
use crate::lease::{Keeper, Lease, LeaseCall, LeasedClaim};
use crate::local_call::LocalCall;
use crate::local_claims::{LocalClaimCall, Taken};
use crate::policy::{ClaimFailure, FailureMode, Idempotency, LimitId, Policy};
use crate::rate_limit_fields::{RateLimitFields, fields, fields_of};

impl Call {
    /// The store did not decide.
    pub(crate) fn failed(self) -> Step {
        match self.claim_failure() {
            Some(ClaimFailure::Deny) => self.unavailable(),
            // Whom nothing tells apart from others, the table would take for them.
            Some(ClaimFailure::Local) if self.owner() == Owner::NONE => self.unavailable(),
            Some(ClaimFailure::Local) => Step::LocalClaims(LocalClaimCall::take(self)),
            Some(ClaimFailure::Allow) | None => self.limits_failed(),
        }
    }

    /// Goes on with what the instance's own table says of the claims that the store could not take.
    pub(crate) fn taken(mut self, taken: Taken) -> Step {
        match taken {
            Taken::Granted(granted) => {
                self.asked.iter_mut().for_each(|asked| asked.local = Some(granted.clone()));
                self.limits_failed()
            }
            Taken::Answered(admission) => self.answered_locally(&admission),
            Taken::NoRoom => self.unavailable(),
        }
    }

    /// Goes on with what the table says of the claims that the store has granted.
    pub(crate) fn adopted(mut self, granted: &[Granted], verdicts: &[LimitVerdict], taken: Taken) -> Step {
        match taken {
            Taken::Granted(_) => Step::Decide(self.by_limits(verdicts, DecidedBy::Store, granted, Keeper::Both)),
            Taken::NoRoom => Step::Decide(self.by_limits(verdicts, DecidedBy::Store, granted, Keeper::Store)),
            Taken::Answered(admission) => {
                // What the store granted is given back.
                self.asked.iter_mut().for_each(|asked| asked.may_hold = true);
                self.answered_locally(&admission)
            }
        }
    }

    fn answered_locally(self, admission: &Admission) -> Step {
        match admission {
            Admission::Busy { claim, remaining_us } => self.busy(*claim, *remaining_us, DecidedBy::Local),
            Admission::Corrupt { .. } => self.unavailable(),
            other => self.known(other, 0, DecidedBy::Local),
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
        let enforced = || self.charges_of(policy).map(|(_, limit)| limit).filter(|limit| limit.enforce);
        let outcome = match policy.limits_on_store_failure {
            FailureMode::Local if !self.counted.is_empty() => return Step::Local(LocalCall::new(self)),
            // Limits that only measure never turn a request away.
            FailureMode::Deny if enforced().next().is_some() => Outcome::Unavailable,
            FailureMode::Local | FailureMode::Allow | FailureMode::Deny => Outcome::Allowed,
        };
        let is_local = self.asked.as_deref().is_some_and(|asked| asked.local.is_some());
        let is_local = is_local && outcome == Outcome::Allowed;
        let decided_by = if is_local { DecidedBy::Local } else { DecidedBy::FailureMode };
        let report = self.report(None, outcome, decided_by, Vec::new());
        let action = match outcome {
            Outcome::Unavailable => {
                let labels: Vec<&str> = enforced().map(|limit| limit.label.as_str()).collect();
                answer::unavailable(&policies.custom(report.policy).unavailable, &labels)
            }
            _ => Action::Forward { response_headers: Vec::new() },
        };
        self.ended(action, report)
    }

    /// Ends without holding anything; what an unanswered command may have taken is given back.
    fn ended(&self, action: Action, report: Report) -> Step {
        let forwards = matches!(action, Action::Forward { .. });
        let claimed = self.without_store(forwards);
        Step::Decide(Decision { claimed, ..Decision::new(action, report) })
    }

    /// A request that holds nothing in the store: what an unanswered command may have taken is given back, and so is what
    /// the instance granted by itself unless the request passes.
    fn without_store(&self, forwards: bool) -> Option<Box<Claimed>> {
        let local = self.asked.as_deref()?.local.as_deref();
        let lease = local.and_then(|granted| self.lease(granted, &[], Keeper::Instance));
        let mut releases: Vec<LeaseCall> = self.abandoned().into_iter().collect();
        let claimed = match (forwards, lease) {
            (true, lease) => {
                let upstream = self.protected(local.unwrap_or_default(), Keeper::Instance);
                Claimed { upstream, lease, releases }
            }
            (false, lease) => {
                releases.extend(lease.map(|lease| lease.abandon()));
                Claimed { releases, ..Claimed::default() }
            }
        };
        Some(Box::new(claimed))
    }

    /// The command that gives back what this request may hold, if it may hold anything.
    pub fn abandoned(&self) -> Option<LeaseCall> {
        self.asked.as_deref().filter(|asked| asked.may_hold)?;
        Some(self.lease(&[], &[], Keeper::Store)?.abandon())
    }

    /// Time after which nothing that the request asked for is certainly its own any more, in microseconds.
    pub fn lapses_after_us(&self) -> u64 {
        if self.asked.is_none() {
            return u64::MAX;
        }
        let slots = self.policy().into_iter().flat_map(|policy| self.slots(policy)).map(|(_, lease_us)| lease_us);
        self.asks().iter().map(|ask| ask.lease_us).chain(slots).min().unwrap_or(u64::MAX)
    }

    /// The client went away while the command was on its way.
    pub fn abandon(mut self) -> Option<LeaseCall> {
        self.asked.as_deref_mut()?.may_hold = true;
        self.abandoned()
    }

    /// Ends the decision with what each counted limit said.
    pub(crate) fn decided(self, verdicts: &[LimitVerdict], decided_by: DecidedBy) -> Step {
        Step::Decide(self.by_limits(verdicts, decided_by, &[], Keeper::Store))
    }

    fn by_limits(
        &self,
        verdicts: &[LimitVerdict],
        decided_by: DecidedBy,
        granted: &[Granted],
        keeper: Keeper,
    ) -> Decision {
        let policies = &*self.policies;
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
            (None, DecidedBy::Store) => self.claimed(granted, verdicts, keeper),
            (_, _) => self.without_store(denying.is_none()),
        };
        Decision { claimed, ..decision }
    }

    /// A request that holds what it asked for.
    fn claimed(&self, granted: &[Granted], verdicts: &[LimitVerdict], keeper: Keeper) -> Option<Box<Claimed>> {
        self.asked.as_deref()?;
        let (upstream, lease) = (self.protected(granted, keeper), self.lease(granted, verdicts, keeper));
        Some(Box::new(Claimed { upstream, lease, releases: Vec::new() }))
    }

    /// Goes on with what the store says of the claims.
    pub(super) fn admitted(self, reply: ClaimReply) -> Step {
        let ClaimReply { admission, verdicts, replay } = reply;
        let told = replay.and_then(|verdict| self.replay_fields(verdict));
        let step = match admission {
            Admission::Granted { claims, .. } if self.claim_failure() == Some(ClaimFailure::Local) => {
                Step::LocalClaims(LocalClaimCall::adopt(self, claims, verdicts))
            }
            Admission::Granted { claims, .. } => {
                Step::Decide(self.by_limits(&verdicts, DecidedBy::Store, &claims, Keeper::Store))
            }
            Admission::Denied => Step::Decide(self.by_limits(&verdicts, DecidedBy::Store, &[], Keeper::Store)),
            Admission::Busy { claim, remaining_us } => self.busy(claim, remaining_us, DecidedBy::Store),
            other => self.known(&other, replay.map_or(0, |verdict| verdict.retry_us), DecidedBy::Store),
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
    fn busy(mut self, claim: usize, remaining_us: u64, decided_by: DecidedBy) -> Step {
        let policies = Arc::clone(&self.policies);
        let policy = policies.applied(self.policy);
        let kind = self.asks().get(claim).map(|ask| ask.kind);
        let idempotency = policy.and_then(|policy| policy.idempotency.as_deref());
        let lock = policy.and_then(|policy| policy.lock.as_deref());
        let (wait_us, outcome, action) = match (kind, idempotency, lock) {
            (Some(ClaimKind::Idempotency), Some(rules), _) => {
                (rules.wait_us, Outcome::InFlight, answer::in_flight(rules, remaining_us))
            }
            (Some(ClaimKind::Lock), _, Some(rules)) => {
                (rules.wait_us, Outcome::Locked, answer::locked(&rules.problem_base, remaining_us))
            }
            _ => return self.failed(),
        };
        match self.asked.as_deref_mut().and_then(|asked| asked.next_wait_us(wait_us)) {
            Some(after_us) => Step::WaitUntil(Wait { after_us, call: Call { form: Form::Cached, ..self } }),
            None => self.answered(outcome, action, decided_by),
        }
    }

    /// The key is known: answer by what is known.
    fn known(self, admission: &Admission, replay_retry_us: u64, decided_by: DecidedBy) -> Step {
        let policies = Arc::clone(&self.policies);
        let rules = policies.applied(self.policy).and_then(|policy| policy.idempotency.as_deref());
        let Some(rules) = rules else { return self.failed() };
        let (outcome, action) = match admission {
            Admission::Mismatch { .. } => (Outcome::Mismatch, answer::key_reused(rules)),
            Admission::Unknown { .. } => (Outcome::OutcomeUnknown, answer::outcome_unknown(rules)),
            Admission::Limited => (Outcome::ReplayLimited, answer::replay_limited(rules, replay_retry_us)),
            Admission::Kept(kept) => return self.kept(rules, kept, decided_by),
            // Never taken for absent, and never for finished.
            _ => return self.failed(),
        };
        self.answered(outcome, action, decided_by)
    }

    /// It has run: the client gets what was kept of it.
    fn kept(self, rules: &Idempotency, kept: &Kept, decided_by: DecidedBy) -> Step {
        let client = self.asked.as_deref().and_then(|asked| asked.accept_encoding.as_deref());
        match answer::of_kept(rules, kept, client) {
            Some((outcome, action)) => self.answered(outcome, action, decided_by),
            // Nothing of ours: never taken for absent.
            None => self.failed(),
        }
    }

    fn answered(self, outcome: Outcome, action: Action, decided_by: DecidedBy) -> Step {
        let report = self.report(None, outcome, decided_by, Vec::new());
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

    /// What the request holds when these claims are granted and its limits say this: without either, what an unanswered
    /// command may have taken.
    fn lease(&self, granted: &[Granted], verdicts: &[LimitVerdict], keeper: Keeper) -> Option<Lease> {
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
        // A limit that only measures lets requests pass without a slot.
        let has_none = |slot: &Counted| verdicts.iter().any(|one| one.limit == slot.limit && !one.verdict.admitted);
        // The table knows of no slots.
        let in_store = keeper != Keeper::Instance;
        let slots = self.slots(policy).filter(|(slot, _)| in_store && !has_none(slot));
        let slots = slots.map(|(slot, lease_us)| HeldSlot { key: slot.store_key.clone(), lease_us });
        let slots: Vec<HeldSlot> = slots.collect();
        let holds = !claims.is_empty() || !slots.is_empty();
        holds.then(|| Lease {
            policies: Arc::clone(&self.policies),
            policy: self.policy,
            owner: asked.owner,
            claims,
            slots,
            keeper,
        })
    }

    /// The slots that the request asks for.
    fn slots<'c>(&'c self, policy: &'c Policy) -> impl Iterator<Item = (&'c Counted, u64)> {
        self.charges_of(policy).filter_map(|(counted, limit)| match &limit.grant(counted.override_index).algorithm {
            Algorithm::Concurrency(rule) => Some((counted, rule.lease_us())),
            _ => None,
        })
    }

    /// How the request goes on with its claims granted. What one instance grants has no fencing token: others do not
    /// know of it.
    fn protected(&self, granted: &[Granted], keeper: Keeper) -> UpstreamRequest {
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
        if keeper == Keeper::Instance {
            set.retain(|(name, _)| !self.fence_headers().any(|fence| fence == name));
        }
        UpstreamRequest { set, once: !granted.is_empty(), ..self.unprotected() }
    }

    fn fence_headers(&self) -> impl Iterator<Item = &String> {
        let idempotency = self.policy().and_then(|policy| policy.idempotency.as_deref());
        let lock = self.policy().and_then(|policy| policy.lock.as_deref());
        let of_lock = lock.map(|rules| &rules.fence_header);
        idempotency.map(|rules| &rules.fence_header).into_iter().chain(of_lock)
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
