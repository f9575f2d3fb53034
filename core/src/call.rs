//! A decision that waits for the store: its one command, and what each reply or failure leads to.

use std::sync::Arc;

use crate::algorithm::{Charge, Verdict};
use crate::answer;
use crate::decision::{Action, DecidedBy, Decision, LimitVerdict, Outcome, Report};
use crate::engine::{Counted, Step};
use crate::local_call::LocalCall;
use crate::policy::{FailureMode, Limit, LimitId, Policy, PolicySet};
use crate::rate_limit_fields::{RateLimitFields, fields};
use crate::resp::{Reply, push_array_head, push_bulk};
use crate::script;
use crate::store::{Refusal, StoreFailure};

/// One decision in flight.
#[derive(Debug)]
pub struct Call {
    policies: Arc<PolicySet>,
    policy: usize,
    counted: Vec<Counted>,
    form: Form,
}

/// How the script is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// By its SHA-1.
    Cached,
    /// By its SHA-1 again: another call on its way before this one brings the text.
    CachedAgain,
    /// By its text, once, after the store said that it does not know the SHA-1.
    Whole { spared: bool },
}

impl Call {
    pub(crate) fn new(policies: Arc<PolicySet>, policy: usize, counted: Vec<Counted>) -> Call {
        Call { policies, policy, counted, form: Form::Cached }
    }

    /// Appends the command, marked with `tag`, which the reply echoes.
    pub fn write(&self, tag: &str, out: &mut Vec<u8>) {
        let (command, script): (&[u8], &str) = match self.form {
            Form::Cached | Form::CachedAgain => (b"EVALSHA", script::DECIDE.sha1),
            Form::Whole { .. } => (b"EVAL", script::DECIDE.text),
        };
        let keys = self.counted.len();
        let arguments = keys.saturating_mul(script::ARGUMENTS_PER_CHARGE);
        push_array_head(arguments.saturating_add(keys).saturating_add(4), out);
        push_bulk(command, out);
        push_bulk(script.as_bytes(), out);
        push_bulk(itoa::Buffer::new().format(keys).as_bytes(), out);
        self.counted.iter().for_each(|one| push_bulk(one.store_key.as_bytes(), out));
        push_bulk(tag.as_bytes(), out);
        let charges = self.policy().into_iter().flat_map(|policy| self.charges_of(policy));
        for (counted, limit) in charges {
            out.extend_from_slice(&limit.script_head);
            push_bulk(itoa::Buffer::new().format(counted.cost).as_bytes(), out);
            out.extend_from_slice(&limit.grant(counted.override_index).script_numbers);
        }
    }

