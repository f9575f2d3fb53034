//! Keys beside limits: what costs quota and what does not, and that answers of our own are never kept.

use crate::stage::Stage;
use crate::world::{idempotency, payment};
use lockkeeper_tests::http::Response;
use serde_json::{Value, json};
use std::time::Duration;

/// Three payments in a window of that many seconds, with keys by these further members.
fn limited(window: &str, more: Value) -> Value {
    json!({ "version": 1, "default_policy": "payments", "policies": { "payments": {
        "idempotency": idempotency(more),
        "limits": [{ "name": "all", "algorithm": "fixed_window", "limit": 3, "window": window, "key": ["constant:all"] }] } } })
}

fn statuses(stage: &Stage, payments: &[(&str, &str)]) -> Vec<u16> {
    payments.iter().map(|(key, body)| stage.send(&payment(key, body)).status).collect()
}

fn number(answer: &Response, name: &str) -> u64 {
    answer.header(name).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {answer:?}"))
}

#[test]
fn quo_53_replays_and_mismatches_cost_nothing_of_the_main_quota() {
    let stage = Stage::start_with(limited("1h", json!({})), |config| config);
    let first = stage.send(&payment("k1", "x"));
    assert!(first.header("ratelimit").is_some_and(|field| field.starts_with("\"all\";r=2;")), "{first:?}");
    let known = [("k1", "x"), ("k1", "y"), ("k1", "x"), ("k1", "x"), ("k1", "y")];
    assert_eq!(statuses(&stage, &known), [200, 422, 200, 200, 422]);
    let second = stage.send(&payment("k2", "x"));
    assert!(second.header("ratelimit").is_some_and(|field| field.starts_with("\"all\";r=1;")), "{second:?}");
    assert_eq!(statuses(&stage, &[("k3", "x"), ("k4", "x"), ("k1", "x")]), [200, 429, 200]);
    assert_eq!(stage.upstream.count(), 3);
}

#[test]
fn idm_04_a_denial_never_claims_and_is_never_kept() {
    let stage = Stage::start_with(limited("3s", json!({})), |config| config);
    let attempt = |number: u32| {
        let key = format!("k{number}");
        let answer = stage.send(&payment(&key, "x"));
        (answer.status != 200).then_some((key, answer))
    };
    let (key, denied) = (0..20).find_map(attempt).expect("a window admits three");
    assert_eq!((denied.status, denied.header("idempotent-replayed")), (429, None), "{denied:?}");
    let wait = number(&denied, "retry-after");
    let runs = stage.upstream.count();
    std::thread::sleep(Duration::from_secs(wait));
    let late = stage.send(&payment(&key, "x"));
    assert_eq!((late.status, late.header("idempotent-replayed")), (200, None), "{late:?}");
    assert_eq!(stage.upstream.count(), runs + 1);
    assert_eq!(stage.upstream.seen()[runs].header("idempotency-attempt"), Some("1"));
    assert_eq!(stage.send(&payment(&key, "x")).header("idempotent-replayed"), Some("true"));
}

#[test]
fn idm_04_an_outage_is_answered_503_and_not_kept() {
    let mut stage = Stage::start(json!({}));
    assert_eq!(statuses(&stage, &[("k1", "x")]), [200]);
    stage.redis.kill();
    let down = stage.send(&payment("k2", "x"));
    assert_eq!(down.status, 503, "{down:?}");
    assert!(down.body.contains("store-unavailable") && number(&down, "retry-after") >= 1, "{down:?}");
    assert_eq!(stage.upstream.count(), 1, "no request passes without its claim");
    stage.redis.restart().expect("Redis starts again");
    let back = lockkeeper_tests::poll::until("keys work again", Duration::from_secs(10), || {
        let answer = stage.send(&payment("k2", "x"));
        (answer.status != 503).then_some(answer)
    });
    let back = back.expect("the store is back");
    assert_eq!((back.status, back.header("idempotent-replayed")), (200, None), "{back:?}");
}

#[test]
fn quo_53_replays_have_a_limit_of_their_own_for_each_scope() {
    let rules = json!({ "replay_limit": { "capacity": 2, "refill": "1/m" } });
    let stage = Stage::start_with(limited("1h", rules), |config| config);
    assert_eq!(statuses(&stage, &[("k1", "x"), ("k1", "x"), ("k1", "y")]), [200, 200, 422]);
    let limited = stage.send(&payment("k1", "x"));
    assert_eq!(limited.status, 429, "{limited:?}");
    assert!(limited.body.contains("idempotency-replays-limited"), "{limited:?}");
    // What the client reads in one field is what it reads in the other.
    let told = limited.header("ratelimit").expect("the quota is told");
    assert!(told.starts_with("\"replay_limit\";r=0;t="), "{told}");
    assert!((1..=60).contains(&number(&limited, "retry-after")), "{limited:?}");
    // New keys and other scopes go on.
    assert_eq!(statuses(&stage, &[("k2", "x")]), [200]);
    let other = lockkeeper_tests::http::Request::new("POST", "/payments").header("authorization", "Bearer b");
    let other = other.header("idempotency-key", "k1").body("x");
    for expected in [None, Some("true")] {
        let answer = stage.send(&other);
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (200, expected), "{answer:?}");
    }
}

#[test]
fn quo_56_retry_after_of_a_denial_is_no_shorter_than_what_ratelimit_tells() {
    let stage = Stage::start_with(limited("1h", json!({})), |config| config);
    assert_eq!(statuses(&stage, &[("k1", "x"), ("k2", "x"), ("k3", "x")]), [200; 3]);
    let denied = stage.send(&payment("k4", "x"));
    let seconds = denied.header("ratelimit").and_then(|field| field.rsplit_once("t=")?.1.parse().ok());
    let seconds: u64 = seconds.unwrap_or_else(|| panic!("{denied:?}"));
    assert!(number(&denied, "retry-after") >= seconds, "{denied:?}");
}
