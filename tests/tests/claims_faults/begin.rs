//! Claims whose grant is lost, late, or wanted by nobody any more (reference §4.3 B2, B13, list 25–27, 35; case HST-01): the same owner
//! asks again, and what was granted for nothing is given back.

use crate::world::{LEASE, World, pay, payment, payment_bytes, policy, told};
use lockkeeper_core::script::{ADMIT, COMPLETE, RELEASE};
use lockkeeper_tests::faulty_store::{Fault, FaultyStore};
use lockkeeper_tests::http::Response;
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{Envoy, SlowLink, origin, poll};
use serde_json::{Value, json};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_millis(400);

fn start(more: Value) -> (World, FaultyStore, Envoy) {
    let world = World::start();
    let store = FaultyStore::start(world.redis.address()).expect("a loopback port is free");
    let mut policy = policy(more);
    let limit = json!({ "name": "all", "algorithm": "fixed_window", "limit": 100, "window": "1h", "key": ["host"] });
    policy["policies"]["payments"]["limits"] = json!([limit]);
    let envoy = world.envoy_with(json!({}), |config| config.policy(policy).redis(store.address()).deadline(DEADLINE));
    poll::until("the store decides", Duration::from_secs(5), || (pay(&envoy, "warm").status == 200).then_some(()))
        .expect("the store decides");
    redis::cmd("DEL").arg(keys(&world, "")).exec(&mut world.redis.connection()).expect("Redis answers");
    (world, store, envoy)
}

fn remaining(response: &Response) -> u64 {
    let field = response.header("ratelimit").expect("a claim is decided with the limits");
    let rest = field.split("r=").nth(1).expect("a remaining number");
    rest.split(';').next().and_then(|number| number.parse().ok()).expect("a remaining number")
}

#[test]
fn a_grant_whose_reply_is_lost_is_asked_for_again_and_charged_once() {
    let (world, store, envoy) = start(json!({ "lease": "30s" }));
    let before = remaining(&pay(&envoy, "before"));
    store.forget_counts();
    store.fail_once(ADMIT, Fault::ReplyLost);
    let answer = pay(&envoy, "k");
    assert_eq!(told(&answer), "200");
    assert_eq!(store.count(ADMIT), 2);
    let run = world.origin.seen().pop().expect("it ran");
    assert_eq!(run.header("idempotency-attempt"), Some("1"));
    let fence = run.header("fencing-token").expect("a token").to_owned();
    assert!(recorded_fences(&world).contains(&fence), "the fence of the first grant");
    assert_eq!(remaining(&pay(&envoy, "after")), before - 2, "one for each key");
}

/// The keys of claims that end so.
fn keys(world: &World, end: &str) -> Vec<String> {
    redis::cmd("KEYS").arg(format!("*idempotency*{end}")).query(&mut world.redis.connection()).expect("Redis answers")
}

/// The fences of all records.
fn recorded_fences(world: &World) -> Vec<String> {
    let mut connection = world.redis.connection();
    // A record may go between the two commands.
    let mut read = |key: &String| redis::cmd("HGET").arg(key).arg("f").query(&mut connection).ok().flatten();
    keys(world, ":r").iter().filter_map(&mut read).collect()
}

/// The key is free soon, and what runs then is the first attempt.
fn assert_runs_as_the_first_attempt(world: &World, envoy: &Envoy, runs: usize) {
    let not_held = || {
        let answer = pay(envoy, "k");
        (answer.status != 503 && told(&answer) != "409 idempotency-in-progress").then_some(answer)
    };
    let answer = poll::until("the key is free", Duration::from_secs(5), not_held).expect("the key is free");
    assert_eq!((told(&answer).as_str(), world.origin.count()), ("200", runs + 1));
    let run = world.origin.seen().pop().expect("it ran");
    assert_eq!(run.header("idempotency-attempt"), Some("1"));
}

#[test]
fn a_grant_that_comes_too_late_is_given_back_and_its_attempt_counts_as_none() {
    let (world, store, envoy) = start(json!({ "lease": "30s" }));
    let runs = world.origin.count();
    store.fail(ADMIT, Fault::Late(DEADLINE * 2));
    let answer = pay(&envoy, "k");
    assert_eq!(told(&answer), "503 store-unavailable");
    assert!(answer.header("retry-after").is_some() && answer.elapsed < DEADLINE * 2, "{answer:?}");
    store.heal();
    world.await_state(None);
    assert_runs_as_the_first_attempt(&world, &envoy, runs);
}

