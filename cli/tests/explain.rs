//! `lockkeeper explain` as a process: the whole text for one request, and what differs for others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use support::{Directory, lockkeeper};

const POLICY: &str = r#"{ "version": 1, "namespace": "test", "policies": {
  "login": { "limits": [
      { "name": "per-client", "algorithm": "token_bucket", "capacity": 10, "refill": "5/s", "key": ["client_address"] },
      { "name": "per-user", "algorithm": "fixed_window", "limit": 3, "window": "1m",
        "key": ["header:x-user"], "on_missing_key": "skip" },
      { "name": "watched", "algorithm": "sliding_window", "limit": 1, "window": "1m", "key": ["method"], "enforce": false }
    ], "limits_on_store_failure": "deny" },
  "claims": { "limits": [
      { "name": "per-subject", "algorithm": "sliding_window_counter", "limit": 5, "window": "1h", "cost": 2,
        "key": ["metadata:jwt_authn.payload.sub"] } ] } },
  "routes": [ { "match": { "path": "/v1/login", "methods": ["POST"] }, "policy": "login" },
              { "match": { "path": "/v1/login", "methods": ["POST"], "headers": { "x-beta": true } }, "policy": "claims" },
              { "match": { "path": "/v1/{page}" }, "policy": "claims" },
              { "match": { "path": "/v1/login", "methods": ["PUT"] }, "policy": "claims" },
              { "match": { "path": "/v1/login", "route_name": "other" }, "policy": "claims" },
              { "match": { "path": "/v2/*" }, "policy": "claims" },
              { "match": { "host": "claims.example.com" }, "policy": "claims" } ] }"#;

fn explain(arguments: &[&str]) -> support::Run {
    let directory = Directory::with(&[("policy.json", POLICY)]);
    lockkeeper(&directory, &[&["explain", "policy.json"], arguments].concat())
}

fn explain_json(arguments: &[&str]) -> Value {
    serde_json::from_str(&explain(&[arguments, &["--json"]].concat()).stdout).unwrap()
}

#[test]
fn a_peer_that_is_no_address_is_refused_rather_than_taken_for_missing() {
    let refused = explain(&["--url", "/v1/login", "--peer", "bogus"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("expected an IP address"), "{}", refused.stderr);
}

#[test]
fn the_whole_way_of_a_request_is_shown() {
    let url = "https://API.example.com:443//v1/%6Cogin?x=1";
    let explained = explain(&["--method", "POST", "--url", url, "-H", "X-User: bob", "--peer", "192.0.2.1:4711"]);
    assert_eq!((explained.stderr.as_str(), explained.code), ("", 0));
    assert_eq!(explained.stdout, include_str!("explain.txt"));
}

#[test]
fn values_of_an_identity_are_shown_on_request_only() {
    let request = ["--method", "POST", "--url", "/v1/login", "-H", "x-user: secret-1", "--peer", "2001:db8::1"];
    assert!(!explain(&request).stdout.contains("secret-1"));
    assert!(!explain_json(&request).to_string().contains("2001:db8"));
    let shown = explain(&[&request[..], &["--show-values"]].concat()).stdout;
    assert!(
        shown.contains("header:x-user = \"secret-1\"") && shown.contains("client_address = \"2001:db8::/64\""),
        "{shown}"
    );
}

#[test]
fn a_missing_part_skips_the_limit_or_rejects_the_request() {
    let skipped = explain_json(&["--method", "POST", "--url", "/v1/login", "--peer", "192.0.2.1"]);
    assert_eq!(skipped["policy"]["limits"][1]["missing"], "skip");
    assert_eq!(skipped["policy"]["limits"][1]["store_key"], Value::Null);
    assert_eq!(skipped["answers"]["first"]["action"], "forward");
    let rejected = explain_json(&["--url", "https://claims.example.com/x"]);
    assert_eq!(rejected["policy"]["limits"][0]["missing"], "reject");
    assert_eq!(rejected["answers"]["first"]["status"], 400);
    assert_eq!(rejected["answers"]["denied"], Value::Null);
}

#[test]
fn a_claim_is_given_as_metadata_and_the_first_denial_counts_costs() {
    let claims = ["--url", "https://claims.example.com/x", "--metadata", "jwt_authn.payload.sub=alice"];
    let explained = explain_json(&claims);
    assert_eq!(explained["answers"]["denied"]["request"], 3);
    assert_eq!(explained["answers"]["denied"]["status"], 429);
    assert_eq!(explained["answers"]["on_store_failure"], json!({ "action": "limit_locally" }));
}

#[test]
fn without_route_and_default_a_request_is_unlimited() {
    let explained = explain(&["--url", "/other"]);
    assert!(explained.stdout.contains("policy\n  none: unlimited\n"), "{}", explained.stdout);
    assert_eq!(explain_json(&["--url", "/other"])["policy"], Value::Null);
}

#[test]
fn what_a_request_claims_is_shown_with_the_key_of_its_record_or_why_it_does_not() {
    let policy = r#"{ "version": 1, "namespace": "test", "default_policy": "orders", "policies": { "orders": {
        "concurrency": { "limit": 2, "key": ["path"] },
        "idempotency": { "scope": ["cookie:sid"], "on_unknown": "reject" },
        "lock": { "key": ["header:x-account"], "on_missing_key": "skip", "fence_header": "x-fence" } } } }"#;
    let directory = Directory::with(&[("policy.json", policy)]);
    let explain = |arguments: &[&str]| {
        let run = lockkeeper(&directory, &[&["explain", "policy.json", "--url", "/orders"], arguments].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
    };
    let claiming = ["--method", "POST", "-H", "cookie: sid=1", "-H", "idempotency-key: k1", "-H", "x-account: 7"];
    let text = explain(&claiming);
    for line in [
        "  idempotency by header:idempotency-key, cookie:sid\n    claims   test:orders.idempotency:{",
        "  lock by header:x-account\n    claims   test:orders.lock:{",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let explained: Value = serde_json::from_str(&explain(&[&claiming[..], &["--json"]].concat())).unwrap();
    assert_eq!(explained["answers"]["first"]["action"], "forward");
    assert_eq!(explained["answers"]["denied"]["request"], 3);
    assert_eq!(explained["answers"]["on_store_failure"]["status"], 503);
    let text = explain(&["--method", "GET", "-H", "idempotency-key: k1"]);
    assert!(text.contains("skipped  it is for other methods\n"), "{text}");
    assert!(text.contains("skipped  what names it is missing, or the request is answered before\n"), "{text}");
}

#[test]
fn a_faulty_file_or_request_is_not_explained() {
    let directory = Directory::with(&[("bad.json", "{}")]);
    let faulty = lockkeeper(&directory, &["explain", "bad.json", "--url", "/"]);
    assert_eq!((faulty.code, faulty.stdout.as_str()), (1, ""));
    assert!(faulty.stderr.contains("bad.json:1:1: error: $.version"), "{}", faulty.stderr);
    for request in [&["--url", "v1/x"][..], &["--url", "/", "-H", "x"], &["--url", "/", "--metadata", "x"]] {
        let refused = explain(request);
        assert_eq!(refused.code, 2, "{request:?}");
        assert!(refused.stderr.contains("expected"), "{}", refused.stderr);
    }
}
