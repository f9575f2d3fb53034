//! What clients are told, to the letter.

use lockkeeper_core::algorithm::{State, decide};
use lockkeeper_core::decision::{Answer, GrpcStatus};
use lockkeeper_core::engine::Engine;
use lockkeeper_core::store::StoreFailure;
use serde_json::{Value, json};

use crate::support::*;

const SECOND_US: u64 = 1_000_000;

fn body(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("a JSON body")
}

#[test]
fn a_429_is_a_problem_that_names_the_violated_limits() {
    let engine = engine_of(&[limit("a"), limit("b"), limit("c")].join(","), "");
    let denies = (false, 0, 2 * SECOND_US, 2 * SECOND_US);
    let decision = decided(&engine, &[], &[denies, (true, 4, SECOND_US, 0), denies]);
    let answer = answer(&decision);
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests",
        "status": 429,
        "violated-policies": ["a", "c"],
    });
    assert_eq!(body(answer), expected);
    assert_eq!(answer.status, 429);
    assert_eq!(answer.grpc_status, GrpcStatus::ResourceExhausted);
    assert_eq!(answer.grpc_message, "rate limit exceeded: a, c");
    let headers: Vec<(&str, &str)> = answer.headers.iter().map(|(name, value)| (&**name, value.as_str())).collect();
    let expected = [
        ("content-type", "application/problem+json"),
        ("cache-control", "no-store"),
        ("retry-after", "2"),
        ("ratelimit", r#""a";r=0;t=2, "b";r=4;t=1, "c";r=0;t=2"#),
        ("ratelimit-policy", r#""a";q=10;w=60, "b";q=10;w=60, "c";q=10;w=60"#),
    ];
    assert_eq!(headers, expected);
}

#[test]
fn retry_after_is_a_whole_number_of_seconds_rounded_up_and_at_least_one() {
    let engine = engine_of(&[limit("a"), limit("b")].join(","), "");
    let rows = [
        (0, 0, "1"),
        (1, 0, "1"),
        (999_999, 0, "1"),
        (1_000_000, 0, "1"),
        (1_000_001, 0, "2"),
        (47_660_000, 1, "48"),
        (1, 59_000_001, "60"),
        (i64::MAX as u64, 1, "9223372036855"),
    ];
    for (first_us, second_us, expected) in rows {
        let decision = decided(&engine, &[], &[(false, 0, first_us, first_us), (false, 0, second_us, second_us)]);
        assert_eq!(header(&answer(&decision).headers, "retry-after"), Some(expected), "{first_us} µs, {second_us} µs");
    }
}

#[test]
fn the_fields_say_what_each_algorithm_grants() {
    let rows = [
        (r#""algorithm": "token_bucket", "capacity": 10, "refill": "5/s""#, r#""l";q=10;w=2"#),
        (r#""algorithm": "token_bucket", "capacity": 10, "refill": "3/s""#, r#""l";q=10;w=4"#),
        (r#""algorithm": "token_bucket", "capacity": 1, "refill": "2/s""#, r#""l";q=1"#),
        (r#""algorithm": "token_bucket", "capacity": 1000, "refill": "1/12s""#, r#""l";q=1000;w=12000"#),
        (r#""algorithm": "fixed_window", "limit": 5, "window": "60s""#, r#""l";q=5;w=60"#),
        (r#""algorithm": "fixed_window", "limit": 5, "window": "1500ms""#, r#""l";q=5;w=2"#),
        (r#""algorithm": "fixed_window", "limit": 5, "window": "999ms""#, r#""l";q=5"#),
        (r#""algorithm": "sliding_window", "limit": 5, "window": "1h""#, r#""l";q=5;w=3600"#),
        (r#""algorithm": "sliding_window_counter", "limit": 5, "window": "366d""#, r#""l";q=5;w=31622400"#),
    ];
    for (numbers, policy) in rows {
        let engine = engine_of(&format!(r#"{{"name": "l", {numbers}, "key": ["method"]}}"#), "");
        let decision = decided(&engine, &[], &[(true, 4, 1_200_000, 0)]);
        let headers = response_headers(&decision);
        assert_eq!(header(headers, "ratelimit-policy"), Some(policy), "{numbers}");
        assert_eq!(header(headers, "ratelimit"), Some(r#""l";r=4;t=2"#), "{numbers}");
        assert_eq!(headers.len(), 2);
    }
}

#[test]
fn nothing_is_said_about_quota_where_the_file_says_off() {
    let engine = engine(&format!(
        r#"{{"version": 1, "rate_limit_headers": "off", "policies": {{"p": {{"limits": [{}]}}}}, "default_policy": "p"}}"#,
        limit("w")
    ));
    assert_eq!(response_headers(&decided(&engine, &[], &[(true, 4, 1, 0)])), []);
    let denied = decided(&engine, &[], &[(false, 0, 1, 1)]);
    let names: Vec<&str> = answer(&denied).headers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["content-type", "cache-control", "retry-after"]);
}

#[test]
fn a_503_names_the_limits_that_could_not_be_checked() {
    let skipped = limit("skipped")
        .replace("constant:all", "header:x")
        .replace("\"key\"", "\"on_missing_key\": \"skip\", \"key\"");
    let limits = [skipped, shadow("shadow"), limit("w")].join(",");
    let engine = engine_of(&limits, r#", "limits_on_store_failure": "deny""#);
    let decision = decision(call(begin(&engine, &[None])).resume(Err(StoreFailure::Unknown)));
    let answer = answer(&decision);
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        "title": "Rate limits cannot be checked at the moment",
        "status": 503,
        "violated-policies": ["w"],
    });
    assert_eq!(body(answer), expected);
    assert_eq!((answer.status, answer.grpc_status), (503, GrpcStatus::Unavailable));
    let headers: Vec<(&str, &str)> = answer.headers.iter().map(|(name, value)| (&**name, value.as_str())).collect();
    let expected = [("content-type", "application/problem+json"), ("cache-control", "no-store"), ("retry-after", "1")];
    assert_eq!(headers, expected);
}

#[test]
fn grpc_codes_are_those_of_the_protocol() {
    let codes = [GrpcStatus::InvalidArgument, GrpcStatus::ResourceExhausted, GrpcStatus::Unavailable];
    assert_eq!(codes.map(|code| code as i32), [3, 8, 14]);
}

/// Decides requests at `now_us` by the algorithms themselves: Retry-After, or what remains.
fn drive(engine: &Engine, state: &mut [State], now_us: u64) -> Result<u64, String> {
    let local = local(call(begin(engine, &[])).resume(Err(StoreFailure::NotSent)));
    let charges: Vec<_> = local.charges().into_iter().map(|one| one.charge).collect();
    let decided = decide(&charges, state, now_us);
    let remaining = decided.verdicts[0].remaining;
    let decision = decision(local.resume(&uncontended(decided)));
    match &decision.action {
        lockkeeper_core::decision::Action::Forward { .. } => Ok(remaining),
        lockkeeper_core::decision::Action::Answer(answer) => {
            assert_eq!(remaining, 0, "nothing remains on a refused request");
            assert!(header(&answer.headers, "ratelimit").is_some_and(|field| field.contains(";r=0;")));
            Err(header(&answer.headers, "retry-after").expect("Retry-After").to_owned())
        }
    }
}

#[test]
fn hdr_01_retry_after_of_a_half_second_wait_is_one_and_of_a_window_its_rest() {
    let bucket = r#"{"name": "b", "algorithm": "token_bucket", "capacity": 1, "refill": "2/s", "key": ["method"]}"#;
    let engine = engine_of(bucket, "");
    let mut state = [State::Absent];
    let came: Vec<_> = (0..2).map(|_| drive(&engine, &mut state, 0)).collect();
    assert_eq!(came, [Ok(0), Err("1".to_owned())]);

    let window = r#"{"name": "w", "algorithm": "fixed_window", "limit": 5, "window": "60s", "key": ["method"]}"#;
    let engine = engine_of(window, "");
    let mut state = [State::Absent];
    let came: Vec<_> = (0..8).map(|_| drive(&engine, &mut state, 12 * SECOND_US)).collect();
    let admitted = (0..5).rev().map(Ok);
    assert_eq!(came, admitted.chain(std::iter::repeat_n(Err("48".to_owned()), 3)).collect::<Vec<_>>());
}

#[test]
fn hdr_02_obeying_retry_after_works_and_a_second_earlier_does_not() {
    let numbers = [
        r#""algorithm": "fixed_window", "limit": 5, "window": "60s""#,
        r#""algorithm": "sliding_window", "limit": 5, "window": "60s""#,
        r#""algorithm": "sliding_window_counter", "limit": 5, "window": "60s""#,
        r#""algorithm": "token_bucket", "capacity": 5, "refill": "1/12s""#,
    ];
    for numbers in numbers {
        let engine = engine_of(&format!(r#"{{"name": "l", {numbers}, "key": ["method"]}}"#), "");
        let mut state = [State::Absent];
        (0..5).for_each(|_| assert!(drive(&engine, &mut state, 12 * SECOND_US).is_ok()));
        let denied_us = 12_340_000;
        let retry_after = drive(&engine, &mut state, denied_us).expect_err("denied");
        let wait_us = retry_after.parse::<u64>().expect("whole seconds") * SECOND_US;
        let early = drive(&engine, &mut state.clone(), denied_us + wait_us - SECOND_US);
        assert!(early.is_err(), "{numbers}: {retry_after} s is padded");
        let obeyed = drive(&engine, &mut state, denied_us + wait_us);
        assert!(obeyed.is_ok(), "{numbers}: {retry_after} s is too short");
    }
}
