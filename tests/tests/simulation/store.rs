//! A store that speaks RESP and decides by the Rust algorithms; it remembers what it executed for whom.

use std::collections::HashMap;

use lockkeeper_core::algorithm::{Charge, Decision, State, Verdict, decide};
use lockkeeper_core::policy::{Limit, PolicySet};
use lockkeeper_core::resp::Reply;
use lockkeeper_core::script;

use crate::policy::{Charges, assert_kept};

/// How the store answers for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Well,
    /// Answers with this error and does nothing.
    Refuses(&'static str),
    /// Does what is asked and answers with this error, as a proxy does that lost the reply.
    LosesReplies(&'static str),
}

/// What a command with some tag led to.
#[derive(Debug)]
pub struct Execution {
    pub allowed: bool,
    pub reply: Vec<u8>,
}

pub struct Store {
    limits: Vec<Limit>,
    states: HashMap<String, State>,
    charges: HashMap<String, Charges>,
    script_is_cached: bool,
    mode: Mode,
    mode_ends_us: u64,
    /// By tag.
    pub executions: HashMap<String, Execution>,
}

impl Store {
    pub fn new(policies: &PolicySet) -> Store {
        Store {
            limits: policies.policies.iter().flat_map(|policy| policy.limits.clone()).collect(),
            states: HashMap::new(),
            charges: HashMap::new(),
            script_is_cached: false,
            mode: Mode::Well,
            mode_ends_us: 0,
            executions: HashMap::new(),
        }
    }

    /// Answers in another way until then.
    pub fn set_mode(&mut self, mode: Mode, ends_us: u64) {
        (self.mode, self.mode_ends_us) = (mode, ends_us);
    }

    pub fn flush_scripts(&mut self) {
        self.script_is_cached = false;
    }

    /// Loses everything: what was admitted before counts no more.
    pub fn restart_empty(&mut self) {
        self.assert_promises_kept();
        self.charges.clear();
        self.states.clear();
        self.script_is_cached = false;
    }

    pub fn assert_promises_kept(&self) {
        self.charges.iter().for_each(|(key, charges)| assert_kept(key, charges));
    }

    /// Answers one command.
    pub fn answer(&mut self, command: &Reply, now_us: u64) -> Vec<u8> {
        let mode = if now_us < self.mode_ends_us { self.mode } else { Mode::Well };
        if let Mode::Refuses(text) = mode {
            return error(text);
        }
        let words = words(command);
        let reply = match (words[0].as_str(), words[1].as_str()) {
            ("EVAL", text) if text == script::PROBE.text() => {
                assert_eq!(words[2..4], ["1", "sim:probe"]);
                format!("*1\r\n${}\r\n{}\r\n", words[4].len(), words[4]).into_bytes()
            }
            ("EVAL", text) if text == script::DECIDE.text() => {
                self.script_is_cached = true;
                self.execute(&words[2..], now_us)
            }
            ("EVALSHA", sha1) if sha1 == script::DECIDE.sha1 && self.script_is_cached => {
                self.execute(&words[2..], now_us)
            }
            ("EVALSHA", sha1) if sha1 == script::DECIDE.sha1 => error("NOSCRIPT No matching script. Please use EVAL."),
            (name, _) => panic!("{name} is no command of ours"),
        };
        match mode {
            Mode::LosesReplies(text) => error(text),
            _ => reply,
        }
    }

    fn execute(&mut self, words: &[String], now_us: u64) -> Vec<u8> {
        let count: usize = words[0].parse().expect("the number of keys");
        let (keys, arguments) = words[1..].split_at(count);
        let tag = arguments.first().expect("a tag");
        let limits: Vec<Limit> = keys.iter().map(|key| self.limit(key)).collect();
        let charges: Vec<Charge<'_>> = limits.iter().map(charge).collect();
        let sent: Vec<&[u8]> = arguments.iter().map(String::as_bytes).collect();
        assert_eq!(sent, script::arguments(tag.as_bytes(), &charges), "{words:?}");
        let decision = self.decide(keys, &charges, now_us);
        let mut reply = format!("*{}\r\n${}\r\n{tag}\r\n", 1 + 4 * count, tag.len());
        for Verdict { admitted, remaining, reset_us, retry_us } in decision.verdicts {
            reply += &format!(":{}\r\n:{remaining}\r\n:{reset_us}\r\n:{retry_us}\r\n", u8::from(admitted));
        }
        let execution = Execution { allowed: decision.allowed, reply: reply.clone().into_bytes() };
        let earlier = self.executions.insert(tag.clone(), execution);
        assert!(earlier.is_none(), "tag {tag} came twice");
        reply.into_bytes()
    }

    fn decide(&mut self, keys: &[String], charges: &[Charge<'_>], now_us: u64) -> Decision {
        let before: Vec<State> = keys.iter().map(|key| self.states.get(key).cloned().unwrap_or_default()).collect();
        let mut after = before.clone();
        let decision = decide(charges, &mut after, now_us);
        if !decision.allowed {
            assert_eq!(before, after, "a denial charges nothing");
        }
        for ((key, charge), verdict) in keys.iter().zip(charges).zip(&decision.verdicts) {
            if decision.allowed && verdict.admitted {
                self.charges.entry(key.clone()).or_default().push((now_us, charge.cost));
            }
        }
        self.states.extend(keys.iter().cloned().zip(after));
        decision
    }

    fn limit(&self, key: &str) -> Limit {
        let limit = self.limits.iter().find(|limit| key.starts_with(&limit.store_key_prefix));
        limit.unwrap_or_else(|| panic!("{key} is no key of these policies")).clone()
    }
}

/// The simulated limits have no overrides, and each request costs the same.
fn charge(limit: &Limit) -> Charge<'_> {
    Charge { algorithm: &limit.base.algorithm, cost: limit.cost.max(), enforce: limit.enforce }
}

fn error(text: &str) -> Vec<u8> {
    format!("-{text}\r\n").into_bytes()
}

fn words(command: &Reply) -> Vec<String> {
    let Reply::Array(words) = command else { panic!("{command:?} is no command") };
    let text = |word: &Reply| match word {
        Reply::BulkString(bytes) => String::from_utf8(bytes.clone()).expect("commands are ASCII here"),
        other => panic!("{other:?} is no bulk string"),
    };
    words.iter().map(text).collect()
}
