//! A decision that waits for the store: its one command, and what each reply or failure leads to.

mod ending;
mod reply;

use std::sync::Arc;

use crate::admission::{self, Asked};
use crate::algorithm::Charge;
use crate::answer;
use crate::claim::{self, Ask, Owner};
use crate::decision::{DecidedBy, Decision, Outcome};
use crate::engine::{Collected, Counted, Step};
use crate::idempotency::fingerprint::BodyHasher;
use crate::policy::{Limit, Policy, PolicySet};
use crate::resp::{Reply, push_bulk, push_number};
use crate::script;
use crate::store::{Refusal, StoreFailure};
use reply::{claim_reply, verdicts};

/// One decision in flight.
#[derive(Debug)]
pub struct Call {
    policies: Arc<PolicySet>,
    policy: usize,
    counted: Vec<Counted>,
    /// What it asks for beside its limits.
    asked: Option<Box<Asked>>,
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
    pub(crate) fn new(
        policies: Arc<PolicySet>,
        policy: usize,
        counted: Vec<Counted>,
        asked: Option<Box<Asked>>,
    ) -> Call {
        Call { policies, policy, counted, asked, form: Form::Cached }
    }

    /// Appends the command, marked with `tag`, which the reply echoes.
    pub fn write(&self, tag: &str, out: &mut Vec<u8>) {
        let asks = self.asks();
        let script = if asks.is_empty() { script::DECIDE } else { script::ADMIT };
        let replay = self.replay();
        let charges = self.counted.len().saturating_add(usize::from(replay.is_some()));
        let keys = charges.saturating_add(asks.len().saturating_mul(2));
        let mut arguments = charges.saturating_mul(script::ARGUMENTS_PER_CHARGE).saturating_add(1);
        if !asks.is_empty() {
            arguments = arguments.saturating_add(asks.len().saturating_mul(Ask::ARGUMENTS)).saturating_add(2);
        }
        script.push_call(self.is_upload(), keys, arguments, out);
        self.counted.iter().for_each(|one| push_bulk(one.store_key.as_bytes(), out));
        replay.iter().for_each(|(counted, _)| push_bulk(counted.store_key.as_bytes(), out));
        asks.iter().for_each(|ask| ask.write_keys(out));
        push_bulk(tag.as_bytes(), out);
        let limits = self.policy().into_iter().flat_map(|policy| self.charges_of(policy));
        limits.chain(replay).for_each(|(counted, limit)| self.write_charge(counted, limit, out));
        self.write_asks(asks, out);
    }

    fn write_charge(&self, counted: &Counted, limit: &Limit, out: &mut Vec<u8>) {
        out.extend_from_slice(&limit.script_head);
        push_number(counted.cost, out);
        limit.grant(counted.override_index).write_numbers(self.owner().as_bytes(), out);
    }

    fn write_asks(&self, asks: &[Ask], out: &mut Vec<u8>) {
        let Some(asked) = self.asked.as_deref().filter(|_| !asks.is_empty()) else { return };
        asks.iter().for_each(|ask| ask.write_arguments(&asked.owner, out));
        push_bulk(itoa::Buffer::new().format(self.counted.len()).as_bytes(), out);
        push_bulk(itoa::Buffer::new().format(asks.len()).as_bytes(), out);
    }

    fn what_was_asked(&self) -> claim::Asked<'_> {
        claim::Asked { limits: self.counted.len(), has_replay_limit: self.replay().is_some(), claims: self.asks() }
    }

    /// The claims that it asks for: that of the idempotency key first.
    pub fn asks(&self) -> &[Ask] {
        self.asked.as_deref().map_or(&[], |asked| &asked.asks)
    }

    /// Who asks.
    pub(crate) fn owner(&self) -> Owner {
        self.asked.as_deref().map_or(Owner::NONE, |asked| asked.owner)
    }

    /// The limit on replays with its count, where there is one. A request that waits is counted when it comes, and not
    /// each time that it asks again.
    fn replay(&self) -> Option<(&Counted, &Limit)> {
        let limit = self.policy()?.idempotency.as_deref()?.replay_limit.as_ref()?;
        let asked = self.asked.as_deref().filter(|asked| asked.waits == 0)?;
        Some((asked.replay.as_ref()?, limit))
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

    /// This host has seen fencing tokens up to `floor`: a claim that is asked for now gets a higher one.
    pub fn raise_floor(&mut self, floor: u64) {
        let asks = self.asked.iter_mut().flat_map(|asked| &mut asked.asks);
        asks.for_each(|ask| ask.floor = ask.floor.max(floor));
    }

    /// Goes on with the request's body, which its fingerprint needs.
    pub(crate) fn with_body(mut self, body: Collected<'_>) -> Step {
        let policies = Arc::clone(&self.policies);
        let rules = policies.applied(self.policy).and_then(|policy| policy.idempotency.as_deref());
        let Some(rules) = rules else { return Step::Call(self) };
        let fingerprint = match body {
            Collected::Whole(bytes) => {
                let mut hasher = BodyHasher::new(rules.fingerprint.body);
                hasher.push(bytes);
                Ok(hasher.finish())
            }
            Collected::TooLarge => admission::over_max(rules),
            Collected::Failed => Err(answer::body_not_held(rules)),
        };
        match fingerprint {
            Ok(fingerprint) => {
                let ask = self.asked.as_deref_mut().and_then(|asked| asked.asks.first_mut());
                ask.into_iter().for_each(|ask| ask.fingerprint.body.clone_from(&fingerprint));
                Step::Call(self)
            }
            Err(action) => {
                let report = self.report(None, Outcome::KeyRejected, DecidedBy::Policy, Vec::new());
                Step::Decide(Decision::new(action, report))
            }
        }
    }

    /// Goes on with the reply, or without one. A reply of another shape than the script's is a failure of the store.
    pub fn resume(self, result: Result<Reply, StoreFailure>) -> Step {
        match result {
            Ok(reply) if self.asks().is_empty() => match verdicts(&reply, &self.counted) {
                Some(verdicts) => self.decided(&verdicts, DecidedBy::Store),
                None => self.failed_unknown(),
            },
            Ok(reply) => match claim_reply(&reply, &self.counted, self.what_was_asked()) {
                Some(reply) => self.admitted(reply),
                None => self.failed_unknown(),
            },
            Err(StoreFailure::Refused(Refusal::NoScript)) => self.not_cached(),
            Err(StoreFailure::Unknown) => self.failed_unknown(),
            Err(_) => self.failed(),
        }
    }

    /// The command may have been carried out. Whoever only charged limits must not charge them twice; a claim may be
    /// asked for again, once, by the same owner.
    fn failed_unknown(mut self) -> Step {
        if let Some(asked) = self.asked.as_deref_mut() {
            let again = !asked.may_hold && !asked.asks.is_empty();
            asked.may_hold = true;
            if again {
                return Step::Call(Call { form: Form::Cached, ..self });
            }
        }
        self.failed()
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

    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.policies.applied(self.policy)
    }
}
