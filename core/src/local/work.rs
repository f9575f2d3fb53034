//! A local decision in progress: read what the limits' sets hold, judge, then charge limit by limit. When another worker
//! was faster and a limit denies after all, what was charged is given back, so nothing is ever admitted beyond a limit.

use super::compact;
use super::set::Set;
use super::step::{LocalDecision, LocalStep, Read, Write};
use super::table::{LocalCharge, Slot, Table};
use crate::algorithm::{Account, Decision, State, Verdict};

/// How often one entry is tried to be written. Each time it fails another worker got through.
const TRIES: u32 = 16;
/// Entries the log of a sliding window holds here.
const LOG_LENGTH: usize = 64;
/// Room for a state as it mostly is.
const STATE_BYTES: usize = 32;

#[derive(Debug)]
pub(super) struct Work<'a> {
    table: &'a Table,
    now_us: u64,
    goal: Goal,
    limits: Vec<Progress<'a>>,
    mismatches: u32,
    contended: bool,
    lost_refunds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Charge,
    Judge,
    Refund,
}

/// How far one limit is.
#[derive(Debug)]
struct Progress<'a> {
    asked: &'a LocalCharge<'a>,
    stage: Stage,
    verdict: Verdict,
    overflowed: bool,
    tries: u32,
}

#[derive(Debug)]
enum Stage {
    Charged,
    /// Judged, with the write that would charge it.
    Ready(Change),
    /// Judged, and not to be charged.
    Settled,
    Unread,
}

/// What a write makes of a key, and what the limit says when it has taken place.
#[derive(Debug)]
pub(super) struct Change {
    pub slot: Slot,
    pub version: Option<u32>,
    pub bytes: Vec<u8>,
    pub verdict: Verdict,
}

impl<'a> Work<'a> {
    pub fn begin(table: &'a Table, charges: &'a [LocalCharge<'a>], now_us: u64) -> LocalStep<'a> {
        let limits = charges.iter().map(Progress::new).collect();
        let work = Self { table, now_us, goal: Goal::Judge, limits, mismatches: 0, contended: false, lost_refunds: 0 };
        work.next()
    }

    fn next(mut self) -> LocalStep<'a> {
        if self.goal == Goal::Judge {
            if let Some(limit) = self.position(|limit| matches!(limit.stage, Stage::Unread)) {
                return self.read(limit);
            }
            if self.denied() {
                return self.done();
            }
            self.goal = Goal::Charge;
        }
        if self.goal == Goal::Charge {
            return match self.position(Progress::is_enforced_and_ready).or(self.position(Progress::is_ready)) {
                Some(limit) => self.write(limit),
                None => self.done(),
            };
        }
        match self.position(|limit| matches!(limit.stage, Stage::Charged)) {
            Some(limit) => self.read(limit),
            None => self.done(),
        }
    }

    fn position(&self, is: impl FnMut(&Progress<'a>) -> bool) -> Option<usize> {
        self.limits.iter().position(is)
    }

    fn denied(&self) -> bool {
        self.contended || self.limits.iter().any(|limit| limit.asked.charge.enforce && !limit.verdict.admitted)
    }

    fn done(self) -> LocalStep<'a> {
        LocalStep::Done(LocalDecision {
            decision: Decision {
                allowed: !self.denied(),
                verdicts: self.limits.iter().map(|limit| limit.verdict).collect(),
            },
            overflowed: self.limits.iter().map(|limit| u32::from(limit.overflowed)).sum(),
            mismatches: self.mismatches,
            contended: self.contended,
            lost_refunds: self.lost_refunds,
        })
    }

    fn read(self, limit: usize) -> LocalStep<'a> {
        let Some(progress) = self.limits.get(limit) else {
            return self.done();
        };
        let slot = match progress.overflowed {
            true => self.table.overflow_slot(progress.asked),
            false => self.table.slot(progress.asked),
        };
        LocalStep::Read(Read { work: self, limit, slot })
    }

