//! When two requests with one key are the same.

use crate::stage::Stage;
use crate::world::{idempotency, payment, policy};
use lockkeeper_tests::Piece;
use lockkeeper_tests::http::{Request, Response};
use serde_json::{Value, json};
use std::time::Duration;

fn outcome(answer: &Response) -> &'static str {
    let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    match (answer.status, answer.header("idempotent-replayed")) {
        (200, Some("true")) => "replay",
        (200, None) => "run",
        (422, _) if problem["code"] == "idempotency-key-reused" && answer.header("retry-after").is_none() => "mismatch",
        (409, _) if problem["code"] == "idempotency-in-progress" && answer.header("retry-after").is_some() => "busy",
        _ => panic!("{answer:?}"),
    }
}

fn outcomes(stage: &Stage, requests: &[Request]) -> Vec<&'static str> {
    requests.iter().map(|request| outcome(&stage.send(request))).collect()
}

#[test]
fn idm_01_raw_bodies_compare_byte_by_byte_and_json_ones_by_their_value() {
    let spellings = ["{\"a\":1,\"b\":[1,2]}", "{\"b\":[1,2],\"a\":1}", "{ \"a\": 1,\n\"b\": [1, 2] }"];
    let others =
        ["{\"a\":\"1\",\"b\":[1,2]}", "{\"a\":1,\"b\":[2,1]}", "{\"a\":1}", "{\"a\":1,\"b\":[1,2],\"c\":null}"];
    for (body, respelled) in [("raw", "mismatch"), ("json", "replay")] {
        let stage = Stage::start(json!({ "fingerprint": { "body": body } }));
        let requests: Vec<Request> = spellings.iter().chain(&others).map(|body| payment("k", body)).collect();
        let expected: Vec<&str> = [&["run", respelled, respelled][..], &["mismatch"; 4], &["replay"]].concat();
        let requests = [requests, vec![payment("k", spellings[0])]].concat();
        assert_eq!(outcomes(&stage, &requests), expected, "{body}");
        // The number, not its spelling, in JSON; an array's order counts; what is no JSON counts by its bytes.
        let numbers = [payment("n", "{\"a\":1.0}"), payment("n", "{\"a\":1}"), payment("t", "{a"), payment("t", "{a ")];
        assert_eq!(outcomes(&stage, &numbers), ["run", respelled, "run", "mismatch"], "{body}");
    }
}

#[test]
fn fpr_17_a_fresh_multipart_boundary_is_another_body() {
    let stage = Stage::start(json!({}));
    let form = |boundary: &str| {
        let body = format!("--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n1\r\n--{boundary}--\r\n");
        payment("form", &body).header("content-type", format!("multipart/form-data; boundary={boundary}"))
    };
    assert_eq!(outcomes(&stage, &[form("x1"), form("x2"), form("x1")]), ["run", "mismatch", "replay"]);
}

#[test]
fn fpr_18_another_query_is_another_request_and_another_path_or_method_another_key() {
    let stage = Stage::start(json!({ "fingerprint": { "headers": ["x-version"] } }));
    let send = |method: &str, target: &str, version: Option<&str>| {
        let request = Request::new(method, target).header("authorization", "Bearer a").header("idempotency-key", "k");
        let request = version.map_or(request.clone(), |version| request.header("x-version", version));
        request.body("{}")
    };
    let requests = [
        send("POST", "/payments?a=1", None),
        send("POST", "/payments?a=2", None),
        send("POST", "/payments", None),
        send("POST", "/payments?a=1", Some("2")),
        send("POST", "/payments?a=1", None),
        send("POST", "/refunds?a=1", None),
        send("PATCH", "/payments?a=1", None),
        send("POST", "//payments/./?a=1", None),
    ];
    let expected = ["run", "mismatch", "mismatch", "mismatch", "replay", "run", "run", "replay"];
    assert_eq!(outcomes(&stage, &requests), expected);
    assert_eq!(stage.upstream.count(), 3);
}

#[test]
fn idm_01_a_mismatch_is_seen_while_the_first_runs_and_after_it_is_done() {
    let stage = Stage::start(json!({}));
    let slow =
        vec![Piece::Pause(Duration::from_millis(1500)), Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")];
    stage.upstream.answer("/payments", slow);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| outcome(&stage.send(&payment("k", "x"))));
        while stage.upstream.begun() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(outcomes(&stage, &[payment("k", "y"), payment("k", "x")]), ["mismatch", "busy"]);
        assert_eq!(first.join().expect("the first ends"), "run");
    });
    assert_eq!(outcomes(&stage, &[payment("k", "y"), payment("k", "x")]), ["mismatch", "replay"]);
    assert_eq!(stage.upstream.count(), 1);
}

#[test]
fn b_4_a_duplicate_that_may_wait_gets_the_replay_when_the_first_is_done() {
    let stage = Stage::start(json!({ "wait": "3s" }));
    let slow =
        vec![Piece::Pause(Duration::from_millis(600)), Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")];
    stage.upstream.answer("/payments", slow);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| outcome(&stage.send(&payment("k", "x"))));
        while stage.upstream.begun() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(outcome(&stage.send(&payment("k", "x"))), "replay");
        assert_eq!(first.join().expect("the first ends"), "run");
    });
    assert_eq!(stage.upstream.count(), 1);
}

#[test]
fn fpr_22_a_changed_recipe_does_not_refuse_the_keys_of_before() {
    let before = Stage::start(json!({}));
    assert_eq!(outcomes(&before, &[payment("k", "{\"a\":1}")]), ["run"]);
    let rules = policy(idempotency(json!({ "fingerprint": { "body": "json" } })));
    let after = crate::world::envoy(&rules, before.redis.address(), before.upstream.address(), |config| config);
    // The old fingerprint means nothing under the new rules, so it matches any. The key is scoped by host: name the old one.
    let retry = payment("k", "{\"a\":1 }").header("host", before.envoy.address().to_string());
    assert_eq!(outcome(&after.client().send(&retry).expect("an answer")), "replay");
    assert_eq!(before.upstream.count(), 1);
}

#[test]
fn a_fingerprint_bound_at_completion_tells_another_body_only_afterwards() {
    let stage =
        Stage::start_with(policy(idempotency(json!({ "fingerprint": { "body": "at_completion" } }))), |config| {
            config.without_bodies()
        });
    let slow =
        vec![Piece::Pause(Duration::from_millis(800)), Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")];
    stage.upstream.answer("/payments", slow);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| outcome(&stage.send(&payment("k", "x"))));
        while stage.upstream.begun() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(outcome(&stage.send(&payment("k", "y"))), "busy");
        assert_eq!(first.join().expect("the first ends"), "run");
    });
    assert_eq!(outcomes(&stage, &[payment("k", "x")]), ["replay"]);
    assert_eq!(stage.upstream.count(), 1);
}
