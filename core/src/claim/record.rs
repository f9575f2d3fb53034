//! The state machine of a claim, as values: what the scripts do inside the store, one function for each.
//!
//! ```text
//! absent ──take──▶ running ──complete──▶ finished (response kept, or sealed)
//!   ▲                │  │
//!   └────release─────┘  └─ lease over: unknown; taken over, or left for an operator
//! ```
//!
//! Every change compares the owner. What is remembered beside a record outlives it, so fences rise and attempts count
//! over releases and losses.

use super::status;
use super::{Admission, Ask, ClaimKind, Completion, Encoding, FENCE_AHEAD_US, Fingerprint, Granted, Kept, Owner, Word};
use crate::algorithm::EXACT_MAX;
use crate::policy::OnUnknown;

/// What stands at a claim's two keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// At the record's.
    pub stored: Stored,
    /// At the other, if it can be read.
    pub sibling: Option<Sibling>,
}

/// What stands at the key of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stored {
    /// Nothing.
    #[default]
    Absent,
    /// Something that is no record.
    Corrupt,
    /// A record.
    Record(Record),
}

/// Who runs something, or what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who claimed it.
    pub owner: Owner,
    /// The claim's fence.
    pub fence: u64,
    /// Which attempt it is, from 1.
    pub attempt: u64,
    /// When it was claimed, in µs.
    pub started_us: u64,
    /// When the lease ends, in µs.
    pub deadline_us: u64,
    /// The lease, in µs: the deadline is never further ahead.
    pub lease_us: u64,
    /// What the request is.
    pub fingerprint: Fingerprint,
    /// The outcome; `None` while it runs, or when nobody knows.
    pub kept: Option<Kept>,
}

/// What is remembered beside a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sibling {
    /// The highest fence that was given.
    pub fence: u64,
    /// The last attempt that counts.
    pub attempt: u64,
}

/// What a request finds before its limits are decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// One of the claims is its own: it has been here before.
    Again,
    /// The answer: nothing is decided or taken.
    Answered(Admission),
    /// All claims can be taken.
    Free,
}

/// Looks at all claims of a request, `places` and `asks` in the same order. Changes nothing but the deadline of another's
/// claim that a clock left too far ahead.
pub fn look(places: &mut [Place], asks: &[Ask], owner: Owner, now_us: u64) -> Look {
    let mut is_again = false;
    for (claim, (place, ask)) in places.iter_mut().zip(asks).enumerate() {
        match place.look(claim, ask, owner, now_us) {
            Look::Again => is_again = true,
            Look::Answered(admission) => return Look::Answered(admission),
            Look::Free => {}
        }
    }
    if is_again { Look::Again } else { Look::Free }
}

/// Takes all claims of a request that [`look`] did not answer.
pub fn take(places: &mut [Place], asks: &[Ask], owner: Owner, now_us: u64) -> Vec<Granted> {
    places.iter_mut().zip(asks).map(|(place, ask)| place.take(ask, owner, now_us)).collect()
}

/// Looks and takes, without limits in between.
pub fn begin(places: &mut [Place], asks: &[Ask], owner: Owner, now_us: u64) -> Admission {
    let is_again = match look(places, asks, owner, now_us) {
        Look::Answered(admission) => return admission,
        Look::Again => true,
        Look::Free => false,
    };
    Admission::Granted { claims: take(places, asks, owner, now_us), is_again }
}

impl Place {
    fn look(&mut self, claim: usize, ask: &Ask, owner: Owner, now_us: u64) -> Look {
        let is_lock = ask.kind == ClaimKind::Lock;
        let record = match &mut self.stored {
            Stored::Absent => return Look::Free,
            Stored::Corrupt => return Look::Answered(Admission::Corrupt { claim }),
            Stored::Record(record) => record,
        };
        if is_lock && record.kept.is_some() {
            return Look::Answered(Admission::Corrupt { claim });
        }
        if record.kept.is_none() && record.owner == owner {
            return Look::Again;
        }
        if !is_lock && record.fingerprint.differs(&ask.fingerprint) {
            return Look::Answered(Admission::Mismatch { claim });
        }
        if let Some(kept) = &record.kept {
            return Look::Answered(Admission::Kept(kept.clone()));
        }
        if record.heal(now_us) > 0 {
            let remaining_us = record.deadline_us.saturating_sub(now_us);
            return Look::Answered(Admission::Busy { claim, remaining_us });
        }
        if !is_lock && ask.on_unknown == OnUnknown::Reject {
            return Look::Answered(Admission::Unknown { claim });
        }
        Look::Free
    }

