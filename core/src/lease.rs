//! What a request holds until it ends: claims and slots, kept alive by renewals, ended by completion or release.
//! Each of these is one command; a host sends it and resumes with the reply, as for a decision.

use std::sync::Arc;

use crate::capture::{End, RecordEnd};
use crate::claim::{ClaimKind, Command, Completion, Fingerprint, HeldClaim, HeldSlot, Holdings, Kept, Owner};
use crate::idempotency::stored;
use crate::policy::{Idempotency, LeaseRules, OnLeaseLost, Policy, PolicySet};
use crate::resp::Reply;
use crate::store::{Refusal, StoreFailure};

pub use crate::claim::Word;

/// Everything that one request holds.
#[derive(Clone, Debug)]
pub struct Lease {
    pub(crate) policies: Arc<PolicySet>,
    pub(crate) policy: usize,
    pub(crate) owner: Owner,
    pub(crate) claims: Vec<LeasedClaim>,
    pub(crate) slots: Vec<HeldSlot>,
    pub(crate) keeper: Keeper,
}

/// Who knows of what a request holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The store, and this instance's own [table](crate::local_claims) beside it.
    Both,
    /// This instance's own table alone: the store failed.
    Instance,
    /// The store.
    Store,
}

/// A claim that was granted, or may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedClaim {
    /// What it is for.
    pub kind: ClaimKind,
    /// Where it stands in the store, and its fencing token.
    pub held: HeldClaim,
    /// Which attempt this is, from 1.
    pub attempt: u64,
    /// How long it lasts.
    pub rules: LeaseRules,
    /// What the request is.
    pub fingerprint: Fingerprint,
}

impl Lease {
    /// The holder's token.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// What it claims.
    pub fn claims(&self) -> &[LeasedClaim] {
        &self.claims
    }

    /// Time between renewals, in microseconds: a third of the shortest lease.
    pub fn renew_every_us(&self) -> u64 {
        self.shortest_us() / 3
    }

    /// Time after which it must be taken for lost when no renewal has succeeded since, in microseconds.
    pub fn shortest_us(&self) -> u64 {
        let claims = self.claims.iter().map(|claim| claim.rules.lease_us);
        claims.chain(self.slots.iter().map(|slot| slot.lease_us)).min().unwrap_or(u64::MAX)
    }

    /// Time since the grant after which claims are not renewed any more, in microseconds.
    pub fn renewed_for_us(&self) -> u64 {
        self.claims.iter().map(|claim| claim.rules.max_lease_us).min().unwrap_or(u64::MAX)
    }

    /// Whether the request is to be cancelled when the lease is lost.
    pub fn cancels_when_lost(&self) -> bool {
        self.claims.iter().any(|claim| claim.rules.on_lost == OnLeaseLost::Cancel)
    }

    /// Whether these words for a renewal say that a claim is lost. A slot that is gone is no loss to its request: nobody
    /// waits for it, and the limit counts one too few until it ends.
    pub fn is_lost_by(&self, words: &[Word]) -> bool {
        words.iter().take(self.claims.len()).any(|word| *word != Word::Ok)
    }

    /// What is kept of the response, if it holds a record of its outcome.
    pub fn idempotency(&self) -> Option<&Idempotency> {
        self.record()?;
        self.policy()?.idempotency.as_deref()
    }

    /// Index of the policy in the file, for metrics.
    pub fn reported(&self) -> Option<usize> {
        self.policy()?.reported()
    }

    fn policy(&self) -> Option<&Policy> {
        self.policies.applied(self.policy)
    }

    fn record(&self) -> Option<&LeasedClaim> {
        self.claims.iter().find(|claim| claim.kind == ClaimKind::Idempotency)
    }

    /// The body's fingerprint became known on the way: it is stored with the outcome.
    pub fn bind_body(&mut self, fingerprint: String) {
        let record = self.claims.iter_mut().find(|claim| claim.kind == ClaimKind::Idempotency);
        record.into_iter().for_each(|record| record.fingerprint.body.clone_from(&fingerprint));
    }

    /// Extends everything by its lease from now on.
    pub fn renew(&self) -> LeaseCall {
        self.call(Command::Renew(self.holdings(|_| true)))
    }

    /// Ends everything: the record as `end` says, the rest by release. A lock stays until its lease lapses when the
    /// upstream may still be at work.
    pub fn end(&self, end: &End) -> Vec<LeaseCall> {
        let mut commands = Vec::new();
        commands.extend(self.record().zip(kept(&end.record)).and_then(|(record, kept)| self.complete(record, kept)));
        let is_uncounted = matches!(end.record, RecordEnd::Release { uncount: true });
        let holdings = self.holdings(|claim| match claim.kind {
            ClaimKind::Idempotency => matches!(end.record, RecordEnd::Release { .. }),
            ClaimKind::Lock => end.is_over,
        });
        if !holdings.claims.is_empty() || !holdings.slots.is_empty() {
            commands.push(Command::Release { holdings, is_uncounted });
        }
        commands.into_iter().map(|command| self.call(command)).collect()
    }

