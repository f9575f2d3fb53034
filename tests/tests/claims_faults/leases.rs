//! Leases while the upstream works (reference §4.4 R1–R3, list 26, 28–32; case LCK-01): renewed to the end and not beyond, capped, and
//! lost in order.

use crate::world::{LEASE, World, await_counted, counted, pay, payment, told};
use lockkeeper_core::script::RENEW;
use lockkeeper_tests::faulty_store::{Fault, FaultyStore};
use lockkeeper_tests::http::Response;
use lockkeeper_tests::{Envoy, origin, poll};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longer than three leases.
const WORK: Duration = Duration::from_millis(3_300);

fn start(work: Duration, more: Value) -> (World, FaultyStore, Envoy) {
    let world = World::start_with(origin::numbered_after(work));
    let store = FaultyStore::start(world.redis.address()).expect("a loopback port is free");
    let envoy = world.envoy_at(store.address(), more);
    (world, store, envoy)
}

/// Sends a payment, and does something while the upstream works on it.
fn while_at_work<R>(world: &World, envoy: &Envoy, act: impl FnOnce() -> R) -> (anyhow::Result<Response>, R) {
    std::thread::scope(|scope| {
        let runs = world.origin.count();
        let client = envoy.client();
        let sender = scope.spawn(move || client.send(&payment("k")));
        world.await_runs(runs + 1);
        let result = act();
        (sender.join().expect("a client does not panic"), result)
    })
}

fn set(world: &World, fields: &[(&str, &str)]) {
    let mut connection = world.redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:r").query(&mut connection).expect("Redis answers");
    redis::cmd("HSET").arg(&keys[0]).arg(fields).exec(&mut connection).expect("Redis answers");
}

const STRANGER: &str = "00000000000000000000000000000001";

#[test]
fn lck_01_a_handler_longer_than_its_lease_keeps_it_and_renewals_stop_at_its_end() {
    let (world, store, envoy) = start(WORK, json!({}));
    let started = Instant::now();
    let (answer, ()) = while_at_work(&world, &envoy, || {
        while started.elapsed() < WORK - Duration::from_millis(500) {
            assert_eq!(told(&pay(&envoy, "k")), "409 idempotency-in-progress", "after {:?}", started.elapsed());
            std::thread::sleep(Duration::from_millis(250));
        }
    });
    assert_eq!(answer.expect("an answer").status, 200);
    assert_eq!(world.origin.count(), 1);
    let renewals = store.count(RENEW);
    // Three for each lease that it lasted, give or take a late tick, and the text of the script once.
    assert!((6..=13).contains(&renewals), "{renewals}");
    std::thread::sleep(LEASE * 3 / 2);
    assert_eq!(store.count(RENEW), renewals, "renewals go on after the end");
    assert_eq!(told(&pay(&envoy, "k")), "replayed 200");
    assert_eq!(counted(&envoy, "lease_events.event.lost"), 0);
}

#[test]
fn a_renewed_lease_ends_one_lease_from_now_and_is_not_added_up() {
    let (world, _store, envoy) = start(WORK, json!({}));
    let (answer, ends) = while_at_work(&world, &envoy, || {
        std::thread::sleep(WORK * 2 / 3);
        let deadline: u64 = world.record()["d"].parse().expect("a deadline is a number");
        let (s, us): (u64, u64) = redis::cmd("TIME").query(&mut world.redis.connection()).expect("Redis answers");
        Duration::from_micros(deadline.saturating_sub(s * 1_000_000 + us))
    });
    assert_eq!(answer.expect("an answer").status, 200);
    assert!(ends > Duration::ZERO && ends <= LEASE, "{ends:?}");
}

#[test]
fn a_lease_is_not_renewed_beyond_its_most() {
    let (world, store, envoy) = start(WORK, json!({ "max_lease": "2s", "on_unknown": "retry_after_lease" }));
    let ((first, second), third) = {
        let (first, second) = while_at_work(&world, &envoy, || {
            poll::until("the lease lapses", Duration::from_secs(5), || {
                let answer = pay_unless_busy(&envoy);
                answer.filter(|answer| answer.status == 200)
            })
            .expect("another runs")
        });
        ((first, second), pay(&envoy, "k"))
    };
    // The first one's client gets its own answer; the record is the second one's.
    assert_eq!(first.expect("an answer").body, "{\"run\":0}\n");
    assert_eq!(second.body, "{\"run\":1}\n");
    assert_eq!((told(&third).as_str(), third.body.as_str()), ("replayed 200", "{\"run\":1}\n"));
    let runs = world.origin.seen();
    let between = runs[1].at - runs[0].at;
    assert!(between > Duration::from_millis(1_900), "{between:?}");
    assert!(store.count(RENEW) > 0);
    assert_eq!(runs[1].header("idempotency-attempt"), Some("2"));
    await_counted(&envoy, "lease_events.event.lost", 1);
    await_counted(&envoy, "event.complete.outcome.lost", 1);
}

