//! Every step is taken twice, by the scripts and by the oracle, and compared: the reply, the stored records and slots, and
//! the expiry of every key. What differs is told, so that a changed script can be seen to differ.

use std::collections::{BTreeMap, HashMap};

use lockkeeper_core::claim::record::{Place, Record, Sibling, Stored};
use lockkeeper_core::claim::{Admission, Ask, Asked, Command, HeldClaim, Owner, Word};
use lockkeeper_core::resp::{Reply, push_bulk, push_number};
use lockkeeper_core::script::{self, ADMIT, ARGUMENTS_PER_CHARGE, DECIDE};

use crate::limits::{Limit, Slots};
use crate::oracle::{Oracle, Request};
use crate::scenery::{SLOT_LEASE_US, SLOTS, key, lock};
use crate::store::{Store, bulk, words};

/// What differs.
pub type Checked<T> = Result<T, String>;

/// Real time passes too, between a step and the reading of its expiry.
const LAG_MS: u64 = 20_000;
/// What a release gives a fence that was found to live for ever.
const DAY_MS: u64 = 86_400_000;
const TAG: &str = "t";

pub struct World {
    pub store: Store,
    pub oracle: Oracle,
    pub now_us: u64,
    pub steps: u64,
    /// How often each word was said.
    pub said: BTreeMap<String, u64>,
    /// What each key's expiry was last set to, in ms; `None` for a key that has none.
    expiries_ms: HashMap<String, Option<u64>>,
    /// Whether the last step should have set the expiry of the slots.
    slots_are_touched: bool,
}

impl World {
    pub fn new(now_us: u64) -> World {
        let (store, oracle) = (Store::start(), Oracle::default());
        World {
            store,
            oracle,
            now_us,
            steps: 0,
            said: BTreeMap::new(),
            expiries_ms: HashMap::new(),
            slots_are_touched: false,
        }
    }

    /// Forgets everything but the tallies.
    pub fn clear(&mut self, now_us: u64) {
        self.store.run(&[words(&["FLUSHALL"])]);
        (self.oracle, self.now_us) = (Oracle::default(), now_us);
        self.expiries_ms.clear();
    }

    /// A request begins.
    pub fn admit(&mut self, request: &Request) -> Checked<Admission> {
        let (expected, verdicts) = self.oracle.admit(request, self.now_us);
        let command = if request.asks.is_empty() { decide(request) } else { admit(request) };
        if let Admission::Granted { .. } = expected {
            for ask in &request.asks {
                self.expire([&ask.record_key, &ask.fence_key], lasting_ms(ask.ttl_ms, ask.lease_us));
            }
        }
        let decides = matches!(expected, Admission::Granted { is_again: false, .. } | Admission::Denied);
        self.slots_touched(decides && request.limits.iter().any(|limit| limit.algorithm.is_held()));
        self.tally(&expected);
        let (elements, stored) = self.run(&command)?;
        if request.asks.is_empty() {
            let rows = verdicts.iter().flat_map(|one| {
                [i64::from(one.admitted), one.remaining as i64, one.reset_us as i64, one.retry_us as i64]
            });
            let rows: Vec<Reply> = rows.map(Reply::Integer).collect();
            same("rows", &elements, &rows)?;
        } else {
            let asked = Asked {
                limits: request.limits.len(),
                has_replay_limit: request.replay.is_some(),
                claims: &request.asks,
            };
            let parsed = Admission::parse(&elements, asked).ok_or_else(|| format!("no admission: {elements:?}"))?;
            same("admission", &parsed, &(expected.clone(), verdicts))?;
        }
        self.compare(&stored)?;
        Ok(expected)
    }

