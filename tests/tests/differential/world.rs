//! The same decisions, taken twice in virtual time: by the script in a real Redis and by the Rust algorithms.
//! Every step compares the answers, the stored texts and the lifetimes.

use std::collections::HashMap;
use std::mem::Discriminant;

use lockkeeper_core::algorithm::{Algorithm, Charge, Decision, State, Verdict, decide};
use lockkeeper_core::script;

use crate::key::{Key, lifetime_ms};
use crate::store::Store;
use crate::wire::{Words, decision, read, texts, words};

/// Longer lists are compared only now and then.
const LIST_COMPARED: u64 = 128;

/// One limit as the tests use it: a key, numbers, a cost.
#[derive(Clone, Debug)]
pub struct Limit {
    pub key: String,
    pub algorithm: Algorithm,
    pub cost: u64,
    pub enforce: bool,
}

impl Limit {
    pub fn new(key: &str, algorithm: impl Into<Algorithm>) -> Self {
        Self { key: key.into(), algorithm: algorithm.into(), cost: 1, enforce: true }
    }

    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    pub fn shadow(self) -> Self {
        Self { enforce: false, ..self }
    }

    fn charge(&self) -> Charge<'_> {
        Charge { algorithm: &self.algorithm, cost: self.cost, enforce: self.enforce }
    }
}

pub struct World {
    pub store: Store,
    script: String,
    pub keys: HashMap<String, Key>,
    pub now_us: u64,
    pub steps: u64,
    /// What happened to each kind of algorithm.
    pub tallies: HashMap<Discriminant<Algorithm>, Tally>,
}

/// How often a kind of algorithm admitted, denied, and brought back a state from the future.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub admitted: u64,
    pub denied: u64,
    pub healed: u64,
}

impl World {
    pub fn new(now_us: u64) -> Self {
        let whole = script::DECIDE.text();
        let prelude = whole.lines().find(|line| line.contains("'TIME'")).expect("the line that reads time");
        assert_eq!(whole.matches(prelude).count(), 1);
        let text = whole.replace(prelude, "local time = { ARGV[#ARGV - 1], ARGV[#ARGV] }");
        let mut store = Store::start();
        let loaded = store.run(&[words(&["SCRIPT", "LOAD", &text])]);
        let [script] = texts(&loaded[0]).try_into().expect("the script compiles");
        Self { store, script, keys: HashMap::new(), now_us, steps: 0, tallies: HashMap::new() }
    }

    /// Forgets everything.
    pub fn clear(&mut self, now_us: u64) {
        self.keys.clear();
        self.now_us = now_us;
        self.store.run(&[vec!["FLUSHALL".into()]]);
    }

    pub fn at(&mut self, now_us: u64) -> &mut Self {
        self.now_us = now_us;
        self
    }

    pub fn one(&mut self, limit: &Limit) -> Verdict {
        self.decide(std::slice::from_ref(limit)).verdicts[0]
    }

    /// How many of `count` requests in a row are admitted.
    pub fn admitted(&mut self, count: u64, limit: &Limit) -> u64 {
        (0..count).filter(|_| self.one(limit).admitted).count() as u64
    }

    /// What the Rust side holds for a key.
    pub fn state(&self, key: &str) -> State {
        self.keys.get(key).map(|key| key.oracle.clone()).unwrap_or_default()
    }

    /// Texts the store holds at a key.
    pub fn texts(&mut self, key: &str, algorithm: &Algorithm) -> Vec<String> {
        texts(&self.store.run(&[read(key, algorithm)])[0])
    }