fn pay_unless_busy(envoy: &Envoy) -> Option<Response> {
    let answer = pay(envoy, "k");
    (told(&answer) != "409 idempotency-in-progress").then_some(answer)
}

#[test]
fn a_lease_taken_by_another_is_not_renewed_and_the_late_completion_is_refused() {
    let (world, store, envoy) = start(LEASE * 2, json!({}));
    let (answer, ()) = while_at_work(&world, &envoy, || {
        set(&world, &[("o", STRANGER)]);
        await_counted(&envoy, "event.renew.outcome.lost", 1);
        await_counted(&envoy, "lease_events.event.lost", 1);
        let renewals = store.count(RENEW);
        std::thread::sleep(LEASE / 2);
        assert_eq!(store.count(RENEW), renewals, "what is lost is not renewed");
    });
    assert_eq!(answer.expect("the client is served").status, 200);
    await_counted(&envoy, "event.complete.outcome.lost", 1);
    let record = world.record();
    assert_eq!((record["o"].as_str(), record["s"].as_str()), (STRANGER, "R"));
    assert_eq!(counted(&envoy, "lease_events.event.lost"), 1);
}

#[test]
fn a_record_that_is_gone_ends_renewals_and_the_outcome_is_still_stored() {
    let (world, _store, envoy) = start(LEASE, json!({}));
    let (answer, ()) = while_at_work(&world, &envoy, || {
        redis::cmd("FLUSHALL").exec(&mut world.redis.connection()).expect("Redis answers");
        await_counted(&envoy, "event.renew.outcome.gone", 1);
    });
    assert_eq!(answer.expect("the client is served").status, 200);
    world.await_state(Some("D"));
    assert_eq!(told(&pay(&envoy, "k")), "replayed 200");
    assert_eq!(world.origin.count(), 1);
}

#[test]
fn on_lease_lost_cancel_ends_the_request() {
    let (world, _store, envoy) = start(LEASE * 3, json!({ "on_lease_lost": "cancel" }));
    let started = Instant::now();
    let (answer, ()) = while_at_work(&world, &envoy, || set(&world, &[("o", STRANGER)]));
    assert!(!answer.as_ref().is_ok_and(|answer| answer.status == 200), "{answer:?}");
    assert!(started.elapsed() < LEASE * 2, "{:?}", started.elapsed());
    let record = world.record();
    assert_eq!((record["o"].as_str(), record["s"].as_str()), (STRANGER, "R"));
    // The instance goes on serving.
    assert_eq!(pay(&envoy, "another").status, 200);
}

#[test]
fn renewals_that_fail_are_repeated_and_the_lease_is_lost_by_this_gateways_own_clock() {
    let (world, store, envoy) = start(LEASE * 3, json!({ "on_lease_lost": "cancel" }));
    store.fail(RENEW, Fault::Refused("LOADING Redis is loading the dataset in memory".to_owned()));
    let started = Instant::now();
    let (answer, ()) = while_at_work(&world, &envoy, || ());
    assert!(!answer.as_ref().is_ok_and(|answer| answer.status == 200), "{answer:?}");
    assert!(started.elapsed() >= LEASE && started.elapsed() < LEASE * 5 / 2, "{:?}", started.elapsed());
    assert!(store.count(RENEW) > 2, "{}", store.count(RENEW));
    // A store that is back within the lease costs nothing.
    let runs = world.origin.count();
    let (answer, ()) = while_at_work(&world, &envoy_that(&world, &store), || {
        std::thread::sleep(LEASE / 2);
        store.heal();
    });
    assert_eq!(answer.expect("an answer").status, 200);
    assert_eq!(world.origin.count(), runs + 1);
}

/// Another gateway at the same store, where keys are another client's.
fn envoy_that(world: &World, store: &FaultyStore) -> Envoy {
    world.envoy_with(json!({ "on_lease_lost": "cancel" }), |config| {
        config.redis(store.address()).plugin(|plugin| plugin["policy"]["namespace"] = json!("other"))
    })
}
