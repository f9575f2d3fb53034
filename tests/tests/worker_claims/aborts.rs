//! Clients that go away: what runs is brought to its end, and its outcome is kept.

use crate::world::{World, is_replay, is_run, keyed, payment, policy, send};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{Piece, Workerd, poll};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(15);

/// Sends a payment and gives the connection.
fn begin(worker: &Workerd, key: &str, content: &str) -> TcpStream {
    let stream = TcpStream::connect(worker.address()).expect("workerd accepts");
    stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
    let (host, bytes) = (worker.address(), content.len());
    let head =
        format!("POST /payments HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer a\r\ncontent-length: {bytes}\r\n");
    (&stream).write_all(format!("{head}idempotency-key: {key}\r\n\r\n{content}").as_bytes()).expect("workerd reads");
    stream
}

fn replayed(worker: &Workerd, key: &str, content: &str) -> String {
    let again =
        poll::until("it is kept", SOON, || Some(send(worker.address(), &payment(key, content))).filter(is_replay));
    again.unwrap_or_else(|error| panic!("{error:#}: {}", worker.process().log_tail())).body
}

/// R4: before the response has begun. Whether it was to be held or followed does not matter.
#[test]
fn idm_06_a_client_that_leaves_before_the_response_finds_it_kept() {
    let world = World::start(keyed(json!({ "lease": "30s" })));
    let worker = world.worker();
    let whole = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone";
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n";
    for (run, (key, answer)) in [("held", whole), ("followed", chunked)].into_iter().enumerate() {
        let pause = Piece::Pause(Duration::from_millis(700));
        world.origin.answer("/payments", vec![pause, Piece::bytes(answer)]);
        let client = begin(&worker, key, "x");
        poll::until("it runs", SOON, || (world.origin.count() == run + 1).then_some(())).expect("it runs");
        reset(client);
        assert_eq!(replayed(&worker, key, "x"), "done", "{key}");
        assert_eq!(world.origin.count(), run + 1, "{key}");
    }
}

/// R5: while the response comes, small or large.
#[test]
fn idm_06_a_client_that_leaves_during_the_response_finds_it_kept() {
    for bytes in [10_usize, 400_000] {
        let world = World::start(keyed(json!({ "lease": "30s", "response": { "max_body_bytes": 1_000_000 } })));
        let worker = world.worker();
        let half = "h".repeat(bytes);
        let start = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{bytes:x}\r\n{half}\r\n");
        let end = format!("{bytes:x}\r\n{half}\r\n0\r\n\r\n");
        let pause = Piece::Pause(Duration::from_millis(700));
        world.origin.answer("/payments", vec![Piece::bytes(start), pause, Piece::bytes(end)]);
        let mut client = begin(&worker, "k", "x");
        client.read_exact(&mut [0; 12]).expect("the response begins");
        reset(client);
        assert_eq!(replayed(&worker, "k", "x").len(), 2 * bytes, "{bytes}");
        assert_eq!(world.origin.count(), 1);
    }
}

/// A response that is larger than what is kept goes no faster than its client reads; once that has gone, the rest is read
/// and the record is sealed.
#[test]
fn idm_06_a_client_that_leaves_a_large_response_blocks_nothing() {
    let world = World::start(keyed(json!({ "lease": "30s", "response": { "max_body_bytes": 1_000 } })));
    let worker = world.worker();
    let body = vec![b'x'; 8 * 1024 * 1024];
    world.origin.answer_whole("/payments", &["HTTP/1.1 200 OK"], &body);
    let mut client = begin(&worker, "k", "x");
    client.read_exact(&mut [0; 12]).expect("the response begins");
    reset(client);
    let sealed = poll::until("the record is sealed", SOON, || (world.record("s") == "S").then_some(()));
    sealed.unwrap_or_else(|error| panic!("{error:#}: {}\n{}", world.record("s"), worker.process().log_tail()));
}

/// While its body comes: nothing was claimed yet.
#[test]
fn a_client_that_leaves_in_the_middle_of_its_body_claims_nothing() {
    let world = World::start(keyed(json!({})));
    let worker = world.worker();
    let mut leaving = RawConnection::open(worker.address()).expect("workerd accepts");
    let head = "POST /payments HTTP/1.1\r\nhost: a.example\r\nauthorization: Bearer a\r\ncontent-length: 10\r\n";
    leaving.send(format!("{head}idempotency-key: k\r\n\r\nhalf").as_bytes()).expect("workerd reads");
    std::thread::sleep(Duration::from_millis(300));
    drop(leaving);
    let next = send(worker.address(), &payment("k", "whole").header("host", "a.example"));
    assert!(is_run(&next), "{next:?}");
    assert_eq!(world.origin.count(), 1);
}

/// While its body is on its way to the origin, which never sees the whole of it: nobody knows what that did.
#[test]
fn a_client_that_leaves_in_the_middle_of_a_streamed_body_leaves_the_outcome_unknown() {
    let rules = json!({ "lease": "1s", "max_lease": "1s", "fingerprint": { "body": "at_completion" } });
    let world = World::start(keyed(rules));
    let worker = world.worker();
    let mut leaving = RawConnection::open(worker.address()).expect("workerd accepts");
    let head = "POST /payments HTTP/1.1\r\nhost: a.example\r\nauthorization: Bearer a\r\ncontent-length: 10\r\n";
    leaving.send(format!("{head}idempotency-key: k\r\n\r\nhalf").as_bytes()).expect("workerd reads");
    poll::until("it is on its way", SOON, || (world.origin.begun() == 1).then_some(())).expect("the origin sees it");
    drop(leaving);
    let unknown = poll::until("the lease lapses", SOON, || {
        let again = send(worker.address(), &payment("k", "whole-body").header("host", "a.example"));
        again.body.contains("outcome-unknown").then_some(())
    });
    unknown.expect("nobody runs it again");
    assert_eq!(world.origin.count(), 0);
}

/// Slots come back, whenever the client goes.
#[test]
fn clients_that_leave_take_no_slots_with_them() {
    let rules: Value = json!({ "concurrency": { "limit": 4, "key": ["constant:all"], "lease": "1h" } });
    let world = World::start(policy(rules));
    let worker = world.worker();
    let pause = Piece::Pause(Duration::from_millis(400));
    let start = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst";
    world.origin.answer("/slow", vec![pause.clone(), Piece::bytes(start), pause, Piece::bytes("later")]);
    for wait_ms in [0, 100, 200, 500, 600, 5, 50, 450] {
        let stream = TcpStream::connect(worker.address()).expect("workerd accepts");
        let head = format!("GET /slow HTTP/1.1\r\nhost: {}\r\n\r\n", worker.address());
        (&stream).write_all(head.as_bytes()).expect("workerd reads");
        std::thread::sleep(Duration::from_millis(wait_ms));
        reset(stream);
    }
    let all_free = poll::until("all four are free", SOON, || {
        let mut redis = world.redis.connection();
        let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis).expect("Redis answers");
        let held: usize =
            names.iter().map(|name| redis::cmd("ZCARD").arg(name).query::<usize>(&mut redis).unwrap_or(0)).sum();
        (held == 0).then_some(())
    });
    all_free.unwrap_or_else(|error| panic!("{error:#}\n{}", worker.process().log_tail()));
    assert_eq!(send(worker.address(), &Request::get("/")).status, 200);
}

/// Ends a connection at once, with what was not read yet.
fn reset(stream: TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}
