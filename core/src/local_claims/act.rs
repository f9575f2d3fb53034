//! What is done to one set of the table: one act for each thing that the store's scripts do, by the same state machine.

use super::entry::{Entry, Standing};
use super::set::{Set, bounded};
use crate::claim::record::{self, Look, Place, Record, Stored};
use crate::claim::{Admission, Ask, Completion, Granted, HeldClaim, Owner, Word};

/// What the store is known to know of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It could not be told.
    Not,
    /// It would not have it.
    Refused,
    /// It keeps it.
    Stored,
}

impl Known {
    /// By what the store said, if anything. Another's claim that runs may be one that is about to be given back, because
    /// this table refused it: the store is asked again.
    pub fn after(word: Option<Word>) -> Known {
        match word {
            None | Some(Word::Busy) => Known::Not,
            Some(Word::Ok) => Known::Stored,
            Some(Word::Corrupt | Word::Done | Word::Gone | Word::Lost) => Known::Refused,
        }
    }
}

/// One act on the set that a host key holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act<'a> {
    /// Notes a claim that the store granted.
    Adopt {
        claim: usize,
        ask: &'a Ask,
        owner: Owner,
        granted: Granted,
    },
    Complete {
        completion: &'a Completion,
        known: Known,
    },
    Release {
        record_key: &'a str,
        owner: Owner,
        fence: Option<u64>,
    },
    Renew {
        held: &'a HeldClaim,
        owner: Owner,
    },
    /// Finds what the store is to be told, under this fence where it gave none.
    Sweep {
        fence: u64,
    },
    /// Grants a claim without the store.
    Take {
        claim: usize,
        ask: &'a Ask,
        owner: Owner,
    },
}

/// What came of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Granted(Granted),
    /// There is no room, or no making sense of the set.
    NoRoom,
    Refused(Admission),
    Swept {
        due: Vec<Completion>,
        is_clean: bool,
    },
    Word(Word),
}

/// What is swept up comes up again after this long, unless the store has confirmed it.
const PUSHED_AGAIN_AFTER_US: u64 = 5_000_000;

impl Act<'_> {
    /// Changes the set.
    pub fn carry_out(self, set: &mut Set, now_us: u64) -> Said {
        match self {
            Act::Adopt { claim, ask, owner, granted } => adopt(set, claim, ask, owner, granted, now_us),
            Act::Complete { completion, known } => complete(set, completion, known, now_us),
            Act::Release { record_key, owner, fence } => release(set, record_key, owner, fence, now_us),
            Act::Renew { held, owner } => renew(set, held, owner, now_us),
            Act::Sweep { fence } => sweep(set, fence, now_us),
            Act::Take { claim, ask, owner } => take(set, claim, ask, owner, now_us),
        }
    }

    /// What is said of a set that cannot be read, or whose writes all come too late.
    pub fn given_up(self) -> Said {
        match self {
            Act::Adopt { .. } | Act::Take { .. } => Said::NoRoom,
            Act::Complete { .. } | Act::Release { .. } | Act::Renew { .. } => Said::Word(Word::Lost),
            Act::Sweep { .. } => Said::Swept { due: Vec::new(), is_clean: true },
        }
    }
}

fn take(set: &mut Set, claim: usize, ask: &Ask, owner: Owner, now_us: u64) -> Said {
    // The floor is of the store's clock.
    let ask = Ask { floor: 0, ..ask.clone() };
    let mut place = set.place(&ask.record_key);
    let admission = record::begin(std::slice::from_mut(&mut place), std::slice::from_ref(&ask), owner, now_us);
    match (admission, place.stored) {
        (Admission::Granted { claims, .. }, Stored::Record(record)) => {
            let standing = Standing::Ours { push_at_us: 0 };
            match (set.put(Entry::running(&ask, record, standing), now_us), claims.first()) {
                (true, Some(granted)) => Said::Granted(*granted),
                _ => Said::NoRoom,
            }
        }
        (refusal, _) => Said::Refused(refusal.at(claim)),
    }
}