    /// A request renews, completes or gives back.
    pub fn tell(&mut self, command: &Command) -> Checked<Vec<Word>> {
        let before = self.oracle.clone();
        let expected = self.oracle.tell(command, self.now_us);
        self.expect_expiries(command, &expected, &before);
        let renews = matches!(command, Command::Renew(holdings) if !holdings.slots.is_empty());
        self.slots_touched(renews && expected.last() == Some(&Word::Ok));
        for word in &expected {
            self.tally(&(act(command), word));
        }
        let mut bytes = Vec::new();
        command.write(TAG, false, &mut bytes);
        let (elements, stored) = self.run(&bytes)?;
        let parsed = command.parse(&elements).ok_or_else(|| format!("no words: {elements:?}"))?;
        same("words", &parsed, &expected)?;
        self.compare(&stored)?;
        Ok(expected)
    }

    fn tally(&mut self, said: &impl std::fmt::Debug) {
        let said = format!("{said:?}");
        let word = said.split([' ', '{']).take(2).collect::<Vec<_>>().join(" ");
        let word = if said.contains("is_again: true") { "Granted again".to_owned() } else { word };
        *self.said.entry(word.trim_end().to_owned()).or_default() += 1;
    }

    /// Runs a script: what it says after the tag, and what stands in the store then.
    fn run(&mut self, command: &[u8]) -> Checked<(Vec<Reply>, Vec<Reply>)> {
        self.steps += 1;
        let mut commands = vec![self.store.at(command, self.now_us)];
        commands.extend(readings());
        let mut stored = self.store.run(&commands);
        let reply = stored.remove(0);
        let Reply::Array(mut elements) = reply else { return Err(format!("no array: {reply:?}")) };
        let tag = elements.remove(0);
        same("tag", &tag, &Reply::BulkString(TAG.into()))?;
        Ok((elements, stored))
    }

    fn expire(&mut self, keys: [&String; 2], ms: u64) {
        for key in keys {
            self.expiries_ms.insert(key.clone(), Some(ms));
        }
    }

    fn expect_expiries(&mut self, command: &Command, words: &[Word], before: &Oracle) {
        match command {
            Command::Complete(one) => {
                let was_finished =
                    matches!(before.place(&one.record_key).stored, Stored::Record(Record { kept: Some(_), .. }));
                if words == [Word::Ok] && !was_finished {
                    self.expire([&one.record_key, &one.fence_key], one.ttl_ms);
                }
            }
            Command::Release { holdings, .. } => {
                for (claim, _) in ok(&holdings.claims, words) {
                    let rests_ms =
                        [&claim.record_key, &claim.fence_key].map(|key| self.expiries_ms.get(key).copied().flatten());
                    let ms = rests_ms.into_iter().flatten().max().unwrap_or(DAY_MS);
                    self.expiries_ms.insert(claim.fence_key.clone(), Some(ms));
                }
            }
            Command::Renew(holdings) => {
                for (claim, _) in ok(&holdings.claims, words) {
                    self.expire([&claim.record_key, &claim.fence_key], lasting_ms(claim.ttl_ms, claim.lease_us));
                }
            }
        }
    }

    /// Reads everything that is stored and compares it.
    pub fn compare_all(&mut self) -> Checked<()> {
        let stored = self.store.run(&readings().collect::<Vec<_>>());
        self.compare(&stored)
    }

    /// Compares everything that is stored with what the oracle holds.
    fn compare(&mut self, stored: &[Reply]) -> Checked<()> {
        let (places, slots) = stored.split_at(2 * READINGS_OF_PLACE);
        for (ask, readings) in [key(), lock()].iter().zip(places.chunks(READINGS_OF_PLACE)) {
            let (found, rests_ms) = place(readings);
            same(&format!("place at {}", ask.record_key), &found, &self.oracle.place(&ask.record_key))?;
            self.compare_expiry(&ask.record_key, rests_ms[0])?;
            self.compare_expiry(&ask.fence_key, rests_ms[1])?;
        }
        self.compare_slots(slots)
    }