    /// Gives everything back that the request may hold: it was never forwarded.
    pub fn abandon(&self) -> LeaseCall {
        self.call(Command::Release { holdings: self.holdings(|_| true), is_uncounted: true })
    }

    fn call(&self, command: Command) -> LeaseCall {
        LeaseCall { command, keeper: self.keeper, is_whole: false }
    }

    fn holdings(&self, is_wanted: impl Fn(&LeasedClaim) -> bool) -> Holdings {
        let claims = self.claims.iter().filter(|claim| is_wanted(claim)).map(|claim| claim.held.clone());
        Holdings { owner: self.owner, claims: claims.collect(), slots: self.slots.clone() }
    }

    /// What tells the store of the outcome; the fence of a claim that has one is known.
    fn complete(&self, record: &LeasedClaim, kept: Kept) -> Option<Command> {
        Some(Command::Complete(Completion {
            owner: self.owner,
            record_key: record.held.record_key.clone(),
            fence_key: record.held.fence_key.clone(),
            fence: record.held.fence?,
            attempt: record.attempt,
            ttl_ms: record.held.ttl_ms,
            fingerprint: record.fingerprint.clone(),
            kept,
        }))
    }
}

fn kept(end: &RecordEnd) -> Option<Kept> {
    match end {
        RecordEnd::Keep(stored) => Some(stored.clone().into_kept()),
        RecordEnd::Seal(stored, reason) => Some(Kept::Sealed {
            status: stored.status,
            headers: stored::encode_headers(&stored.headers).into_bytes(),
            reason: reason.word().to_owned(),
        }),
        RecordEnd::Release { .. } | RecordEnd::LeaveUnknown => None,
    }
}

/// What a command does with what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Extends the lease.
    Renew,
    /// Stores the outcome.
    Complete,
    /// Gives up.
    Release,
}

/// One such command. Sending it twice does no harm: the store compares the owner.
#[derive(Clone, Debug)]
pub struct LeaseCall {
    command: Command,
    keeper: Keeper,
    is_whole: bool,
}

/// Where a command leads.
#[derive(Debug)]
pub enum LeaseStep {
    /// Send this one at once.
    Call(LeaseCall),
    /// What became of each thing held, in order: claims, then slots.
    Done(Vec<Word>),
    /// It is not known to have happened: it may be sent again.
    Failed(LeaseCall, StoreFailure),
}

/// A command this large waits until those that decide requests have been written.
const BULKY_BYTES: usize = 16 * 1024;

impl LeaseCall {
    /// Tells the store of an outcome that this instance alone knows.
    pub fn push(completion: Completion) -> LeaseCall {
        LeaseCall { command: Command::Complete(completion), keeper: Keeper::Both, is_whole: false }
    }

    /// Who is to be told: for [`Keeper::Both`] the store first, then the table of what it said.
    pub fn keeper(&self) -> Keeper {
        self.keeper
    }

    /// The command, for the instance's own table.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// What it does.
    pub fn act(&self) -> Act {
        match self.command {
            Command::Complete(_) => Act::Complete,
            Command::Release { .. } => Act::Release,
            Command::Renew(_) => Act::Renew,
        }
    }

    /// Whether it should wait for commands that decide requests.
    pub fn is_bulky(&self) -> bool {
        self.bytes() > BULKY_BYTES
    }

    /// Bytes of the response that it carries.
    pub fn bytes(&self) -> usize {
        match &self.command {
            Command::Complete(Completion { kept: Kept::Done { headers, body, .. }, .. }) => {
                headers.len().saturating_add(body.len())
            }
            _ => 0,
        }
    }

    /// Appends the command, marked with `tag`, which the reply echoes.
    pub fn write(&self, tag: &str, out: &mut Vec<u8>) {
        self.command.write(tag, self.is_whole, out);
    }

    /// Goes on with the reply, or without one.
    pub fn resume(self, result: Result<Reply, StoreFailure>) -> LeaseStep {
        match result {
            Ok(reply) => match self.words(&reply) {
                Some(words) => LeaseStep::Done(words),
                None => LeaseStep::Failed(self, StoreFailure::Refused(Refusal::Other)),
            },
            Err(StoreFailure::Refused(Refusal::NoScript)) if !self.is_whole => {
                LeaseStep::Call(LeaseCall { is_whole: true, ..self })
            }
            Err(failure) => LeaseStep::Failed(LeaseCall { is_whole: false, ..self }, failure),
        }
    }

    fn words(&self, reply: &Reply) -> Option<Vec<Word>> {
        let Reply::Array(elements) = reply else { return None };
        self.command.parse(elements.get(1..)?)
    }
}
