//! The same decisions, taken twice in virtual time: by the script in a real Redis and by the Rust algorithms.
//! Every step compares the answers, the stored texts and the lifetimes.

use std::collections::HashMap;

use lockkeeper_core::algorithm::{Algorithm, Charge, Decision, State, Verdict, decide};
use lockkeeper_core::script;

use crate::store::Store;
use crate::wire::{Words, decision, read, texts, words};

/// The script keeps a key at least this long beyond the time its state is worth anything.
const MARGIN_MS: u64 = 1000;
/// And this long when it sets an expiry.
const RENEWED_MS: u64 = 3000;
/// Real time passes too, between a step and the reading of its lifetimes.
const LAG_MS: u64 = 900;
/// The store's own clock must not let a key vanish within a step.
pub const REST_MS_MIN: u64 = 50;
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
        Self {
            key: key.into(),
            algorithm: algorithm.into(),
            cost: 1,
            enforce: true,
        }
    }

    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    pub fn shadow(self) -> Self {
        Self {
            enforce: false,
            ..self
        }
    }

    fn charge(&self) -> Charge<'_> {
        Charge {
            algorithm: &self.algorithm,
            cost: self.cost,
            enforce: self.enforce,
        }
    }
}

/// What is known of one key.
#[derive(Clone, Debug)]
pub struct Key {
    pub oracle: State,
    /// Who wrote it.
    pub algorithm: Algorithm,
    /// Virtual time at which it vanishes; `None` is never.
    pub vanishes_us: Option<u64>,
    /// What is stored is foreign, so the oracle does not know its text.
    pub planted: bool,
}

pub struct World {
    pub store: Store,
    script: String,
    pub keys: HashMap<String, Key>,
    pub now_us: u64,
    pub steps: u64,
}

impl World {
    pub fn new(now_us: u64) -> Self {
        let prelude = script::DECIDE
            .text
            .lines()
            .find(|line| line.contains("'TIME'"))
            .expect("the line that reads time");
        assert_eq!(script::DECIDE.text.matches(prelude).count(), 1);
        let text = script::DECIDE
            .text
            .replace(prelude, "local time = { ARGV[#ARGV - 1], ARGV[#ARGV] }");
        let mut store = Store::start();
        let loaded = store.run(&[words(&["SCRIPT", "LOAD", &text])]);
        let [script] = texts(&loaded[0]).try_into().expect("the script compiles");
        Self {
            store,
            script,
            keys: HashMap::new(),
            now_us,
            steps: 0,
        }
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
        self.keys
            .get(key)
            .map(|key| key.oracle.clone())
            .unwrap_or_default()
    }

    /// Texts the store holds at a key.
    pub fn texts(&mut self, key: &str, algorithm: &Algorithm) -> Vec<String> {
        texts(&self.store.run(&[read(key, algorithm)])[0])
    }

