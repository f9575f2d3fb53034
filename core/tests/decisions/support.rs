//! Loads policies, begins requests, writes replies.

use lockkeeper_core::admission::Arrival;
use lockkeeper_core::algorithm::{self, Verdict};
use lockkeeper_core::call::Call;
use lockkeeper_core::claim::Owner;
use lockkeeper_core::decision::{Action, Answer, Decision, Header};
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::local::LocalDecision;
use lockkeeper_core::local_call::LocalCall;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::resp::{Decoder, Reply};

/// An engine for a whole policy file.
pub fn engine(json: &str) -> Engine {
    let policies = PolicySet::from_json(json.as_bytes(), LoadOptions::default());
    Engine::new(policies.unwrap_or_else(|errors| panic!("the policy does not load:\n{errors}")))
}

/// An engine whose only policy, the default one, has these limits and further members.
pub fn engine_of(limits: &str, more: &str) -> Engine {
    let policy = format!(r#"{{"limits": [{limits}]{more}}}"#);
    engine(&format!(r#"{{"version": 1, "policies": {{"p": {policy}}}, "default_policy": "p"}}"#))
}

/// A limit of 10 per minute for all requests together.
pub fn limit(name: &str) -> String {
    format!(
        r#"{{"name": "{name}", "algorithm": "fixed_window", "limit": 10, "window": "1m", "key": ["constant:all"]}}"#
    )
}

/// The same limit, measuring only.
pub fn shadow(name: &str) -> String {
    limit(name).replace("\"key\"", "\"enforce\": false, \"key\"")
}

/// Begins `GET http://api.example.com/` with these attribute values.
pub fn begin(engine: &Engine, values: &[Option<&[u8]>]) -> Step {
    let selection = engine.select("GET", "api.example.com", "/");
    assert_eq!(engine.attributes(&selection).len(), values.len(), "a value for each attribute");
    let values: Vec<Option<Vec<u8>>> = values.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
    let arrival = Arrival { owner: Some(Owner::new([7; 16])), ..Arrival::default() };
    engine.begin_arrived(&selection, &values, &arrival)
}

pub fn call(step: Step) -> Call {
    match step {
        Step::Call(call) => call,
        other => panic!("expected a call to the store, got {other:?}"),
    }
}

pub fn local(step: Step) -> LocalCall {
    match step {
        Step::Local(local) => local,
        other => panic!("expected a local decision, got {other:?}"),
    }
}

pub fn decision(step: Step) -> Decision {
    match step {
        Step::Decide(decision) => decision,
        other => panic!("expected a decision, got {other:?}"),
    }
}

pub fn answer(decision: &Decision) -> &Answer {
    match &decision.action {
        Action::Answer(answer) => answer,
        other => panic!("expected an answer, got {other:?}"),
    }
}

/// The fields that a forwarded request's response gets.
pub fn response_headers(decision: &Decision) -> &[Header] {
    match &decision.action {
        Action::Forward { response_headers } => response_headers,
        other => panic!("expected to forward, got {other:?}"),
    }
}

pub fn header<'a>(headers: &'a [Header], name: &str) -> Option<&'a str> {
    let values: Vec<&str> = headers.iter().filter(|(n, _)| *n == name).map(|(_, value)| value.as_str()).collect();
    assert!(values.len() <= 1, "{name} twice: {values:?}");
    values.first().copied()
}

/// One reply from its bytes.
pub fn parse(bytes: impl AsRef<[u8]>) -> Reply {
    let mut decoder = Decoder::default();
    decoder.extend(bytes.as_ref());
    decoder.next_reply().expect("RESP").expect("a whole reply")
}

/// The script's reply with these verdicts: admitted, remaining, reset in µs, retry in µs.
pub fn reply(verdicts: &[(bool, u64, u64, u64)]) -> Reply {
    let mut bytes = format!("*{}\r\n$1\r\nt\r\n", 1 + 4 * verdicts.len());
    for (admitted, remaining, reset_us, retry_us) in verdicts {
        bytes += &format!(":{}\r\n:{remaining}\r\n:{reset_us}\r\n:{retry_us}\r\n", u8::from(*admitted));
    }
    parse(bytes)
}

/// The decision that the store's reply with these verdicts leads to.
pub fn decided(engine: &Engine, values: &[Option<&[u8]>], verdicts: &[(bool, u64, u64, u64)]) -> Decision {
    decision(call(begin(engine, values)).resume(Ok(reply(verdicts))))
}

/// What the local limiter decides with these verdicts when no other worker interferes.
pub fn local_decision(verdicts: &[(bool, u64, u64, u64)]) -> LocalDecision {
    let verdict = |(admitted, remaining, reset_us, retry_us)| Verdict { admitted, remaining, reset_us, retry_us };
    let verdicts: Vec<Verdict> = verdicts.iter().copied().map(verdict).collect();
    uncontended(algorithm::Decision { allowed: verdicts.iter().all(|verdict| verdict.admitted), verdicts })
}

pub fn uncontended(decision: algorithm::Decision) -> LocalDecision {
    LocalDecision { decision, overflowed: 0, mismatches: 0, contended: false, lost_refunds: 0 }
}

/// The words of the one command that a call writes.
pub fn command(call: &Call, tag: &str) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    call.write(tag, &mut bytes);
    let Reply::Array(words) = parse(bytes) else { panic!("a command is an array") };
    words
        .into_iter()
        .map(|word| match word {
            Reply::BulkString(bytes) => bytes,
            other => panic!("{other:?} is no bulk string"),
        })
        .collect()
}