    fn write(mut self, limit: usize) -> LocalStep<'a> {
        let stage = self.limits.get_mut(limit).map(|progress| std::mem::replace(&mut progress.stage, Stage::Settled));
        match stage {
            Some(Stage::Ready(change)) => LocalStep::Write(Write { work: self, limit, change }),
            _ => self.done(),
        }
    }

    pub fn after_read(mut self, limit: usize, slot: Slot, bytes: &[u8], version: Option<u32>) -> LocalStep<'a> {
        let (now_us, goal) = (self.now_us, self.goal);
        let Some(progress) = self.limits.get_mut(limit) else {
            return self.done();
        };
        let set = Set::read(bytes);
        let found = set.find(slot.tag);
        if found.is_none() && !progress.overflowed && !set.has_room(now_us) {
            progress.overflowed = true;
            return self.read(limit);
        }
        let algorithm = progress.asked.charge.algorithm;
        let stored = found.map_or(State::Absent, |bytes| compact::read_state(algorithm, bytes));
        let account = Account::open(algorithm, &stored, now_us);
        let place = Place { slot, version, set, now_us };
        if goal == Goal::Refund {
            progress.refund(account, place);
            return self.write(limit);
        }
        progress.judge(account, place);
        if goal == Goal::Charge && self.denied() {
            self.goal = Goal::Refund;
        }
        self.next()
    }

    pub fn after_write(mut self, limit: usize, verdict: Verdict) -> LocalStep<'a> {
        if let Some(progress) = self.limits.get_mut(limit) {
            progress.verdict = verdict;
            progress.stage = if self.goal == Goal::Charge { Stage::Charged } else { Stage::Settled };
            progress.tries = 0;
        }
        self.next()
    }

    pub fn after_mismatch(mut self, limit: usize) -> LocalStep<'a> {
        self.mismatches = self.mismatches.saturating_add(1);
        let Some(progress) = self.limits.get_mut(limit) else {
            return self.done();
        };
        progress.tries = progress.tries.saturating_add(1);
        if progress.tries < TRIES {
            return self.read(limit);
        }
        if self.goal == Goal::Refund {
            self.lost_refunds = self.lost_refunds.saturating_add(1);
        } else if progress.asked.charge.enforce {
            self.contended = true;
            self.goal = Goal::Refund;
        }
        self.next()
    }
}

/// Where a limit's state was found.
struct Place<'s> {
    slot: Slot,
    version: Option<u32>,
    set: Set<'s>,
    now_us: u64,
}

impl<'a> Progress<'a> {
    fn new(asked: &'a LocalCharge<'a>) -> Self {
        let charge = asked.charge;
        let (stage, verdict) = match charge.algorithm.is_held() {
            // Only the store knows who holds a slot.
            true => (Stage::Settled, charge.peek(&State::Absent, 0)),
            false => (Stage::Unread, Verdict::default()),
        };
        Self { asked, stage, verdict, overflowed: false, tries: 0 }
    }

    fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready(_))
    }

    fn is_enforced_and_ready(&self) -> bool {
        self.asked.charge.enforce && self.is_ready()
    }

    fn judge(&mut self, mut account: Account<'_>, place: Place<'_>) {
        let charge = self.asked.charge;
        let admitted = charge.fits(&account);
        self.verdict = charge.verdict(&account, admitted);
        self.stage = Stage::Settled;
        if admitted {
            account.charge(charge.cost());
            account.shorten(LOG_LENGTH);
            let verdict = charge.verdict(&account, true);
            self.stage = Stage::Ready(place.change(account, verdict));
        }
    }

    fn refund(&mut self, mut account: Account<'_>, place: Place<'_>) {
        let charge = self.asked.charge;
        account.refund(charge.cost(), place.now_us);
        let verdict = charge.verdict(&account, charge.fits(&account));
        self.stage = Stage::Ready(place.change(account, verdict));
    }
}

impl Place<'_> {
    fn change(self, account: Account<'_>, verdict: Verdict) -> Change {
        let fresh_at_us = account.fresh_at_us();
        let mut state = Vec::with_capacity(STATE_BYTES);
        compact::write_state(&mut state, &account.into_state());
        let bytes = self.set.with(self.slot.tag, fresh_at_us, &state, self.now_us);
        Change { slot: self.slot, version: self.version, bytes, verdict }
    }
}
