//! The end of a claimed request while the store fails (reference §4.5 E8–E11, list 33, 45, 52; case IDM-08): a success stays one, and
//! is recorded as soon as the store is back.

use crate::world::{World, await_counted, counted, pay, payment, told};
use lockkeeper_core::script::{COMPLETE, RELEASE};
use lockkeeper_tests::Envoy;
use lockkeeper_tests::faulty_store::{Fault, FaultyStore};
use lockkeeper_tests::origin::{self, Piece};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a response is held for its record, in these tests.
const HELD: Duration = Duration::from_millis(700);

fn start(more: Value) -> (World, FaultyStore, Envoy) {
    let world = World::start();
    let store = FaultyStore::start(world.redis.address()).expect("a loopback port is free");
    let envoy = world.envoy_with(more, |config| config.redis(store.address()).deadline(HELD));
    // From here on the scripts are known and nothing is slow.
    assert_eq!(pay(&envoy, "warm").status, 200);
    world.await_state(Some("D"));
    redis::cmd("DEL").arg(keys(&world)).exec(&mut world.redis.connection()).expect("Redis answers");
    (world, store, envoy)
}

fn keys(world: &World) -> Vec<String> {
    redis::cmd("KEYS").arg("*payments*").query(&mut world.redis.connection()).expect("Redis answers")
}

#[test]
fn idm_08_b_a_store_that_fails_at_completion_costs_the_client_nothing_and_is_told_when_it_is_back() {
    let (world, store, envoy) = start(json!({ "lease": "30s" }));
    for (name, fault) in [
        ("refused", Fault::Refused("OOM command not allowed when used memory > 'maxmemory'.".to_owned())),
        ("read-only", Fault::Refused("READONLY You can't write against a read only replica.".to_owned())),
        ("ignored", Fault::Ignored),
        ("reply-lost", Fault::ReplyLost),
    ] {
        store.fail(COMPLETE, fault);
        let answer = pay(&envoy, name);
        assert_eq!((answer.status, told(&answer).as_str()), (200, "200"), "{name}: {answer:?}");
        assert!(answer.elapsed < HELD * 3, "{name}: {:?}", answer.elapsed);
        store.heal();
        world.await_state(Some("D"));
        lockkeeper_tests::poll::until("the store is asked again", Duration::from_secs(5), || {
            (told(&pay(&envoy, name)) == "replayed 200").then_some(())
        })
        .unwrap_or_else(|error| panic!("{name}: {error:#}"));
        redis::cmd("DEL").arg(keys(&world)).exec(&mut world.redis.connection()).expect("Redis answers");
    }
    assert_eq!(world.origin.count(), 5);
    await_counted(&envoy, "event.complete.outcome.ok", 5);
    assert_eq!(counted(&envoy, "event.complete.outcome.lost"), 0);
}

#[test]
fn a_completion_that_was_carried_out_but_not_answered_is_sent_again_and_stores_one_outcome() {
    let (world, store, envoy) = start(json!({ "lease": "30s" }));
    store.forget_counts();
    store.fail(COMPLETE, Fault::Unanswered);
    assert_eq!(told(&pay(&envoy, "k")), "200");
    assert_eq!(world.state().as_deref(), Some("D"));
    let record = world.record();
    store.heal();
    await_counted(&envoy, "event.complete.outcome.ok", 2);
    assert!(store.count(COMPLETE) >= 2);
    assert_eq!(world.record(), record);
}

#[test]
fn idm_08_b_a_store_killed_before_completion_leaves_the_client_its_answer() {
    let mut world = World::start_with(origin::numbered_after(Duration::from_millis(500)));
    let envoy = world.envoy_with(json!({ "lease": "30s" }), |config| config.deadline(HELD));
    assert_eq!(pay(&envoy, "warm").status, 200);
    let client = envoy.client();
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| client.send(&payment("k")).expect("an answer"));
        world.await_runs(2);
        world.redis.kill();
        answer.join().expect("a client does not panic")
    });
    assert_eq!((answer.status, answer.body.as_str()), (200, "{\"run\":1}\n"), "{answer:?}");
    // Nothing was left in the store: the outcome is stored as nobody has claimed the key since.
    world.redis.restart().expect("Redis starts again");
    world.await_state(Some("D"));
    lockkeeper_tests::poll::until("it is replayed", Duration::from_secs(5), || {
        (told(&pay(&envoy, "k")) == "replayed 200").then_some(())
    })
    .expect("it is replayed");
    assert_eq!(world.origin.count(), 2);
}

#[test]
fn respond_at_once_does_not_wait_for_the_store() {
    let (world, store, envoy) = start(json!({ "respond": "at_once", "lease": "30s" }));
    let slow = HELD * 2 / 3;
    store.fail(COMPLETE, Fault::Slow(slow));
    let answer = pay(&envoy, "k");
    assert_eq!(answer.status, 200);
    assert!(answer.elapsed < slow, "{:?}", answer.elapsed);
    world.await_state(Some("D"));
    let (world, store, envoy) = start(json!({ "lease": "30s" }));
    store.fail(COMPLETE, Fault::Slow(slow));
    let answer = pay(&envoy, "k");
    assert!(answer.elapsed >= slow, "a held response is later than its record: {:?}", answer.elapsed);
    assert_eq!(world.state().as_deref(), Some("D"));
}

#[test]
fn a_release_that_fails_is_repeated_until_it_is_done() {
    let (world, store, envoy) = start(json!({ "lease": "30s" }));
    world.origin.behave(Arc::new(|_| vec![Piece::Bytes(origin::response(409, "{}"))]));
    store.fail(RELEASE, Fault::Refused("BUSY Redis is busy running a script.".to_owned()));
    assert_eq!(told(&pay(&envoy, "k")), "409");
    assert_eq!(told(&pay(&envoy, "k")), "409 idempotency-in-progress");
    store.heal();
    let healed = Instant::now();
    world.await_state(None);
    assert!(healed.elapsed() < Duration::from_secs(3), "{:?}", healed.elapsed());
}
