//! Work on the table in progress: one act after the other, each a read and a write of one set; when a claim is refused,
//! those that were granted before it are given back.

use std::collections::VecDeque;

use super::act::{Act, Said};
use super::set::Set;
use super::step::Write;

/// How often one set is tried to be written. Each time it fails another worker got through.
const TRIES: u32 = 64;

/// An act and the host key of its set.
#[derive(Clone, Debug)]
pub(super) struct Errand<'a> {
    pub key: String,
    pub act: Act<'a>,
}

#[derive(Debug)]
pub(super) struct Work<'a> {
    ahead: VecDeque<Errand<'a>>,
    /// Claims that are granted so far.
    granted: Vec<Errand<'a>>,
    /// The claim that was refused, if one was; what is ahead then undoes the others.
    refusal: Option<Said>,
    said: Vec<Said>,
    now_us: u64,
    tries: u32,
}

/// What comes next: reading a key, writing it, or nothing.
pub(super) enum Next<'a> {
    Done(Vec<Said>),
    Read(Work<'a>, String),
    Write(Work<'a>, Write),
}

impl<'a> Work<'a> {
    pub fn begin(errands: VecDeque<Errand<'a>>, now_us: u64) -> Next<'a> {
        let (granted, said) = (Vec::new(), Vec::new());
        Work { ahead: errands, granted, refusal: None, said, now_us, tries: 0 }.next()
    }

    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    fn next(self) -> Next<'a> {
        match self.ahead.front().map(|errand| errand.key.clone()) {
            Some(key) => Next::Read(self, key),
            None => Next::Done(self.refusal.map_or(self.said, |refusal| vec![refusal])),
        }
    }

    pub fn after_read(self, key: String, before: &[u8], set: Option<Set>, version: Option<u32>) -> Next<'a> {
        let Some(act) = self.ahead.front().map(|errand| errand.act) else { return self.next() };
        let Some(mut set) = set else { return self.after_act(act.given_up()) };
        let was_empty = set == Set::default();
        let said = act.carry_out(&mut set, self.now_us);
        let bytes = set.write();
        if bytes == before || was_empty && set == Set::default() {
            return self.after_act(said);
        }
        Next::Write(self, Write { key, bytes, version, said })
    }

    pub fn after_mismatch(mut self) -> Next<'a> {
        self.tries = self.tries.saturating_add(1);
        match self.ahead.front().map(|errand| errand.act) {
            Some(act) if self.tries >= TRIES => self.after_act(act.given_up()),
            _ => self.next(),
        }
    }

    pub fn after_act(mut self, said: Said) -> Next<'a> {
        self.tries = 0;
        let Some(errand) = self.ahead.pop_front() else { return self.next() };
        match said {
            Said::Granted(_) => {
                self.granted.push(errand);
                self.said.push(said);
            }
            Said::Refused(_) | Said::NoRoom => {
                self.refusal = Some(said);
                self.ahead = self.granted.drain(..).filter_map(undoing).collect();
            }
            Said::Swept { .. } | Said::Word(_) => self.said.push(said),
        }
        self.next()
    }
}

/// What gives a claim back.
fn undoing(errand: Errand<'_>) -> Option<Errand<'_>> {
    let (Act::Adopt { ask, owner, .. } | Act::Take { ask, owner, .. }) = errand.act else { return None };
    Some(Errand { key: errand.key, act: Act::Release { record_key: &ask.record_key, owner, fence: None } })
}
