//! The table as a whole: which host key a claim's set lies under, and what can be asked of it.

use siphasher::sip::SipHasher24;
use std::collections::VecDeque;
use std::hash::Hasher;

use super::act::{Act, Known, Said};
use super::step::ClaimStep;
use super::work::{Errand, Work};
use crate::claim::{Admission, Ask, Command, Completion, Granted, Holdings, Owner, Word};

/// A table of fixed size in the host's shared map.
#[derive(Clone, Debug)]
pub struct ClaimTable {
    sets: u32,
    seed: [u8; 16],
}

/// What came of asking the table for all claims of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// None is taken: the table knows better.
    Answered(Admission),
    /// All are.
    Granted(Vec<Granted>),
    /// None is taken: a set is full of claims that run.
    NoRoom,
}

/// What one set has for the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Outcomes to tell it now.
    pub due: Vec<Completion>,
    /// Whether it has all outcomes of the set, or would not have them.
    pub is_clean: bool,
}

impl ClaimTable {
    /// The default number of sets.
    pub const SETS: u32 = 256;

    /// A table of `sets` sets, at least 1. All workers of a process must use the same `seed`, which should be random.
    pub fn new(sets: u32, seed: [u8; 16]) -> ClaimTable {
        ClaimTable { sets: sets.max(1), seed }
    }

    /// How many sets it has.
    pub fn sets(&self) -> u32 {
        self.sets
    }

    /// Takes all claims of a request without the store, or none.
    pub fn take<'a>(&self, asks: &'a [Ask], owner: Owner, now_us: u64) -> ClaimStep<'a, Taken> {
        let acts = asks.iter().enumerate().map(|(claim, ask)| (&*ask.record_key, Act::Take { claim, ask, owner }));
        ClaimStep::of(Work::begin(self.errands(acts), now_us), taken)
    }

    /// Notes all claims that the store granted to a request, or none when the table alone knows better of one.
    pub fn adopt<'a>(&self, asks: &'a [Ask], granted: &[Granted], owner: Owner, now_us: u64) -> ClaimStep<'a, Taken> {
        let claims = asks.iter().zip(granted).enumerate();
        let acts = claims
            .map(|(claim, (ask, granted))| (&*ask.record_key, Act::Adopt { claim, ask, owner, granted: *granted }));
        ClaimStep::of(Work::begin(self.errands(acts), now_us), taken)
    }

    /// Does what a command would do in the store: a word for each claim. `known` is what the store knows of an outcome.
    pub fn tell<'a>(&self, command: &'a Command, known: Known, now_us: u64) -> ClaimStep<'a, Vec<Word>> {
        let errands = match command {
            Command::Complete(completion) => {
                self.errands([(&*completion.record_key, Act::Complete { completion, known })].into_iter())
            }
            Command::Release { holdings, .. } => self.errands(holdings.claims.iter().map(|held| {
                let record_key = &*held.record_key;
                (record_key, Act::Release { record_key, owner: holdings.owner, fence: held.fence })
            })),
            Command::Renew(Holdings { owner, claims, .. }) => {
                self.errands(claims.iter().map(|held| (&*held.record_key, Act::Renew { held, owner: *owner })))
            }
        };
        ClaimStep::of(Work::begin(errands, now_us), words)
    }

    /// Finds outcomes in a set that the store is to be told. Each comes up once in 5 s until the store has answered. Those
    /// that the store never granted are told under `fence`: whatever record there is wins, so it only has to be above
    /// those that were given and given back. The time of day in µs is.
    pub fn sweep<'a>(&self, set: u32, fence: u64, now_us: u64) -> ClaimStep<'a, Swept> {
        ClaimStep::of(Work::begin([Errand { key: self.key(set), act: Act::Sweep { fence } }].into(), now_us), swept)
    }

    fn errands<'a>(&self, acts: impl Iterator<Item = (&'a str, Act<'a>)>) -> VecDeque<Errand<'a>> {
        acts.map(|(record_key, act)| Errand { key: self.key(self.set_of(record_key)), act }).collect()
    }

    fn set_of(&self, record_key: &str) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.seed);
        hasher.write(record_key.as_bytes());
        let set = hasher.finish().checked_rem(u64::from(self.sets)).unwrap_or(0);
        u32::try_from(set).unwrap_or(0)
    }

    fn key(&self, set: u32) -> String {
        format!("lockkeeper/claims/{}/{set}", self.sets)
    }
}

fn taken(said: Vec<Said>) -> Taken {
    let mut claims = Vec::with_capacity(said.len());
    for one in said {
        match one {
            Said::Granted(granted) => claims.push(granted),
            Said::Refused(admission) => return Taken::Answered(admission),
            Said::NoRoom | Said::Swept { .. } | Said::Word(_) => return Taken::NoRoom,
        }
    }
    Taken::Granted(claims)
}

fn words(said: Vec<Said>) -> Vec<Word> {
    said.into_iter().filter_map(|one| if let Said::Word(word) = one { Some(word) } else { None }).collect()
}

fn swept(said: Vec<Said>) -> Swept {
    let found = said.into_iter().find_map(|one| match one {
        Said::Swept { due, is_clean } => Some(Swept { due, is_clean }),
        _ => None,
    });
    found.unwrap_or_default()
}
