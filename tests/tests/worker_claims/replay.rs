//! What a retry gets of a request that is done, or that runs.

use crate::world::{World, is_replay, is_run, keyed, of, payment, policy, problem, send, start};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Piece, poll};
use serde_json::json;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

#[test]
fn idm_01_on_each_transport_a_retry_is_replayed_and_another_request_refused() {
    let world = World::start(keyed(json!({ "required": true })));
    let head = ["HTTP/1.1 201 Created", "location: /payments/1", "content-type: text/plain", "x-own: 1"];
    world.origin.answer_whole("/payments", &head, "paid \u{fc}".as_bytes());
    for (run, transport) in Transport::ALL.into_iter().enumerate() {
        println!("{transport:?}");
        let worker = start(&world.config(transport));
        let (server, key) = (worker.address(), transport.word());
        let first = send(server, &payment(key, "{\"amount\":1}"));
        assert_eq!((first.status, first.body.as_str(), is_replay(&first)), (201, "paid \u{fc}", false), "{first:?}");
        let seen = &world.origin.seen()[run];
        assert_eq!((seen.header("idempotency-attempt"), seen.header("idempotency-key")), (Some("1"), Some(key)));
        assert_eq!(seen.header("fencing-token").map(str::len), Some(16), "{seen:?}");
        assert_eq!(seen.body, b"{\"amount\":1}");
        let again = send(server, &payment(&format!("\"{key}\""), "{\"amount\":1}"));
        assert_eq!((again.status, &again.body, is_replay(&again)), (201, &first.body, true), "{again:?}");
        assert_eq!(again.header("location"), Some("/payments/1"));
        assert_eq!((again.header("content-type"), again.header("x-own")), (Some("text/plain"), None));
        let other = send(server, &payment(key, "{\"amount\":2}"));
        assert_eq!(problem(&other), of(422, "idempotency-key-reused"));
        assert_eq!(world.origin.count(), run + 1);
    }
}

#[test]
fn idm_07_a_malformed_or_missing_key_and_a_missing_scope_are_refused_before_the_store() {
    let world = World::start(keyed(json!({ "required": true })));
    let worker = world.worker();
    let long = "k".repeat(256);
    for key in ["", "\"a", "a,b", &long] {
        assert_eq!(problem(&send(worker.address(), &payment(key, "x"))), of(400, "idempotency-key-invalid"), "{key}");
    }
    let missing = Request::new("POST", "/payments").header("authorization", "Bearer a").body("x");
    assert_eq!(problem(&send(worker.address(), &missing)), of(400, "idempotency-key-missing"));
    let anonymous = Request::new("POST", "/payments").header("idempotency-key", "k").body("x");
    assert_eq!(problem(&send(worker.address(), &anonymous)), of(400, "idempotency-scope-missing"));
    assert_eq!((world.origin.begun(), world.keys()), (0, 0));
    let get = Request::get("/payments").header("authorization", "Bearer a").header("idempotency-key", "k");
    assert!(is_run(&send(worker.address(), &get)) && is_run(&send(worker.address(), &get)), "for POST and PATCH only");
}

#[test]
fn a_duplicate_of_a_running_request_gets_409_or_waits_for_its_outcome() {
    for (wait, is_answered) in [("0ms", false), ("8s", true)] {
        let world = World::start(keyed(json!({ "wait": wait })));
        let slow = Piece::Pause(Duration::from_millis(800));
        let answer = Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
        world.origin.answer("/payments", vec![slow, answer]);
        let worker = world.worker();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| send(worker.address(), &payment("k", "x")));
            poll::until("the first runs", SOON, || (world.origin.count() == 1).then_some(())).expect("it runs");
            let second = send(worker.address(), &payment("k", "x"));
            assert!(is_run(&first.join().expect("an answer")));
            if is_answered {
                assert_eq!((is_replay(&second), second.body.as_str()), (true, "done"), "{second:?}");
            } else {
                assert_eq!(problem(&second), of(409, "idempotency-in-progress"));
                assert!(second.header("retry-after").is_some(), "{second:?}");
            }
        });
        assert!(is_replay(&send(worker.address(), &payment("k", "x"))));
        assert_eq!(world.origin.count(), 1);
    }
}