#[test]
fn a_claim_that_is_taken_after_it_was_given_back_is_given_back_once_more() {
    let (world, store, envoy) = start(json!({ "lease": "30s" }));
    let runs = world.origin.count();
    store.forget_counts();
    store.fail(ADMIT, Fault::Slow(DEADLINE * 3 / 2));
    let client = envoy.client();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.send(&payment("k")).expect("an answer"));
        // The commands are in the store's hands when their connections close; the release overtakes them.
        for asked in 1..=2 {
            let is_asked = || (store.count(ADMIT) >= asked).then_some(());
            poll::until("the claim is asked for", Duration::from_secs(5), is_asked).expect("it is asked for");
            store.cut();
        }
        assert_eq!(told(&first.join().expect("a client does not panic")), "503 store-unavailable");
    });
    world.await_state(Some("R"));
    assert!(store.count(RELEASE) > 0, "it was given back before");
    store.heal();
    world.await_state(None);
    assert_runs_as_the_first_attempt(&world, &envoy, runs);
}

#[test]
fn a_grant_that_was_on_its_way_for_longer_than_it_lasts_is_not_used_when_another_has_taken_over() {
    let world = World::start_with(origin::numbered_after(LEASE));
    let store = FaultyStore::start(world.redis.address()).expect("a loopback port is free");
    let policy = json!({ "on_unknown": "retry_after_lease" });
    let patient = world.envoy_with(policy.clone(), |config| config.redis(store.address()).deadline(LEASE * 4));
    let other = world.envoy(policy);
    assert_eq!(pay(&patient, "warm").status, 200);
    store.fail_once(ADMIT, Fault::Late(LEASE * 3 / 2));
    let client = patient.client();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.send(&payment("k")).expect("an answer"));
        poll::until("the claim is granted", DEADLINE, || (keys(&world, ":r").len() == 2).then_some(()))
            .expect("the claim is granted");
        let take_over = || Some(pay(&other, "k")).filter(|answer| answer.status == 200);
        poll::until("another takes over", LEASE * 3, take_over).expect("another takes over");
        assert_eq!(told(&first.join().expect("a client does not panic")), "409 idempotency-in-progress");
    });
    assert_eq!((world.origin.count(), world.origin.most_at_work()), (2, 1), "{:?}", world.origin.seen());
}

#[test]
fn a_grant_that_was_on_its_way_for_longer_than_it_lasts_is_asked_for_again_when_nobody_has_taken_over() {
    let world = World::start();
    let store = FaultyStore::start(world.redis.address()).expect("a loopback port is free");
    let envoy = world.envoy_with(json!({}), |config| config.redis(store.address()).deadline(LEASE * 4));
    assert_eq!(pay(&envoy, "warm").status, 200);
    store.forget_counts();
    store.fail_once(ADMIT, Fault::Late(LEASE * 5 / 4));
    assert_eq!(told(&pay(&envoy, "k")), "200");
    assert_eq!((store.count(ADMIT), world.origin.count()), (2, 2));
}

#[test]
fn a_claim_that_a_stopped_store_takes_when_it_goes_on_is_given_back() {
    let (world, _store, envoy) = start(json!({ "lease": "30s" }));
    let straight = world.envoy_with(json!({ "lease": "30s" }), |config| config.deadline(DEADLINE));
    assert_eq!(pay(&straight, "warm").status, 200);
    drop(envoy);
    let runs = world.origin.count();
    world.redis.pause();
    assert_eq!(told(&pay(&straight, "k")), "503 store-unavailable");
    // Past the release, and past its repetition.
    std::thread::sleep(Duration::from_secs(2));
    world.redis.resume();
    let runs_at_last = || Some(told(&pay(&straight, "k"))).filter(|told| told == "200");
    poll::until("the key is free", Duration::from_secs(8), runs_at_last).expect("the key is free");
    assert_eq!(world.origin.count(), runs + 1);
}

