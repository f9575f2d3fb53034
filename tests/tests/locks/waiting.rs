//! Requests that wait for a lock: bounded, one after the other, and without touching the holder's record.

use crate::world::{World, lock, put};
use lockkeeper_tests::gated_upstream::Go;
use serde_json::json;
use std::time::{Duration, Instant};

/// What a gateway has asked the store.
const ASKED: &str = "lockkeeper_store_calls";

#[test]
fn a_request_that_waits_gets_the_lock_when_its_holder_ends() {
    let world = World::start(lock(json!({ "wait": "10s" })));
    let holder = world.begin(0, &put("/a"));
    world.upstream.arrived(1);
    let before = world.record();
    let waiter = world.begin(1, &put("/a"));
    world.await_counted(1, ASKED, 4);
    assert_eq!(world.record(), before, "whoever waits alters nothing of the holder's");
    assert_eq!(world.upstream.count(), 1);
    world.upstream.let_go(0, Go::Answer(200));
    let seen = world.upstream.arrived(2);
    assert!(seen[0].header("fencing-token") < seen[1].header("fencing-token"));
    world.upstream.let_go(1, Go::Answer(200));
    assert_eq!((holder.join().expect("an answer").status, waiter.join().expect("an answer").status), (200, 200));
    world.free();
}

#[test]
fn a_wait_that_is_over_is_answered_423_and_the_holder_is_unaffected() {
    let world = World::start(lock(json!({ "wait": "400ms" })));
    let holder = world.begin(0, &put("/a"));
    world.upstream.arrived(1);
    let before = world.record();
    let start = Instant::now();
    let refused = world.send(1, &put("/a"));
    assert_eq!(refused.status, 423, "{refused:?}");
    assert!(start.elapsed() >= Duration::from_millis(400), "it waited {:?}", start.elapsed());
    assert_eq!(world.record(), before);
    world.upstream.let_go(0, Go::Answer(200));
    assert_eq!(holder.join().expect("an answer").status, 200);
    world.free();
    assert_eq!(world.upstream.count(), 1);
}

#[test]
fn a_client_that_goes_away_while_it_waits_never_gets_the_lock() {
    let world = World::start(lock(json!({ "wait": "10s" })));
    let holder = world.begin(0, &put("/a"));
    world.upstream.arrived(1);
    let gone = world.begin_raw(1, "/a");
    world.await_counted(1, ASKED, 3);
    drop(gone);
    world.await_active(1, 0);
    world.upstream.let_go(0, Go::Answer(200));
    assert_eq!(holder.join().expect("an answer").status, 200);
    world.free();
    let next = world.begin(1, &put("/a"));
    world.upstream.arrived(2);
    world.upstream.let_go(1, Go::Answer(200));
    assert_eq!(next.join().expect("an answer").status, 200);
    assert_eq!(world.upstream.count(), 2, "nothing was done for the client that went away");
}

#[test]
fn many_that_wait_run_one_at_a_time_and_none_is_left_behind() {
    const REQUESTS: usize = 24;
    let world = World::start(lock(json!({ "wait": "10s" })));
    let first = world.begin(0, &put("/a"));
    world.upstream.arrived(1);
    let others: Vec<_> = (1..REQUESTS).map(|number| world.begin(number % 2, &put("/a"))).collect();
    world.await_counted(0, ASKED, REQUESTS as u64);
    world.upstream.open(Go::Answer(200));
    assert_eq!(first.join().expect("an answer").status, 200);
    assert!(others.into_iter().all(|other| other.join().expect("an answer").status == 200));
    assert_eq!(world.upstream.most_running(), 1);
    let seen = world.upstream.arrived(REQUESTS);
    assert!(seen.is_sorted_by(|one, next| one.header("fencing-token") < next.header("fencing-token")));
    world.free();
}