    fn compare_expiry(&self, key: &str, rest_ms: i64) -> Checked<()> {
        let set_to_ms = self.expiries_ms.get(key).copied().flatten();
        match (set_to_ms, u64::try_from(rest_ms)) {
            (Some(ms), Ok(rest_ms)) if (ms.saturating_sub(LAG_MS)..=ms).contains(&rest_ms) => Ok(()),
            // Nothing is there, or what nobody but the test has written.
            (_, Err(_)) if rest_ms == -2 => Ok(()),
            (None, Err(_)) if self.expiries_ms.contains_key(key) => Ok(()),
            (expected, _) => Err(format!("{key} lives {rest_ms} ms, not {expected:?}")),
        }
    }

    fn compare_slots(&self, readings: &[Reply]) -> Checked<()> {
        let expected = self.oracle.counts.slots.get(SLOTS).cloned().unwrap_or_default();
        let found = match &readings[0] {
            Reply::Array(pairs) => slots(pairs),
            _ => Slots::default(),
        };
        same("slots", &found, &expected)?;
        let rest_us = expected.values().max().map_or(0, |newest| newest.saturating_sub(self.now_us));
        // A renewal leaves the others' deadlines as they are; no lease lasts longer than from now on.
        let (rest_us, lives_ms) = (rest_us.min(SLOT_LEASE_US), integer(&readings[1]));
        let lives_long_enough = lives_ms >= (rest_us / 1_000) as i64;
        let may_live_for_ever = self.expiries_ms.contains_key(SLOTS);
        // At other times the clock may have stepped since, and left deadlines too far ahead.
        let is_right = if self.slots_are_touched { lives_long_enough } else { lives_ms != -1 || may_live_for_ever };
        if expected.is_empty() || is_right {
            return Ok(());
        }
        Err(format!("the slots live {lives_ms} ms and one is held for {rest_us} µs"))
    }

    /// A script that decides or renews slots sees to their expiry.
    fn slots_touched(&mut self, are_touched: bool) {
        self.slots_are_touched = are_touched;
        if are_touched {
            self.expiries_ms.remove(SLOTS);
        }
    }

    /// Lets these hold the slots, without an expiry.
    pub fn plant_slots(&mut self, slots: Slots) {
        let mut commands = vec![words(&["DEL", SLOTS])];
        for (owner, deadline) in &slots {
            commands.push(words(&["ZADD", SLOTS, &deadline.to_string(), &owner.to_string()]));
        }
        self.store.run(&commands);
        self.oracle.counts.slots.insert(SLOTS.to_owned(), slots);
        self.expiries_ms.insert(SLOTS.to_owned(), None);
    }

    /// Lets somebody else change what stands at a claim's keys, and takes it over.
    pub fn tamper(&mut self, ask: &Ask, commands: &[Vec<Vec<u8>>]) {
        let commands: Vec<_> = commands.iter().cloned().chain(readings_of_place(ask)).collect();
        let replies = self.store.run(&commands);
        let (place, rests_ms) = place(&replies[replies.len() - READINGS_OF_PLACE..]);
        self.oracle.places.insert(ask.record_key.clone(), place);
        if commands.contains(&words(&["PERSIST", SLOTS])) {
            self.expiries_ms.insert(SLOTS.to_owned(), None);
        }
        for (key, rest_ms) in [&ask.record_key, &ask.fence_key].into_iter().zip(rests_ms) {
            if rest_ms == -1 {
                self.expiries_ms.insert(key.clone(), None);
            } else if rest_ms == -2 {
                self.expiries_ms.remove(key);
            }
        }
    }
}

const READINGS_OF_PLACE: usize = 5;

fn readings_of_place(ask: &Ask) -> [Vec<Vec<u8>>; READINGS_OF_PLACE] {
    let (record, fence) = (ask.record_key.as_str(), ask.fence_key.as_str());
    [
        words(&["TYPE", record]),
        words(&["HGETALL", record]),
        words(&["GET", fence]),
        words(&["PTTL", record]),
        words(&["PTTL", fence]),
    ]
}

fn readings() -> impl Iterator<Item = Vec<Vec<u8>>> {
    let places = [key(), lock()].into_iter().flat_map(|ask| readings_of_place(&ask));
    places.chain([words(&["ZRANGE", SLOTS, "0", "-1", "WITHSCORES"]), words(&["PTTL", SLOTS])])
}