    fn take(&mut self, ask: &Ask, owner: Owner, now_us: u64) -> Granted {
        if let Stored::Record(record) = &mut self.stored
            && record.owner == owner
        {
            record.extend(ask.lease_us, now_us);
            let granted = record.granted();
            self.remember(granted, now_us);
            return granted;
        }
        let mut last = self.remembered(now_us);
        if let Stored::Record(record) = &self.stored {
            last = last.and(Sibling { fence: record.fence, attempt: record.attempt }.at(now_us));
        }
        let granted =
            Granted { fence: next_fence(last.fence, ask.floor, now_us), attempt: last.attempt.saturating_add(1) };
        self.stored = Stored::Record(Record::running(owner, granted, ask, now_us));
        self.sibling = Some(Sibling { fence: granted.fence, attempt: granted.attempt });
        granted
    }

    /// Lets a running claim last `lease_us` from now on; never shorter than it did.
    pub fn renew(&mut self, owner: Owner, fence: Option<u64>, lease_us: u64, now_us: u64) -> Word {
        let record = match self.own(owner, fence) {
            Ok(record) => record,
            Err(word) => return word,
        };
        record.extend(lease_us, now_us);
        let granted = record.granted();
        self.remember(granted, now_us);
        Word::Ok
    }

    /// Keeps the outcome of what ran under the claim. A record that is gone is written again, unless the claim may have
    /// been given to another since.
    pub fn complete(&mut self, completion: &Completion, now_us: u64) -> Word {
        let own = self.own(completion.owner, Some(completion.fence)).map(|record| {
            record.heal(now_us);
            record.finished(completion)
        });
        let record = match own {
            Ok(record) => record,
            Err(Word::Done) => return Word::Ok,
            Err(Word::Gone) if self.remembered(now_us).fence <= completion.fence => {
                Record::lost(completion, now_us).finished(completion)
            }
            Err(Word::Gone) => return Word::Lost,
            Err(Word::Lost) if self.is_held(now_us) => return Word::Busy,
            Err(word) => return word,
        };
        let last = self.remembered(now_us).and(Sibling { fence: completion.fence, attempt: record.attempt });
        self.sibling = Some(last);
        self.stored = Stored::Record(record);
        Word::Ok
    }

    /// Gives a running claim back. `is_uncounted`: its attempt does not count.
    pub fn release(&mut self, owner: Owner, fence: Option<u64>, is_uncounted: bool, now_us: u64) -> Word {
        let given = match self.own(owner, fence) {
            Ok(record) => Sibling { fence: record.fence, attempt: record.attempt },
            Err(word) => return word,
        };
        let last = self.remembered(now_us).and(given);
        let attempt = last.attempt.saturating_sub(is_uncounted.into());
        *self = Place { stored: Stored::Absent, sibling: Some(Sibling { attempt, ..last }) };
        Word::Ok
    }

    /// The running record of `owner`, or what stands there instead.
    fn own(&mut self, owner: Owner, fence: Option<u64>) -> Result<&mut Record, Word> {
        match &mut self.stored {
            Stored::Absent => Err(Word::Gone),
            Stored::Record(record) if record.owner == owner && fence.is_none_or(|fence| fence == record.fence) => {
                if record.kept.is_some() {
                    Err(Word::Done)
                } else {
                    Ok(record)
                }
            }
            Stored::Record(_) => Err(Word::Lost),
            Stored::Corrupt => Err(Word::Corrupt),
        }
    }

    fn is_held(&self, now_us: u64) -> bool {
        matches!(&self.stored, Stored::Record(record) if record.kept.is_none() && record.remaining_us(now_us) > 0)
    }

    /// What is remembered, without a fence that is too far ahead.
    fn remembered(&self, now_us: u64) -> Sibling {
        self.sibling.unwrap_or_default().at(now_us)
    }

    /// Brings back what is remembered when it was lost.
    fn remember(&mut self, granted: Granted, now_us: u64) {
        let last = self.remembered(now_us);
        if last.fence < granted.fence {
            let attempt = last.attempt.max(granted.attempt);
            self.sibling = Some(Sibling { fence: granted.fence, attempt });
        }
    }
}

impl Sibling {
    fn at(self, now_us: u64) -> Sibling {
        let is_near = self.fence <= now_us.saturating_add(FENCE_AHEAD_US);
        Sibling { fence: if is_near { self.fence } else { 0 }, ..self }
    }