/// The store has granted it, so what the store knew before does not count; what the table alone knows does.
fn adopt(set: &mut Set, claim: usize, ask: &Ask, owner: Owner, granted: Granted, now_us: u64) -> Said {
    if set.find(&ask.record_key).is_some_and(|entry| entry.standing != Standing::Stored) {
        let mut place = set.place(&ask.record_key);
        let look = record::look(std::slice::from_mut(&mut place), std::slice::from_ref(ask), owner, now_us);
        if let Look::Answered(admission) = look {
            return Said::Refused(admission.at(claim));
        }
    }
    let record = Record::running(owner, granted, ask, now_us);
    match set.put(Entry::running(ask, record, Standing::Stored), now_us) {
        true => Said::Granted(granted),
        false => Said::NoRoom,
    }
}

fn renew(set: &mut Set, held: &HeldClaim, owner: Owner, now_us: u64) -> Said {
    let mut place = set.place(&held.record_key);
    let word = place.renew(owner, held.fence, held.lease_us, now_us);
    keep(set, &held.record_key, place);
    Said::Word(word)
}

fn release(set: &mut Set, record_key: &str, owner: Owner, fence: Option<u64>, now_us: u64) -> Said {
    let word = set.place(record_key).release(owner, fence, true, now_us);
    if word == Word::Ok {
        set.remove(record_key);
    }
    Said::Word(word)
}

fn complete(set: &mut Set, completion: &Completion, known: Known, now_us: u64) -> Said {
    let before = set.find(&completion.record_key).filter(|entry| entry.record.owner == completion.owner);
    if let Some(entry) = before.filter(|entry| entry.record.kept.is_some()) {
        let entry = Entry { standing: standing(known, Some(entry.standing), now_us), ..entry.clone() };
        set.put(entry, now_us);
        return Said::Word(Word::Ok);
    }
    let is_granted_by_store = before.is_some_and(|entry| entry.is_granted_by_store);
    let completion = bounded(completion);
    let mut place = set.place(&completion.record_key);
    let word = place.complete(&completion, now_us);
    if let (Word::Ok, Stored::Record(record)) = (word, place.stored) {
        let finished = Entry::finished(&completion, record, standing(known, None, now_us), now_us);
        if !set.put(Entry { is_granted_by_store, ..finished }, now_us) {
            return Said::Word(Word::Gone);
        }
    }
    Said::Word(word)
}

/// What the store knows of an outcome, by what it was last known to.
fn standing(known: Known, before: Option<Standing>, now_us: u64) -> Standing {
    match (known, before) {
        (Known::Stored, _) | (_, Some(Standing::Stored)) => Standing::Stored,
        (Known::Refused, _) => Standing::Refused,
        (Known::Not, Some(before)) => before,
        (Known::Not, None) => Standing::Ours { push_at_us: now_us },
    }
}

fn keep(set: &mut Set, record_key: &str, place: Place) {
    if let Stored::Record(record) = place.stored {
        let entry = set.entries_mut().find(|entry| entry.record_key == record_key);
        entry.into_iter().for_each(|entry| {
            let margin_us = entry.expires_us.saturating_sub(entry.record.deadline_us);
            entry.expires_us = entry.expires_us.max(record.deadline_us.saturating_add(margin_us));
            entry.record = record.clone();
        });
    }
}

fn sweep(set: &mut Set, fence: u64, now_us: u64) -> Said {
    let (mut due, mut is_clean) = (Vec::new(), true);
    for entry in set.entries_mut() {
        let Standing::Ours { push_at_us } = entry.standing else { continue };
        let Some(completion) = entry.completion(fence) else { continue };
        is_clean = false;
        if push_at_us <= now_us {
            entry.standing = Standing::Ours { push_at_us: now_us.saturating_add(PUSHED_AGAIN_AFTER_US) };
            due.push(completion);
        }
    }
    Said::Swept { due, is_clean }
}
