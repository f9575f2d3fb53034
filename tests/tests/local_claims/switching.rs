//! The store goes and comes back while requests run: none runs beside another on one instance, and what an instance did
//! by itself the store learns, where it knows nothing of the key.

use crate::world::{
    World, by_instance, decider, in_background, payment, send, slow_payment, wait_for, wait_for_metric,
};
use lockkeeper_tests::{Envoy, poll};
use serde_json::json;
use std::time::Duration;

const SLOW: Duration = Duration::from_secs(6);

/// Waits until a request has reached the upstream.
fn wait_for_upstream(world: &World, before: u64) {
    let arrived = || (world.upstream.count() > before).then_some(());
    poll::until("the request runs", Duration::from_secs(5), arrived).expect("it reaches the upstream");
}

/// Waits until the store replays a key: nobody decides by itself.
fn wait_for_replay(envoy: &Envoy, key: &str) -> String {
    let replayed = || {
        let answer = send(envoy, &payment(key));
        let is_replay = answer.header("idempotent-replayed") == Some("true") && decider(&answer).is_none();
        is_replay.then_some(answer.body)
    };
    poll::until("the store replays", Duration::from_secs(15), replayed).expect("the store has the outcome")
}

#[test]
fn flb_49_the_store_learns_what_it_does_not_know_and_keeps_what_it_does() {
    let world = World::start(by_instance());
    let (envoy, other) = (world.envoy(json!({})), world.envoy(json!({})));
    wait_for(&envoy, None);
    wait_for(&other, None);
    let known = send(&other, &payment("known"));
    assert_eq!((known.status, decider(&known)), (200, None), "{known:?}");
    world.redis.pause();
    wait_for(&envoy, Some("local"));
    let before = world.upstream.count();
    // This instance cannot know what another did before the outage: the second execution that is documented.
    let ran = ["new", "known"].map(|key| send(&envoy, &payment(key)));
    assert!(ran.iter().all(|answer| answer.status == 200 && decider(answer) == Some("local")), "{ran:?}");
    assert_eq!(world.upstream.count() - before, 2);
    world.redis.resume();
    wait_for_metric(&envoy, "lockkeeper_local_events.event.claim_pushed", 2);
    wait_for(&other, None);
    let before = world.upstream.count();
    // The instance that ran them runs neither again; another does until the store knows.
    for gateway in [&envoy, &other] {
        assert_eq!(wait_for_replay(gateway, "new"), ran[0].body);
        assert_eq!(wait_for_replay(gateway, "known"), known.body, "the store's own outcome stays");
    }
    let probes = world.upstream.take();
    let again = probes.iter().rev().take(usize::try_from(world.upstream.count() - before).expect("a few"));
    assert!(
        again
            .into_iter()
            .all(|seen| seen["headers"]["idempotency-key"].as_str().is_some_and(|key| key.starts_with("probe")))
    );
}

#[test]
fn a_request_that_runs_by_the_table_alone_is_not_joined_when_the_store_is_back() {
    assert_not_joined_when_the_store_is_back(|envoy| wait_for(envoy, Some("local")));
}

#[test]
fn a_request_whose_claim_was_not_answered_is_not_joined_when_the_store_is_back() {
    assert_not_joined_when_the_store_is_back(|_| {});
}

/// Once the store is away, a request begins after `notice`, and runs until the store has been back for a while.
fn assert_not_joined_when_the_store_is_back(notice: impl FnOnce(&Envoy)) {
    let world = World::start(by_instance());
    let (envoy, other) = (world.envoy(json!({})), world.envoy(json!({})));
    wait_for(&envoy, None);
    world.redis.pause();
    notice(&envoy);
    let before = world.upstream.count();
    let running = in_background(envoy.address(), slow_payment("k1", SLOW));
    wait_for_upstream(&world, before);
    world.redis.resume();
    wait_for(&envoy, None);
    let before = world.upstream.count();
    let duplicate = send(&envoy, &payment("k1"));
    assert_eq!((duplicate.status, decider(&duplicate)), (409, Some("local")), "{duplicate:?}");
    assert_eq!(world.upstream.count(), before);
    let first = running.join().expect("a client does not panic");
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(wait_for_replay(&envoy, "k1"), first.body);
    wait_for(&other, None);
    assert_eq!(wait_for_replay(&other, "k1"), first.body);
}

#[test]
fn flb_52_a_request_that_the_store_granted_is_not_joined_when_the_store_is_gone() {
    let world = World::start(by_instance());
    let (envoy, other) = (world.envoy(json!({})), world.envoy(json!({})));
    wait_for(&envoy, None);
    let before = world.upstream.count();
    let running = in_background(envoy.address(), slow_payment("k1", SLOW));
    wait_for_upstream(&world, before);
    world.redis.pause();
    // Sooner than any breaker: each duplicate finds out for itself.
    let duplicate = send(&envoy, &payment("k1"));
    assert_eq!((duplicate.status, decider(&duplicate)), (409, Some("local")), "{duplicate:?}");
    let first = running.join().expect("a client does not panic");
    assert_eq!(first.status, 200, "a completion that cannot be stored is no error: {first:?}");
    let again = send(&envoy, &payment("k1"));
    assert_eq!((again.status, decider(&again), &again.body), (200, Some("local"), &first.body), "{again:?}");
    world.redis.resume();
    wait_for(&other, None);
    assert_eq!(wait_for_replay(&other, "k1"), first.body);
    let seen = world.upstream.take();
    let ran = seen.iter().filter(|seen| seen["headers"]["idempotency-key"] == "k1");
    assert_eq!(ran.count(), 1);
}