/// What stands at a claim's two keys, and how long each lives, in ms.
fn place(readings: &[Reply]) -> (Place, [i64; 2]) {
    let stored = match (&readings[0], &readings[1]) {
        (Reply::SimpleString(kind), _) if kind == b"none" => Stored::Absent,
        (Reply::SimpleString(kind), Reply::Array(pairs)) if kind == b"hash" => record(pairs),
        _ => Stored::Corrupt,
    };
    let sibling = match &readings[2] {
        Reply::BulkString(text) => Sibling::parse(text),
        _ => None,
    };
    (Place { stored, sibling }, [integer(&readings[3]), integer(&readings[4])])
}

fn decide(request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    DECIDE.push_call(false, request.limits.len(), request.limits.len() * ARGUMENTS_PER_CHARGE + 1, &mut out);
    request.limits.iter().for_each(|limit| push_bulk(limit.key.as_bytes(), &mut out));
    push_limits(request.limits.iter(), request.owner, &mut out);
    out
}

fn admit(request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    let limits = || request.limits.iter().chain(&request.replay);
    let (charges, claims) = (limits().count(), request.asks.len());
    let arguments = charges * ARGUMENTS_PER_CHARGE + 1 + claims * Ask::ARGUMENTS + 2;
    ADMIT.push_call(false, charges + claims * Ask::KEYS, arguments, &mut out);
    limits().for_each(|limit| push_bulk(limit.key.as_bytes(), &mut out));
    request.asks.iter().for_each(|ask| ask.write_keys(&mut out));
    push_limits(limits(), request.owner, &mut out);
    request.asks.iter().for_each(|ask| ask.write_arguments(&request.owner, &mut out));
    push_number(request.limits.len() as u64, &mut out);
    push_number(claims as u64, &mut out);
    out
}

/// The tag, and what the script is told of each limit.
fn push_limits<'l>(limits: impl Iterator<Item = &'l Limit>, owner: Owner, out: &mut Vec<u8>) {
    let charges: Vec<_> = limits.map(Limit::charge).collect();
    script::write_arguments(TAG.as_bytes(), owner.as_bytes(), &charges, |argument| push_bulk(argument, out));
}

fn ok<'c>(claims: &'c [HeldClaim], words: &'c [Word]) -> impl Iterator<Item = (&'c HeldClaim, &'c Word)> {
    claims.iter().zip(words).filter(|(_, word)| **word == Word::Ok)
}

fn act(command: &Command) -> &'static str {
    match command {
        Command::Complete(_) => "complete",
        Command::Release { .. } => "release",
        Command::Renew(_) => "renew",
    }
}

fn lasting_ms(ttl_ms: u64, lease_us: u64) -> u64 {
    ttl_ms.max(lease_us.div_ceil(1_000) + 1_000)
}

fn record(pairs: &[Reply]) -> Stored {
    let pairs: Vec<Vec<u8>> = pairs.iter().cloned().map(bulk).collect();
    let field = |name: &str| pairs.chunks(2).find(|pair| pair[0] == name.as_bytes()).map(|pair| pair[1].as_slice());
    Record::parse(field).map_or(Stored::Corrupt, Stored::Record)
}

fn slots(pairs: &[Reply]) -> Slots {
    let texts: Vec<Vec<u8>> = pairs.iter().cloned().map(bulk).collect();
    let pair = |pair: &[Vec<u8>]| {
        let score = std::str::from_utf8(&pair[1]).expect("a score").parse().expect("a whole score");
        (Owner::parse(&pair[0]).expect("an owner"), score)
    };
    texts.chunks(2).map(pair).collect()
}

fn integer(reply: &Reply) -> i64 {
    match reply {
        Reply::Integer(number) => *number,
        other => panic!("no integer: {other:?}"),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Checked<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: the store\n{found:?}\nRust\n{expected:?}"))
}