    /// What counts the request, with its limit.
    fn charges_of<'c>(&'c self, policy: &'c Policy) -> impl Iterator<Item = (&'c Counted, &'c Limit)> {
        self.counted.iter().filter_map(|one| Some((one, policy.limits.get(one.limit)?)))
    }

    /// The keys that this decision counts under.
    pub fn counted(&self) -> &[Counted] {
        &self.counted
    }

    /// What the decision asks of each limit in the store.
    pub fn charges(&self) -> Vec<Charge<'_>> {
        let charges = self.policy().into_iter().flat_map(|policy| self.charges_of(policy));
        charges
            .map(|(counted, limit)| Charge {
                algorithm: &limit.grant(counted.override_index).algorithm,
                cost: counted.cost,
                enforce: limit.enforce,
            })
            .collect()
    }

    /// Goes on with the reply, or without one. A reply of another shape than the script's is a failure of the store.
    pub fn resume(self, result: Result<Reply, StoreFailure>) -> Step {
        match result.map(|reply| verdicts(&reply, &self.counted)) {
            Ok(Some(verdicts)) => self.decided(&verdicts, DecidedBy::Store),
            Ok(None) => self.failed(),
            Err(StoreFailure::Refused(Refusal::NoScript)) => self.not_cached(),
            Err(_) => self.failed(),
        }
    }

    /// Nothing has run, so the same arguments may go out again; but a store that forgets what it was just given fails.
    fn not_cached(self) -> Step {
        let spared = match self.form {
            Form::Cached => false,
            Form::CachedAgain => true,
            Form::Whole { .. } => return self.failed(),
        };
        Step::Call(Call { form: Form::Whole { spared }, ..self })
    }

    /// Whether the command carries the script's text.
    pub fn is_upload(&self) -> bool {
        matches!(self.form, Form::Whole { .. })
    }

    /// Another call brings the text: name the script by its SHA-1 once more. Does nothing a second time.
    pub fn spare_upload(self) -> Call {
        match self.form {
            Form::Whole { spared: false } => Call { form: Form::CachedAgain, ..self },
            _ => self,
        }
    }

    fn failed(self) -> Step {
        let policies = Arc::clone(&self.policies);
        let Some(policy) = policies.applied(self.policy) else { return self.decided(&[], DecidedBy::Policy) };
        let limits = self.charges_of(policy).map(|(_, limit)| limit);
        let enforced: Vec<&str> = limits.filter(|limit| limit.enforce).map(|limit| limit.label.as_str()).collect();
        let outcome = match policy.limits_on_store_failure {
            FailureMode::Local => return Step::Local(LocalCall::new(self)),
            // Limits that only measure never turn a request away.
            FailureMode::Deny if !enforced.is_empty() => Outcome::Unavailable,
            FailureMode::Allow | FailureMode::Deny => Outcome::Allowed,
        };
        let report = self.report(None, outcome, DecidedBy::FailureMode, Vec::new());
        let action = match outcome {
            Outcome::Unavailable => answer::unavailable(&policies.custom(report.policy).unavailable, &enforced),
            _ => Action::Forward { response_headers: Vec::new() },
        };
        Step::Decide(Decision::new(action, report))
    }

    /// Ends the decision with what each counted limit said.
    pub(crate) fn decided(self, verdicts: &[LimitVerdict], decided_by: DecidedBy) -> Step {
        let policies = Arc::clone(&self.policies);
        let Some(policy) = policies.applied(self.policy) else {
            let action = Action::Forward { response_headers: Vec::new() };
            return Step::Decide(Decision::new(action, Report::uncounted(None, Outcome::Allowed)));
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
        Step::Decide(Decision { action, reset_in_s, report })
    }

    fn report(
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

    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.policies.applied(self.policy)
    }
}

/// The limits that deny, and those that only measure but would have denied.
fn denials<'v>(policy: &Policy, verdicts: &'v [LimitVerdict]) -> (Vec<&'v LimitVerdict>, Vec<LimitId>) {
    let denying = verdicts.iter().filter(|one| !one.verdict.admitted);
    let (enforced, shadow): (Vec<_>, Vec<_>) =
        denying.partition(|one| policy.limits.get(one.limit).is_some_and(|limit| limit.enforce));
    (enforced, shadow.into_iter().filter_map(|one| policy.limits.get(one.limit)).map(|limit| limit.id).collect())
}

/// Integers per limit in the script's reply.
const NUMBERS_PER_LIMIT: usize = 4;

/// The verdicts in the script's reply: the tag, then four integers for each limit.
fn verdicts(reply: &Reply, counted: &[Counted]) -> Option<Vec<LimitVerdict>> {
    let Reply::Array(elements) = reply else { return None };
    let (_tag, numbers) = elements.split_first()?;
    if numbers.len() != counted.len().checked_mul(NUMBERS_PER_LIMIT)? {
        return None;
    }
    let numbers = numbers.iter().map(whole_number).collect::<Option<Vec<u64>>>()?;
    let rows = numbers.chunks_exact(NUMBERS_PER_LIMIT).zip(counted);
    rows.map(|(row, counted)| Some(counted.verdict(verdict(row)?))).collect()
}

fn whole_number(element: &Reply) -> Option<u64> {
    match element {
        Reply::Integer(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn verdict(row: &[u64]) -> Option<Verdict> {
    let [admitted @ (0 | 1), remaining, reset_us, retry_us] = *row else { return None };
    Some(Verdict { admitted: admitted == 1, remaining, reset_us, retry_us })
}
