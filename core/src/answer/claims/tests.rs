//! Each answer about a key or a lock, whole: status, Retry-After, gRPC status and the members of its problem.

use super::*;
use crate::policy::PolicySet;
use crate::policy::load::LoadOptions;
use serde_json::json;

const BASE: &str = "urn:lockkeeper:problem:";

fn rules(more: &str) -> Idempotency {
    let policy = format!(
        r#"{{ "version": 1, "default_policy": "a", "policies": {{ "a": {{ "idempotency": {{
            "scope": ["header:authorization"], "on_unknown": "reject" {more} }} }} }} }}"#
    );
    let policies = PolicySet::from_json(policy.as_bytes(), LoadOptions::default()).expect("the policy loads");
    *policies.policies[0].idempotency.clone().expect("the policy has the section")
}

fn check(action: Action, (status, retry_after, grpc): (u16, Option<&str>, u16), mut problem: Value) {
    let Action::Answer(answer) = action else { panic!("the request passes") };
    let value = |name: &str| {
        let mut values = answer.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        (values.next(), values.next())
    };
    assert_eq!(
        (answer.status, value("retry-after").0, answer.grpc_status as u16),
        (status, retry_after, grpc),
        "{problem}"
    );
    assert_eq!(value("content-type"), (Some("application/problem+json"), None));
    assert_eq!(value("cache-control"), (Some("no-store"), None));
    let mut body: Value = serde_json::from_slice(answer.body.as_ref()).expect("the body is JSON");
    assert_eq!(body["title"], json!(answer.grpc_message));
    body.as_object_mut().expect("a problem is an object").remove("title");
    problem["status"] = json!(status);
    if problem["type"].is_null() {
        problem["type"] = json!(format!("{BASE}{}", problem["code"].as_str().expect("a code")));
    }
    assert_eq!(body, problem);
}

#[test]
fn a_key_that_is_no_use_is_refused_before_the_store_is_asked() {
    let rules = rules("");
    let too_long = KeyProblem::Invalid(KeyError::TooLong { bytes_max: 255 });
    for (problem, status, code) in [
        (KeyProblem::Missing, 400, "idempotency-key-missing"),
        (KeyProblem::Invalid(KeyError::Malformed), 400, "idempotency-key-invalid"),
        (too_long, 400, "idempotency-key-invalid"),
        (KeyProblem::NoScope, 400, "idempotency-scope-missing"),
        (KeyProblem::BodyTooLarge, 413, "idempotency-body-too-large"),
    ] {
        check(key_problem(&rules, &problem), (status, None, 3), json!({ "code": code, "retryable": false }));
    }
    let Action::Answer(answer) = key_problem(&rules, &too_long) else { panic!("the request passes") };
    assert_eq!(answer.grpc_message, "The request header idempotency-key must have at most 255 characters");
}

#[test]
fn a_running_holder_is_worth_waiting_for() {
    let rules = rules("");
    for (remaining_us, retry_after) in [(0, "1"), (1, "1"), (1_000_001, "2"), (5_000_000, "5"), (30_000_000, "5")] {
        let problem = json!({ "code": "idempotency-in-progress", "retryable": true });
        check(in_flight(&rules, remaining_us), (409, Some(retry_after), 10), problem);
        let problem = json!({ "code": "resource-locked", "retryable": true });
        check(locked(BASE, remaining_us), (423, Some(retry_after), 10), problem);
    }
}

#[test]
fn what_no_retry_can_change_says_so() {
    let rules = rules("");
    check(
        outcome_unknown(&rules),
        (409, None, 9),
        json!({ "code": "idempotency-outcome-unknown", "retryable": false }),
    );
    check(key_reused(&rules), (422, None, 9), json!({ "code": "idempotency-key-reused", "retryable": false }));
    let sealed = Sealed::from_fields(b"201", b"4:etag=3:\"1\"8:location=9:/orders/1").expect("the fields are ours");
    let problem = json!({ "code": "idempotency-response-not-retained", "retryable": false,
        "original-status": 201, "location": "/orders/1" });
    check(not_retained(&rules, &sealed), (409, None, 9), problem);
    let nowhere = Sealed::from_fields(b"200", b"8:location~4:6Q==").expect("the fields are ours");
    let problem = json!({ "code": "idempotency-response-not-retained", "retryable": false, "original-status": 200 });
    check(not_retained(&rules, &nowhere), (409, None, 9), problem);
}

#[test]
fn limits_and_outages_pass() {
    let rules = rules("");
    let limit = rules.replay_limit.as_ref().expect("there is one by default").label.clone();
    let problem = json!({ "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "code": "idempotency-replays-limited", "retryable": true, "violated-policies": [limit] });
    check(replay_limited(&rules, 1_500_000), (429, Some("2"), 8), problem.clone());
    check(replay_limited(&rules, 0), (429, Some("1"), 8), problem);
    check(store_unavailable(BASE), (503, Some("1"), 14), json!({ "code": "store-unavailable", "retryable": true }));
}

#[test]
fn the_policy_chooses_statuses_and_where_problems_are_explained() {
    let own = r#", "in_flight_status": 423, "mismatch_status": 409, "problem_base": "https://docs.example.com/p#""#;
    let rules = rules(own);
    let kind = |slug: &str| json!(format!("https://docs.example.com/p#{slug}"));
    let slug = "idempotency-in-progress";
    let problem = json!({ "type": kind(slug), "code": slug, "retryable": true });
    check(in_flight(&rules, 1), (423, Some("1"), 10), problem);
    let slug = "idempotency-key-reused";
    check(key_reused(&rules), (409, None, 9), json!({ "type": kind(slug), "code": slug, "retryable": false }));
}
