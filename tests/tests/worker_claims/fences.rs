//! Fencing tokens rise, whatever the store forgets.

use crate::world::{DEADLINE, World, is_run, keyed, payment, send};
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{Redis, StepClock, poll};
use serde_json::json;

/// One that came before all that the isolate has seen, and is decided after it.
#[test]
fn a_request_that_waited_for_its_body_gets_a_token_above_all_that_were_seen_meanwhile() {
    let clock = StepClock::build().expect("the clock is built");
    let redis = Redis::start_in(&[], &clock.environment()).expect("Redis starts");
    let world = World::start_on(redis, keyed(json!({})));
    let worker = world.worker();
    let head = "POST /payments HTTP/1.1\r\nhost: a.example\r\nauthorization: Bearer a\r\ncontent-length: 3\r\n";
    let mut waiting = RawConnection::open(worker.address()).expect("workerd accepts");
    waiting.send(format!("{head}idempotency-key: k\r\n\r\no").as_bytes()).expect("workerd reads");
    assert!(is_run(&send(worker.address(), &payment("k", "one"))));
    // The store has lost all of it, and its clock is an hour behind.
    poll::until("the outcome is stored", DEADLINE, || (world.records("D") == 1).then_some(())).expect("it is stored");
    clock.set(-3_600);
    redis::cmd("FLUSHALL").exec(&mut world.redis.connection()).expect("Redis answers");
    assert_eq!(waiting.exchange(b"ne").expect("an answer").status, 200);
    let seen = world.origin.seen();
    let fences: Vec<_> = seen.iter().map(|run| run.header("fencing-token").expect("a token")).collect();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
}