#[test]
fn hst_01_a_client_that_goes_away_while_its_claim_is_asked_for_holds_nothing() {
    let (world, store, envoy) = start(json!({ "lease": "30s" }));
    let runs = world.origin.count();
    store.fail(ADMIT, Fault::Late(DEADLINE * 3 / 4));
    let mut client = RawConnection::open(envoy.address()).expect("Envoy accepts");
    client.send(&payment_bytes("k")).expect("Envoy reads");
    world.await_state(Some("R"));
    drop(client);
    world.await_state(None);
    store.heal();
    assert_eq!(world.origin.count(), runs);
    assert_eq!(told(&pay(&envoy, "k")), "200");
    let run = world.origin.seen().pop().expect("it ran");
    assert_eq!(run.header("idempotency-attempt"), Some("1"));
}

#[test]
fn hst_01_of_clients_that_go_away_at_any_time_none_leaves_a_claim_that_never_ran() {
    const CLIENTS: usize = 300;
    let world = World::start();
    let link = SlowLink::start(world.redis.address(), Duration::from_millis(60)).expect("a loopback port is free");
    let envoy = world.envoy_with(json!({ "lease": "30s" }), |config| config.redis(link.address()));
    assert_eq!(pay(&envoy, "warm").status, 200);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let envoy = &envoy;
            scope.spawn(move || {
                let mut client = RawConnection::open(envoy.address()).expect("Envoy accepts");
                client.send(&payment_bytes(&format!("k{number}"))).expect("Envoy reads");
                // Every second one has patience.
                if number % 2 == 0 {
                    assert_eq!(client.receive().expect("an answer").status, 200, "{number}");
                } else {
                    std::thread::sleep(Duration::from_millis((number * 7 % 150) as u64));
                }
            });
        }
    });
    let (mut runs, mut fences) = (Vec::new(), Vec::new());
    let is_settled = || {
        let seen = world.origin.seen();
        runs = seen.iter().filter_map(|run| run.header("fencing-token").map(str::to_owned)).collect();
        fences = recorded_fences(&world);
        fences.iter().all(|fence| runs.contains(fence)).then_some(())
    };
    poll::until("what never ran is given back", Duration::from_secs(5), is_settled)
        .expect("what never ran is given back");
    println!("{} ran, {} records", runs.len(), fences.len());
    assert!(runs.len() >= CLIENTS / 2 && runs.len() < CLIENTS, "{}", runs.len());
    assert_eq!(pay(&envoy, "afterwards").status, 200);
}

#[test]
fn a_duplicate_between_the_answer_and_its_record_waits_for_the_record() {
    let (world, store, envoy) = start(json!({ "lease": "30s" }));
    // Through a gateway of its own: on one pipe it would come after the record.
    let other = world.envoy(json!({ "lease": "30s" }));
    assert_eq!(pay(&other, "warm-too").status, 200);
    store.forget_counts();
    store.fail(COMPLETE, Fault::Slow(DEADLINE * 3 / 4));
    let runs = world.origin.count();
    let client = envoy.client();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.send(&payment("k")).expect("an answer"));
        poll::until("it is answered", Duration::from_secs(5), || (store.count(COMPLETE) > 0).then_some(()))
            .expect("it is answered");
        assert_eq!(told(&pay(&other, "k")), "409 idempotency-in-progress");
        assert_eq!(told(&first.join().expect("a client does not panic")), "200");
    });
    store.heal();
    assert_eq!(told(&pay(&envoy, "k")), "replayed 200");
    assert_eq!(world.origin.count(), runs + 1);
}

#[test]
fn a_waiting_duplicate_gets_the_outcome_and_one_that_waits_in_vain_harms_nobody() {
    let world = World::start_with(origin::numbered_after(Duration::from_millis(1_200)));
    let envoy = world.envoy(json!({ "wait": "600ms", "lease": "30s" }));
    let client = envoy.client();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.send(&payment("k")).expect("an answer"));
        world.await_runs(1);
        let owner = world.record()["o"].clone();
        let in_vain = pay(&envoy, "k");
        assert_eq!(told(&in_vain), "409 idempotency-in-progress");
        assert!(in_vain.elapsed >= Duration::from_millis(550), "{:?}", in_vain.elapsed);
        assert_eq!((world.record()["o"].as_str(), world.record()["s"].as_str()), (owner.as_str(), "R"));
        let in_time = poll::until("a replay", Duration::from_secs(3), || {
            Some(pay(&envoy, "k")).filter(|answer| answer.status == 200)
        });
        assert_eq!(told(&in_time.expect("a replay")), "replayed 200");
        assert_eq!(told(&first.join().expect("a client does not panic")), "200");
    });
    assert_eq!(world.origin.count(), 1);
}
