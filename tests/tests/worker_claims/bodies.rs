//! Bodies on their way through the Worker: read for their fingerprints, and passed on whole.

use crate::world::{World, is_replay, is_run, keyed, of, payment, problem, send, start};
use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::poll;
use lockkeeper_tests::raw::{RawConnection, RawResponse};
use lockkeeper_tests::workerd::Transport;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const CAP: usize = 4096;
const SOON: Duration = Duration::from_secs(10);

fn fingerprint(more: Value) -> Value {
    let mut rules = json!({ "hold_limit": false, "max_body_bytes": CAP });
    rules.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    keyed(json!({ "fingerprint": rules }))
}

/// Bytes that tell where they stand.
fn numbered(bytes: usize) -> Vec<u8> {
    (0_u32..).flat_map(u32::to_le_bytes).take(bytes).collect()
}

/// Sends a payment in chunks of that size.
fn in_chunks(server: SocketAddr, key: &str, body: &[u8], bytes: usize) -> RawResponse {
    let mut client = RawConnection::open(server).expect("workerd accepts");
    let head =
        "POST /payments HTTP/1.1\r\nhost: a.example\r\nauthorization: Bearer a\r\ntransfer-encoding: chunked\r\n";
    client.send(format!("{head}idempotency-key: {key}\r\n\r\n").as_bytes()).expect("workerd reads");
    for piece in body.chunks(bytes) {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        client.send(&chunk).expect("workerd reads");
    }
    client.exchange(b"0\r\n\r\n").expect("an answer")
}

fn with_body(key: &str, body: Vec<u8>) -> Request {
    payment(key, "").body(body).header("host", "a.example")
}

#[test]
fn bod_01_a_body_of_any_size_and_framing_counts_every_byte_once_and_arrives_whole() {
    let world = World::start(fingerprint(json!({})));
    let worker = world.worker();
    for (run, bytes) in [1, 600, CAP].into_iter().enumerate() {
        let (key, body) = (format!("size-{bytes}"), numbered(bytes));
        assert_eq!(in_chunks(worker.address(), &key, &body, 100).status, 200, "{bytes} bytes");
        assert!(world.origin.seen()[run].body == body, "{bytes} bytes");
        let again = send(worker.address(), &with_body(&key, body.clone()));
        assert!(is_replay(&again), "{bytes} bytes whatever the framing: {again:?}");
        let shorter = send(worker.address(), &with_body(&key, numbered(bytes - 1)));
        assert_eq!(shorter.status, 422, "{bytes} bytes: {shorter:?}");
    }
    let none = payment("none", "").header("host", "a.example");
    assert!(is_run(&send(worker.address(), &none)) && is_replay(&send(worker.address(), &none)));
}

#[test]
fn bod_01_above_the_cap_a_body_is_refused_or_passes_without_a_fingerprint() {
    let large = numbered(CAP * 40);
    let world = World::start(fingerprint(json!({})));
    let worker = world.worker();
    let answer = send(worker.address(), &with_body("k", large.clone()));
    assert_eq!(problem(&answer), of(413, "idempotency-body-too-large"));
    assert_eq!(in_chunks(worker.address(), "k", &large, 3000).status, 413);
    assert_eq!(world.origin.begun(), 0);
    let world = World::start(fingerprint(json!({ "over_max": "unfingerprinted" })));
    let worker = world.worker();
    assert!(is_run(&send(worker.address(), &with_body("known", large.clone()))));
    assert_eq!(in_chunks(worker.address(), "chunked", &large, 3000).status, 200);
    let seen = world.origin.seen();
    assert!(seen.iter().all(|seen| seen.body == large), "both arrive whole");
    assert!(is_replay(&send(worker.address(), &with_body("chunked", large))));
}

#[test]
fn idm_01_json_is_the_same_whatever_its_spelling() {
    let world = World::start(fingerprint(json!({ "body": "json" })));
    let worker = world.worker();
    assert!(is_run(&send(worker.address(), &payment("k", "{\"a\":1,\"b\":[2]}"))));
    assert!(is_replay(&send(worker.address(), &payment("k", "{ \"b\": [2.0], \"a\": 1 }"))));
    assert_eq!(send(worker.address(), &payment("k", "{\"a\":1,\"b\":[3]}")).status, 422);
}

/// A body that is hashed on its way is bound with the outcome.
#[test]
fn a_body_that_streams_through_is_compared_once_the_first_is_done() {
    let world = World::start(keyed(json!({ "fingerprint": { "body": "at_completion" } })));
    let worker = world.worker();
    let large = numbered(CAP * 40);
    assert!(is_run(&send(worker.address(), &with_body("k", large.clone()))));
    assert!(world.origin.seen()[0].body == large);
    assert!(is_replay(&send(worker.address(), &with_body("k", large.clone()))));
    let hash = world.record("q");
    assert_eq!(hash.len(), 64, "{hash}");
    assert_eq!(in_chunks(worker.address(), "chunked", &large, 3000).status, 200);
    assert!(world.origin.seen()[1].body == large);
}

#[test]
fn a_body_that_does_not_come_in_time_is_a_503_and_claims_nothing() {
    let world = World::start(fingerprint(json!({})));
    let worker = start(&world.config(Transport::DurableObject).variable("BODY_DEADLINE", "300ms"));
    let mut client = RawConnection::open(worker.address()).expect("workerd accepts");
    let head = "POST /payments HTTP/1.1\r\nhost: a.example\r\nauthorization: Bearer a\r\ncontent-length: 10\r\n";
    let answer = client.exchange(format!("{head}idempotency-key: k\r\n\r\nhalf").as_bytes()).expect("an answer");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("idempotency-body-not-read"), "{answer:?}");
    assert_eq!((world.keys(), world.origin.begun()), (0, 0));
}

#[test]
fn an_isolate_holds_no_more_bodies_than_it_has_room_for_and_gives_the_room_back() {
    let world = World::start(fingerprint(json!({})));
    let worker = start(&world.config(Transport::DurableObject).variable("HELD_BODIES_BYTES", "1000"));
    let refused: Response = send(worker.address(), &with_body("large", numbered(1001)));
    assert_eq!(problem(&refused), of(503, "idempotency-body-not-read"));
    for key in ["one", "two"] {
        assert!(is_run(&send(worker.address(), &with_body(key, numbered(900)))), "{key}");
    }
    let mut leaving = RawConnection::open(worker.address()).expect("workerd accepts");
    let head = "POST /payments HTTP/1.1\r\nhost: a.example\r\nauthorization: Bearer a\r\ncontent-length: 999\r\n";
    leaving.send(format!("{head}idempotency-key: left\r\n\r\n").as_bytes()).expect("workerd reads");
    leaving.send(&numbered(900)).expect("workerd reads");
    poll::until("the room is taken", SOON, || {
        (send(worker.address(), &with_body("three", numbered(900))).status == 503).then_some(())
    })
    .expect("its body is held");
    drop(leaving);
    poll::until("the room is free again", SOON, || {
        is_run(&send(worker.address(), &with_body("four", numbered(900)))).then_some(())
    })
    .expect("a client that left takes no room");
}
