//! A policy with everything that can be held, requests with a key, and the store's replies as words.

use lockkeeper_core::admission::{Arrival, Body};
use lockkeeper_core::call::Call;
use lockkeeper_core::claim::Owner;
use lockkeeper_core::decision::{Action, Answer, Claimed, Decision};
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::identity::Attribute;
use lockkeeper_core::lease::LeaseCall;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::resp::{Decoder, Reply};

pub const OWNER: &str = "07070707070707070707070707070707";
/// A fence as the upstream sees it.
pub const FENCE: &str = "1796083200123456";

pub const IDEMPOTENCY: &str =
    r#""idempotency": {"scope": ["header:authorization"], "on_unknown": "reject", "replay_limit": false}"#;
pub const LOCK: &str =
    r#""lock": {"key": ["header:x-account"], "on_missing_key": "skip", "fence_header": "lock-token"}"#;
pub const SLOTS: &str = r#""concurrency": {"limit": 3, "key": ["constant:all"]}"#;
pub const LIMIT: &str =
    r#""limits": [{"name": "l", "algorithm": "fixed_window", "limit": 10, "window": "1m", "key": ["constant:all"]}]"#;

/// An engine whose default policy has these members.
pub fn engine(members: &[&str]) -> Engine {
    let json = format!(r#"{{"version": 1, "policies": {{"p": {{{}}}}}, "default_policy": "p"}}"#, members.join(", "));
    let policies = PolicySet::from_json(json.as_bytes(), LoadOptions::default());
    Engine::new(policies.unwrap_or_else(|errors| panic!("the policy does not load:\n{errors}")))
}

/// Begins a POST without a body, with a key, a credential and an account.
pub fn begin(engine: &Engine) -> Step {
    begin_with(engine, Body::Absent)
}

pub fn begin_with(engine: &Engine, body: Body) -> Step {
    let selection = engine.select("POST", "api.example.com", "/payments?a=1");
    let value = |attribute: &Attribute| match attribute {
        Attribute::Header(name) => match name.as_str() {
            "idempotency-key" => Some(b"\"key-1\"".to_vec()),
            "authorization" => Some(b"Bearer x".to_vec()),
            "x-account" => Some(b"4711".to_vec()),
            _ => None,
        },
        _ => None,
    };
    let values: Vec<_> = engine.attributes(&selection).iter().map(value).collect();
    let arrival = Arrival { owner: Some(Owner::new([7; 16])), floor: 5, body };
    engine.begin_arrived(&selection, &values, &arrival)
}

/// What kind of step it is.
pub fn name(step: &Step) -> String {
    format!("{step:?}").split(['(', ' ']).next().unwrap_or_default().to_owned()
}

pub fn call(step: Step) -> Call {
    match step {
        Step::Call(call) => call,
        other => panic!("expected a call to the store, got {}", name(&other)),
    }
}

pub fn decision(step: Step) -> Decision {
    match step {
        Step::Decide(decision) => decision,
        other => panic!("expected a decision, got {}", name(&other)),
    }
}

pub fn claimed(decision: &Decision) -> &Claimed {
    decision.claimed.as_deref().expect("something about claims")
}

pub fn answer(decision: &Decision) -> &Answer {
    match &decision.action {
        Action::Answer(answer) => answer,
        other => panic!("expected an answer, got {other:?}"),
    }
}

pub fn forwards(decision: &Decision) -> bool {
    matches!(decision.action, Action::Forward { .. })
}

pub fn header<'a>(decision: &'a Decision, name: &str) -> Option<&'a str> {
    answer(decision).headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}

/// A reply of these words after the tag: bulk strings after `$`, else integers.
pub fn reply(words: &str) -> Reply {
    let element = |word: &str| match word.strip_prefix('$') {
        Some(text) => Reply::BulkString(text.into()),
        None => Reply::Integer(word.parse().expect("an integer")),
    };
    let tag = Reply::BulkString(b"t".to_vec());
    Reply::Array([tag].into_iter().chain(words.split_whitespace().map(element)).collect())
}

/// The words of a call's command.
pub fn command(call: &Call) -> Vec<String> {
    let mut bytes = Vec::new();
    call.write("t", &mut bytes);
    texts(&bytes)
}

/// The words of a command about what is held, after the script.
pub fn told(call: &LeaseCall) -> Vec<String> {
    let mut bytes = Vec::new();
    call.write("t", &mut bytes);
    texts(&bytes)
}

fn texts(bytes: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::default();
    decoder.extend(bytes);
    let Ok(Some(Reply::Array(words))) = decoder.next_reply() else { panic!("no command") };
    assert_eq!(decoder.next_reply(), Ok(None), "a second command");
    let text = |word| match word {
        Reply::BulkString(bytes) => String::from_utf8(bytes).expect("UTF-8"),
        other => panic!("{other:?} is no bulk string"),
    };
    words.into_iter().map(text).collect()
}