    /// Decides twice, compares, and returns what both said.
    pub fn decide(&mut self, limits: &[Limit]) -> Decision {
        self.steps += 1;
        let mut commands: Vec<Words> = limits.iter().filter_map(|limit| self.before(limit)).collect();
        let script_at = commands.len();
        commands.push(self.call(limits));
        for limit in limits {
            commands.push(words(&["PTTL", &limit.key]));
            commands.push(self.reading(limit));
            commands.push(words(&["PERSIST", &limit.key]));
        }
        let replies = self.store.run(&commands);
        let found = decision(&replies[script_at], limits);

        let charges: Vec<Charge<'_>> = limits.iter().map(Limit::charge).collect();
        let before: Vec<State> = limits.iter().map(|limit| self.state(&limit.key)).collect();
        let mut states = before.clone();
        let expected = decide(&charges, &mut states, self.now_us);
        assert_eq!(
            found, expected,
            "the script (left) and Rust (right) differ at {} on {limits:?} with {before:?}",
            self.now_us
        );
        for (index, limit) in limits.iter().enumerate() {
            let admitted = expected.verdicts[index].admitted;
            let charged = expected.allowed && admitted;
            let written = charged || states[index] != before[index];
            let kind = std::mem::discriminant(&limit.algorithm);
            let tally = self.tallies.entry(kind).or_default();
            tally.admitted += u64::from(admitted);
            tally.denied += u64::from(!admitted);
            tally.healed += u64::from(written && !charged);
            let [lifetime, stored] = [0, 1].map(|part| &replies[script_at + 1 + 3 * index + part]);
            self.after(limit, std::mem::take(&mut states[index]), written, lifetime, stored);
        }
        expected
    }

    /// Makes the store's lifetime of a key the virtual one, or lets the key vanish when that has passed.
    fn before(&mut self, limit: &Limit) -> Option<Words> {
        let key = self.keys.get_mut(&limit.key)?;
        key.reread(&limit.algorithm);
        let vanishes_us = key.vanishes_us?;
        if self.now_us >= vanishes_us {
            let fresh_at_us = key.algorithm.fresh_at_us(&key.oracle, self.now_us);
            assert!(fresh_at_us <= self.now_us, "{key:?} vanishes at {} before it is worth nothing", self.now_us);
            self.keys.remove(&limit.key);
            return Some(words(&["DEL", &limit.key]));
        }
        let rest_ms = key.rest_ms(self.now_us)?;
        Some(words(&["PEXPIRE", &limit.key, &rest_ms.to_string()]))
    }

    fn call(&self, limits: &[Limit]) -> Words {
        let charges: Vec<Charge<'_>> = limits.iter().map(Limit::charge).collect();
        let mut call = words(&["EVALSHA", &self.script, &limits.len().to_string()]);
        call.extend(limits.iter().map(|limit| limit.key.clone().into_bytes()));
        call.extend(script::arguments(b"tag", &charges));
        let clock = [self.now_us / 1_000_000, self.now_us % 1_000_000];
        call.extend(clock.map(|part| part.to_string().into_bytes()));
        call
    }

    fn reading(&self, limit: &Limit) -> Words {
        match self.state(&limit.key) {
            State::SlidingWindow(log) if log.entries.len() as u64 > LIST_COMPARED && !self.steps.is_multiple_of(64) => {
                words(&["PING"])
            }
            _ => read(&limit.key, &limit.algorithm),
        }
    }

    fn after(&mut self, limit: &Limit, oracle: State, written: bool, lifetime: &redis::Value, stored: &redis::Value) {
        let redis::Value::Int(found_ms) = *lifetime else { panic!("PTTL said {lifetime:?}") };
        let was = self.keys.remove(&limit.key);
        if found_ms == -2 {
            assert_eq!(oracle, State::Absent, "nothing is stored for {limit:?} at {}", self.now_us);
            return;
        }
        let found_ms = u64::try_from(found_ms).unwrap_or_else(|_| panic!("{limit:?} has no lifetime"));
        let fresh_at_us = limit.algorithm.fresh_at_us(&oracle, self.now_us);
        let needed_ms = match fresh_at_us.saturating_sub(self.now_us) {
            0 => 0,
            needed_us => needed_us / 1000 + 1,
        };
        let lives_ms = lifetime_ms(needed_ms, was.as_ref(), self.now_us, found_ms)
            .unwrap_or_else(|| panic!("{limit:?} lives {found_ms} ms, needs {needed_ms} ms, after {was:?}"));
        let planted = !written && was.is_some_and(|key| key.planted);
        if !planted && *stored != redis::Value::SimpleString("PONG".into()) {
            assert_eq!(texts(stored), oracle.texts(), "stored by the script (left) and by Rust (right) for {limit:?}");
        }
        let vanishes_us = Some(self.now_us + lives_ms * 1000);
        self.keys.insert(limit.key.clone(), Key { oracle, algorithm: limit.algorithm.clone(), vanishes_us, planted });
    }
}
