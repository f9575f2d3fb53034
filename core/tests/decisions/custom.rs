//! Answers in a policy's own words.

use lockkeeper_core::decision::{Answer, GrpcStatus};
use lockkeeper_core::engine::Engine;
use lockkeeper_core::store::StoreFailure;

use crate::support::*;

const DENIES: (bool, u64, u64, u64) = (false, 0, 2_000_000, 2_000_000);
const ADMITS: (bool, u64, u64, u64) = (true, 5, 1_000_000, 0);

/// Policies `a` and `b`, one limit each, with these further members; every request has both.
fn two(file: &str, a: &str, b: &str) -> Engine {
    let policy = |name: &str, more: &str| {
        format!(r#""{name}": {{"limits": [{}], "limits_on_store_failure": "deny"{more}}}"#, limit(name))
    };
    engine(&format!(
        r#"{{"version": 1{file}, "policies": {{{}, {}}}, "routes": [{{"match": {{}}, "policies": ["a", "b"]}}]}}"#,
        policy("a", a),
        policy("b", b)
    ))
}

fn denied(engine: &Engine, verdicts: &[(bool, u64, u64, u64)]) -> Answer {
    answer(&decided(engine, &[], verdicts)).clone()
}

fn unavailable(engine: &Engine) -> Answer {
    answer(&decision(call(begin(engine, &[])).resume(Err(StoreFailure::Unknown)))).clone()
}

#[test]
fn a_denial_has_the_status_body_headers_and_code_of_the_policy_that_is_reported() {
    let words = r#", "denied": {"status": 503, "content_type": "application/json", "body": "{\"slow\":true}",
        "headers": {"X-Reason": "slow down"}, "grpc_status": "unavailable"}"#;
    let engine = two("", words, "");
    let own = denied(&engine, &[DENIES, ADMITS]);
    assert_eq!((own.status, &*own.text(), own.grpc_status), (503, r#"{"slow":true}"#, GrpcStatus::Unavailable));
    let expected = [
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
        ("retry-after", "2"),
        ("x-reason", "slow down"),
    ];
    for (name, value) in expected {
        assert_eq!(header(&own.headers, name), Some(value));
    }
    assert!(header(&own.headers, "ratelimit").is_some());
    let other = denied(&engine, &[ADMITS, DENIES]);
    assert_eq!((other.status, other.grpc_status), (429, GrpcStatus::ResourceExhausted));
    assert_eq!(header(&other.headers, "content-type"), Some("application/problem+json"));
    assert_eq!(header(&other.headers, "x-reason"), None);
}

#[test]
fn a_status_alone_keeps_the_problem_and_stands_in_it() {
    let answer = denied(&two("", r#", "denied": {"status": 420}"#, ""), &[DENIES, ADMITS]);
    assert_eq!(answer.status, 420);
    let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!((&body["status"], &body["violated-policies"]), (&420.into(), &serde_json::json!(["a"])));
}

#[test]
fn the_file_words_the_answers_of_policies_that_say_nothing() {
    let engine = two(
        r#", "denied": {"body": "file"}, "unavailable": {"status": 500, "body": "down"}"#,
        r#", "denied": {"body": "own"}"#,
        "",
    );
    assert_eq!(denied(&engine, &[DENIES, ADMITS]).text(), "own");
    let of_file = denied(&engine, &[ADMITS, DENIES]);
    assert_eq!(of_file.text(), "file");
    assert_eq!(header(&of_file.headers, "content-type"), Some("text/plain; charset=utf-8"));
    let down = unavailable(&engine);
    assert_eq!((down.status, &*down.text(), down.grpc_status), (500, "down", GrpcStatus::Unavailable));
    assert_eq!(header(&down.headers, "retry-after"), Some("1"));
}