    /// Decides twice, compares, and returns what both said.
    pub fn decide(&mut self, limits: &[Limit]) -> Decision {
        self.steps += 1;
        let mut commands: Vec<Words> = limits
            .iter()
            .filter_map(|limit| self.before(limit))
            .collect();
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
            let written = states[index] != before[index]
                || expected.allowed && expected.verdicts[index].admitted;
            let [lifetime, stored] = [0, 1].map(|part| &replies[script_at + 1 + 3 * index + part]);
            self.after(
                limit,
                std::mem::take(&mut states[index]),
                written,
                lifetime,
                stored,
            );
        }
        expected
    }

    /// Makes the store's lifetime of a key the virtual one, or lets the key vanish when that has passed.
    fn before(&mut self, limit: &Limit) -> Option<Words> {
        let key = self.keys.get_mut(&limit.key)?;
        if std::mem::discriminant(&key.algorithm) != std::mem::discriminant(&limit.algorithm) {
            key.oracle = reread(&key.oracle, &limit.algorithm);
            key.planted = true;
        }
        let vanishes_us = key.vanishes_us?;
        if self.now_us >= vanishes_us {
            let fresh_at_us = key.algorithm.fresh_at_us(&key.oracle, self.now_us);
            assert!(
                fresh_at_us <= self.now_us,
                "{key:?} vanishes at {} before it is worth nothing",
                self.now_us
            );
            self.keys.remove(&limit.key);
            return Some(words(&["DEL", &limit.key]));
        }
        let rest_ms = rest_ms(vanishes_us, self.now_us);
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
            State::SlidingWindow(log)
                if log.entries.len() as u64 > LIST_COMPARED && !self.steps.is_multiple_of(64) =>
            {
                words(&["PING"])
            }
            _ => read(&limit.key, &limit.algorithm),
        }
    }

    fn after(
        &mut self,
        limit: &Limit,
        oracle: State,
        written: bool,
        lifetime: &redis::Value,
        stored: &redis::Value,
    ) {
        let redis::Value::Int(lifetime_ms) = *lifetime else {
            panic!("PTTL said {lifetime:?}")
        };
        let was = self.keys.remove(&limit.key);
        if lifetime_ms == -2 {
            assert_eq!(
                oracle,
                State::Absent,
                "nothing is stored for {limit:?} at {}",
                self.now_us
            );
            return;
        }
        let lifetime_ms =
            u64::try_from(lifetime_ms).unwrap_or_else(|_| panic!("{limit:?} has no lifetime"));
        let fresh_at_us = limit.algorithm.fresh_at_us(&oracle, self.now_us);
        let needed_ms = fresh_at_us
            .checked_sub(self.now_us + 1)
            .map_or(0, |us| (us + 1) / 1000 + 1);
        let rest_ms = was
            .as_ref()
            .and_then(|key| key.vanishes_us)
            .map(|vanishes_us| rest_ms(vanishes_us, self.now_us));
        let planted = was.is_some_and(|key| key.planted);
        let kept_ms = rest_ms.filter(|rest_ms| *rest_ms >= needed_ms + MARGIN_MS);
        let is_kept = |kept_ms: &u64| planted || *kept_ms < needed_ms + MARGIN_MS + LAG_MS;
        let renewed_ms = kept_ms
            .is_none_or(|it| is_kept(&it))
            .then_some(needed_ms + RENEWED_MS);
        let lives_ms = [kept_ms, renewed_ms]
            .into_iter()
            .flatten()
            .find(|expected_ms| {
                (expected_ms.saturating_sub(LAG_MS)..=*expected_ms).contains(&lifetime_ms)
            });
        let lives_ms = lives_ms.unwrap_or_else(|| {
            panic!(
                "{limit:?} at {}: lives {lifetime_ms} ms, expected {kept_ms:?} or {renewed_ms:?} ms",
                self.now_us
            )
        });
        let planted = !written && planted;
        if !planted && *stored != redis::Value::SimpleString("PONG".into()) {
            assert_eq!(
                texts(stored),
                oracle.texts(),
                "stored by the script (left) and by Rust (right) for {limit:?}"
            );
        }
        let vanishes_us = Some(self.now_us + lives_ms * 1000);
        self.keys.insert(
            limit.key.clone(),
            Key {
                oracle,
                algorithm: limit.algorithm.clone(),
                vanishes_us,
                planted,
            },
        );
    }
}

/// What another algorithm makes of a stored state. A list and a text are foreign to each other.
fn reread(state: &State, algorithm: &Algorithm) -> State {
    match (state, algorithm, state.texts().as_slice()) {
        (State::SlidingWindow(_), _, _) | (_, Algorithm::SlidingWindow(_), _) => State::Absent,
        (_, _, texts) => {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            State::parse(algorithm, &texts)
        }
    }
}

fn rest_ms(vanishes_us: u64, now_us: u64) -> u64 {
    (vanishes_us - now_us).div_ceil(1000).max(REST_MS_MIN)
}
