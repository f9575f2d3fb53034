//! What a gateway does with keys and locks while the store is down, by each failure mode.

use crate::world::{
    World, by_instance, decider, decisions, in_background, payment, send, slow_payment, wait_for, wait_for_metric,
};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::load::{self, Until};
use lockkeeper_tests::poll;
use serde_json::json;
use std::time::Duration;

const DUPLICATES: usize = 200;

#[test]
fn flb_48_of_200_duplicates_on_two_workers_one_reaches_the_upstream() {
    let mut world = World::start(by_instance());
    let envoy = world.envoy(json!({}));
    world.redis.kill();
    wait_for(&envoy, Some("local"));
    world.upstream.take();
    let before = world.upstream.count();
    let samples = load::run(envoy.address(), DUPLICATES, Until::Requests(DUPLICATES), |_| {
        slow_payment("k1", Duration::from_millis(500))
    });
    assert_eq!(world.upstream.count() - before, 1);
    let headers = world.upstream.take().remove(0)["headers"].clone();
    assert_eq!((&headers["idempotency-attempt"], headers.get("fencing-token")), (&json!("1"), None), "{headers}");
    let answers: Vec<_> = samples.iter().map(|sample| sample.answer.as_ref().expect("an answer")).collect();
    assert!(answers.iter().all(|answer| [200, 409].contains(&answer.status) && decider(answer) == Some("local")));
    let bodies: Vec<_> = answers.iter().filter(|answer| answer.status == 200).map(|answer| &answer.body).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");

    let again = send(&envoy, &payment("k1"));
    assert_eq!((again.status, &again.body), (200, bodies[0]), "{again:?}");
    assert_eq!((again.header("idempotent-replayed"), decider(&again)), (Some("true"), Some("local")));
    let other = send(&envoy, &payment("k1").body("{\"other\":1}"));
    assert_eq!((other.status, decider(&other)), (422, Some("local")), "{other:?}");
    assert_eq!(world.upstream.count() - before, 1);
    for (outcome, count) in [("allowed", 1), ("replayed", 1), ("mismatch", 1)] {
        wait_for_metric(&envoy, &decisions(outcome, "local"), count);
    }
}

#[test]
fn idm_08_by_default_a_key_is_refused_while_the_store_is_down() {
    let mut world = World::start(json!({}));
    let envoy = world.envoy(json!({}));
    wait_for(&envoy, None);
    world.redis.kill();
    let before = world.upstream.count();
    for _ in 0..2 {
        let answer = send(&envoy, &payment("k1"));
        assert_eq!((answer.status, decider(&answer)), (503, Some("failure_mode")), "{answer:?}");
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
    assert_eq!(world.upstream.count(), before);
    wait_for_metric(&envoy, &decisions("unavailable", "failure_mode"), 2);
}

#[test]
fn idm_08_where_the_policy_allows_it_a_key_passes_unprotected_and_says_so() {
    let mut world = World::start(json!({ "on_store_failure": "allow" }));
    let envoy = world.envoy(json!({}));
    wait_for(&envoy, None);
    world.redis.kill();
    wait_for(&envoy, Some("failure_mode"));
    let before = world.upstream.count();
    for _ in 0..2 {
        let answer = send(&envoy, &payment("k1"));
        assert_eq!((answer.status, decider(&answer)), (200, Some("failure_mode")), "{answer:?}");
        assert_eq!(answer.header("idempotent-replayed"), None);
    }
    assert_eq!(world.upstream.count() - before, 2);
    wait_for_metric(&envoy, &decisions("allowed", "failure_mode"), 2);
}

#[test]
fn two_instances_do_not_know_of_each_other() {
    let mut world = World::start(by_instance());
    let envoys = [world.envoy(json!({})), world.envoy(json!({}))];
    world.redis.kill();
    envoys.iter().for_each(|envoy| wait_for(envoy, Some("local")));
    let before = world.upstream.count();
    for envoy in envoys.iter().chain(&envoys) {
        assert_eq!(send(envoy, &payment("k1")).status, 200);
    }
    assert_eq!(world.upstream.count() - before, 2, "once for each instance");
}

#[test]
fn flb_50_a_full_table_refuses_new_keys_and_forgets_none_that_runs() {
    let mut world = World::start(by_instance());
    let envoy = world.envoy(json!({ "claim_sets": 1 }));
    world.redis.kill();
    wait_for(&envoy, Some("local"));
    let before = world.upstream.count();
    let running: Vec<_> = (0..8)
        .map(|number| {
            in_background(envoy.address(), slow_payment(&format!("running-{number}"), Duration::from_secs(4)))
        })
        .collect();
    let arrived = || (world.upstream.count() - before == 8).then_some(());
    poll::until("all eight run", Duration::from_secs(3), arrived).expect("the eight keys of the set run");
    let answer = send(&envoy, &payment("extra"));
    assert_eq!((answer.status, decider(&answer)), (503, Some("failure_mode")), "{answer:?}");
    for number in 0..8 {
        assert_eq!(send(&envoy, &payment(&format!("running-{number}"))).status, 409, "running-{number}");
    }
    wait_for_metric(&envoy, "lockkeeper_local_events.event.claim_no_room", 1);
    running.into_iter().for_each(|one| assert_eq!(one.join().expect("a client does not panic").status, 200));
    assert_eq!(send(&envoy, &payment("extra")).status, 200, "what is done makes room");
    assert_eq!(world.upstream.count() - before, 9);
}

#[test]
fn locks_and_limits_hold_within_the_instance_and_a_denial_claims_nothing() {
    let limit =
        json!({ "name": "all", "algorithm": "fixed_window", "limit": 2, "window": "1d", "key": ["header:x-user"] });
    let lock = json!({ "key": ["header:x-resource"], "on_store_failure": "local", "per_instance_protection": true });
    let mut world = World::of(json!({ "lock": lock, "limits": [limit] }));
    let envoy = world.envoy(json!({}));
    let request = |user: &str| Request::get("/").header("x-resource", "r").header("x-user", user);
    world.redis.kill();
    let local = || (decider(&send(&envoy, &request("probe"))) == Some("local")).then_some(());
    poll::until("this instance decides", Duration::from_secs(15), local).expect("the gateway follows the store");
    let before = world.upstream.count();
    let slow = in_background(envoy.address(), request("a").header(lockkeeper_tests::upstream::DELAY_MS, "1500"));
    let arrived = || (world.upstream.count() > before).then_some(());
    poll::until("the holder runs", Duration::from_secs(2), arrived).expect("the holder reaches the upstream");
    // Refused by the lock, which charges nothing.
    for _ in 0..5 {
        assert_eq!(send(&envoy, &request("a")).status, 423);
    }
    let headers = world.upstream.take().pop().expect("the holder was seen")["headers"].clone();
    assert_eq!(headers.get("fencing-token"), None, "{headers}");
    assert_eq!(slow.join().expect("the holder does not panic").status, 200);
    assert_eq!(send(&envoy, &request("a")).status, 200, "the lock is free");
    // Refused by the limit, which locks nothing.
    assert_eq!(send(&envoy, &request("a")).status, 429);
    assert_eq!(send(&envoy, &request("b")).status, 200);
}