/// E2 and E3: what is not kept is told so, what describes the attempt alone is not kept.
#[test]
fn bod_02_streams_large_bodies_and_refusals_are_not_replayed() {
    let world = World::start(keyed(json!({ "response": { "max_body_bytes": 100 } })));
    let worker = world.worker();
    let large = "x".repeat(101);
    let rows: [(&str, &[&str], &[u8]); 2] = [
        ("/large", &["HTTP/1.1 200 OK"], large.as_bytes()),
        ("/events", &["HTTP/1.1 200 OK", "content-type: text/event-stream"], b"data: 1\n\n"),
    ];
    for (path, head, body) in rows {
        world.origin.answer_whole(path, head, body);
        let request = || Request::new("POST", path).header("authorization", "Bearer a").header("idempotency-key", "k");
        let first = send(worker.address(), &request());
        assert!(is_run(&first) && first.content == body, "{path}: {first:?}");
        let again = poll::until("it is done", SOON, || {
            let again = send(worker.address(), &request());
            (problem(&again).1 != "idempotency-in-progress").then_some(again)
        });
        assert_eq!(problem(&again.expect("done")), of(409, "idempotency-response-not-retained"), "{path}");
    }
    world.origin.answer_whole("/payments", &["HTTP/1.1 429 Too Many Requests"], b"later");
    for attempt in 0..2 {
        // It is given back after the answer.
        let refused = poll::until("it is given back", SOON, || {
            Some(send(worker.address(), &payment("k", "x"))).filter(|answer| answer.status != 409)
        });
        let refused = refused.expect("given back");
        assert_eq!((refused.status, refused.body.as_str()), (429, "later"), "{attempt}");
    }
    assert_eq!(world.origin.count(), 4);
}

/// A cookie is never replayed, nor is anything that belongs to the exchange.
#[test]
fn cookies_dates_and_trace_ids_reach_the_first_client_alone() {
    let world = World::start(keyed(json!({})));
    let head = ["HTTP/1.1 200 OK", "set-cookie: a=1", "set-cookie: b=2", "x-request-id: 7", "etag: \"v1\""];
    world.origin.answer_whole("/payments", &head, b"done");
    let worker = world.worker();
    let first = send(worker.address(), &payment("k", "x"));
    assert_eq!(first.headers.get_all("set-cookie").iter().count(), 2, "{first:?}");
    assert_eq!(first.header("x-request-id"), Some("7"));
    let again = send(worker.address(), &payment("k", "x"));
    assert!(is_replay(&again) && again.body == "done", "{again:?}");
    assert_eq!((again.header("etag"), again.header("set-cookie")), (Some("\"v1\""), None));
    assert_eq!(again.header("x-request-id"), None);
}

/// PRT-06: fence and attempt are the gateway's words; and a policy may keep the key to itself.
#[test]
fn prt_06_what_only_a_gateway_may_say_is_taken_out_of_every_request() {
    let world = World::start(keyed(json!({ "forward_key": false })));
    let worker = world.worker();
    let forged =
        |request: Request| request.header("fencing-token", "9999999999999999").header("idempotency-attempt", "7");
    send(worker.address(), &forged(payment("k", "x")));
    send(worker.address(), &forged(Request::get("/payments").header("authorization", "Bearer a")));
    let seen = world.origin.seen();
    assert_eq!((seen[0].header("idempotency-attempt"), seen[0].header("idempotency-key")), (Some("1"), None));
    assert_ne!(seen[0].header("fencing-token"), Some("9999999999999999"));
    assert_eq!((seen[1].header("idempotency-attempt"), seen[1].header("fencing-token")), (None, None));
}

#[test]
fn idm_04_a_denied_request_claims_nothing_and_a_replay_costs_nothing() {
    let limit = json!({ "name": "each", "algorithm": "token_bucket", "capacity": 1, "refill": "1/1h",
                        "key": ["header:authorization"] });
    let mut rules = policy(json!({ "limits": [limit] }));
    rules["policies"]["payments"]["idempotency"] = keyed(json!({}))["policies"]["payments"]["idempotency"].clone();
    let world = World::start(rules);
    let worker = world.worker();
    let first = send(worker.address(), &payment("k1", "x"));
    assert!(is_run(&first) && first.header("ratelimit").is_some(), "{first:?}");
    assert!(is_replay(&send(worker.address(), &payment("k1", "x"))));
    assert_eq!(send(worker.address(), &payment("k2", "x")).status, 429);
    assert_eq!(world.record("s"), "D", "the only record is the first's");
}