    fn and(self, other: Sibling) -> Sibling {
        Sibling { fence: self.fence.max(other.fence), attempt: self.attempt.max(other.attempt) }
    }

    /// Reads what the store holds: `fence:attempt`. Anything else is none.
    pub fn parse(text: &[u8]) -> Option<Sibling> {
        let mut parts = text.split(|byte| *byte == b':');
        let (fence, attempt) = (number(parts.next()?)?, number(parts.next()?)?);
        parts.next().is_none().then_some(Sibling { fence, attempt })
    }
}

/// Above every fence that is known here or to the gateway; the clock keeps it above those that were forgotten.
fn next_fence(last: u64, floor: u64, now_us: u64) -> u64 {
    let is_near = floor <= now_us.saturating_add(FENCE_AHEAD_US);
    let floor = if is_near { floor.saturating_add(1) } else { 0 };
    now_us.max(last.saturating_add(1)).max(floor)
}

impl Record {
    /// The record of a claim that was granted just now.
    pub(crate) fn running(owner: Owner, granted: Granted, ask: &Ask, now_us: u64) -> Record {
        Record {
            owner,
            fence: granted.fence,
            attempt: granted.attempt,
            started_us: now_us,
            deadline_us: now_us.saturating_add(ask.lease_us),
            lease_us: ask.lease_us,
            fingerprint: ask.fingerprint.clone(),
            kept: None,
        }
    }

    /// The record of a claim that the store has lost.
    fn lost(completion: &Completion, now_us: u64) -> Record {
        Record {
            owner: completion.owner,
            fence: completion.fence,
            attempt: completion.attempt,
            started_us: now_us,
            deadline_us: now_us,
            lease_us: 0,
            fingerprint: completion.fingerprint.clone(),
            kept: None,
        }
    }

    fn finished(&self, completion: &Completion) -> Record {
        let mut fingerprint = completion.fingerprint.clone();
        if fingerprint.body.is_empty() {
            fingerprint.body.clone_from(&self.fingerprint.body);
        }
        Record { fingerprint, kept: Some(completion.kept.clone()), ..self.clone() }
    }

    fn granted(&self) -> Granted {
        Granted { fence: self.fence, attempt: self.attempt }
    }

    /// The rest of the lease, in µs. A deadline further ahead than the lease is of a clock that stepped back since.
    fn remaining_us(&self, now_us: u64) -> u64 {
        self.deadline_us.saturating_sub(now_us).min(self.lease_us)
    }

    /// Brings back a deadline that is further ahead than the lease. Returns the rest of the lease, in µs.
    fn heal(&mut self, now_us: u64) -> u64 {
        let remaining_us = self.remaining_us(now_us);
        self.deadline_us = self.deadline_us.min(now_us.saturating_add(self.lease_us));
        remaining_us
    }

    fn extend(&mut self, lease_us: u64, now_us: u64) {
        if self.heal(now_us) < lease_us {
            self.deadline_us = now_us.saturating_add(lease_us);
            self.lease_us = lease_us;
        }
    }

    /// Reads a record by its fields; `None` when they are none of ours.
    pub fn parse<'f>(field: impl Fn(&str) -> Option<&'f [u8]>) -> Option<Record> {
        let text = |name| String::from_utf8(field(name)?.to_vec()).ok();
        let kept = match (field("v")?, field("s")?) {
            (b"1", b"R") => None,
            (b"1", b"D") => Some(Kept::Done {
                status: status(field("c")?)?,
                headers: field("h")?.to_vec(),
                body: field("b")?.to_vec(),
                encoding: Encoding::parse(field("e")?)?,
            }),
            (b"1", b"S") => {
                Some(Kept::Sealed { status: status(field("c")?)?, headers: field("h")?.to_vec(), reason: text("x")? })
            }
            _ => return None,
        };
        Some(Record {
            owner: Owner::parse(field("o")?)?,
            fence: number(field("f")?)?,
            attempt: number(field("n")?)?,
            started_us: number(field("t")?)?,
            deadline_us: number(field("d")?)?,
            lease_us: number(field("l")?)?,
            fingerprint: Fingerprint { head: text("p")?, body: text("q")?, recipe: text("pv")? },
            kept,
        })
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    (number <= EXACT_MAX).then_some(number)
}

#[cfg(test)]
mod tests;
