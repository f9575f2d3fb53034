//! A store that forgets, or whose clock steps (reference list 36–39, 44; cases STO-09, IDM-09): what a claim can still promise, and that
//! fences rise whatever happens.

use crate::world::{LEASE, World, await_counted, config, pay, payment, told};
use lockkeeper_tests::http::Response;
use lockkeeper_tests::origin::{self, Origin};
use lockkeeper_tests::{Envoy, Redis, SlowLink, StepClock, poll};
use serde_json::json;
use std::time::Duration;

const WORK: Duration = Duration::from_millis(1_500);

/// Sends a payment through one gateway, and does something while the upstream works on it.
fn while_at_work<R>(origin: &Origin, envoy: &Envoy, act: impl FnOnce() -> R) -> (Response, R) {
    std::thread::scope(|scope| {
        let runs = origin.count();
        let client = envoy.client();
        let sender = scope.spawn(move || client.send(&payment("k")).expect("an answer"));
        let is_there = || (origin.count() > runs).then_some(());
        poll::until("the upstream is asked", Duration::from_secs(5), is_there).expect("the upstream is asked");
        let result = act();
        (sender.join().expect("a client does not panic"), result)
    })
}

fn fences(origin: &Origin) -> Vec<String> {
    origin.seen().iter().filter_map(|run| run.header("fencing-token").map(str::to_owned)).collect()
}

/// Pays through another gateway as soon as that reaches the store.
fn run_elsewhere(envoy: &Envoy) -> Response {
    let answer = || Some(pay(envoy, "k")).filter(|answer| answer.status != 503);
    poll::until("the store is there", Duration::from_secs(5), answer).expect("the store is there")
}

#[test]
fn scripts_flushed_between_any_two_calls_change_nothing() {
    let world = World::start_with(origin::numbered_after(WORK));
    let envoy = world.envoy(json!({}));
    let flush = || redis::cmd("SCRIPT").arg("FLUSH").exec(&mut world.redis.connection()).expect("Redis answers");
    let (answer, ()) = while_at_work(&world.origin, &envoy, || {
        for _ in 0..10 {
            flush();
            std::thread::sleep(WORK / 15);
        }
        flush();
    });
    assert_eq!(told(&answer), "200");
    flush();
    assert_eq!(told(&pay(&envoy, "k")), "replayed 200");
    assert_eq!(world.origin.count(), 1);
}

#[test]
fn sto_09_a_store_that_restarts_empty_forgets_the_claim_and_the_first_outcome_does_not_replace_the_second() {
    let mut world = World::start_with(origin::numbered_after(WORK));
    let gateways = [(); 2].map(|()| world.envoy(json!({})));
    let (redis, origin) = (&mut world.redis, &world.origin);
    let (first, second) = while_at_work(origin, &gateways[0], || {
        redis.restart().expect("Redis starts again");
        run_elsewhere(&gateways[1])
    });
    // What the store has forgotten nobody knows: that is documented. Each client gets its own answer.
    assert_eq!((first.body.as_str(), second.body.as_str()), ("{\"run\":0}\n", "{\"run\":1}\n"));
    assert!(fences(origin).is_sorted_by(|before, after| before < after), "{:?}", fences(origin));
    await_counted(&gateways[0], "event.complete.outcome.lost", 1);
    assert_eq!(pay(&gateways[0], "k").body, "{\"run\":1}\n");
}

#[test]
fn sto_09_a_failover_that_loses_the_claim_is_noticed_and_fences_rise() {
    let (primary, replica) = (Redis::start().expect("Redis starts"), Redis::start().expect("Redis starts"));
    let origin = Origin::start(origin::numbered_after(WORK)).expect("a loopback port is free");
    let link = SlowLink::start(primary.address(), Duration::ZERO).expect("a loopback port is free");
    let at_link = || config(json!({})).redis(link.address()).upstream(origin.address());
    let gateways = [(); 2].map(|()| Envoy::start(&at_link()).expect("Envoy starts"));
    assert_eq!(pay(&gateways[0], "warm").status, 200);
    let port = primary.address().port().to_string();
    let command = |redis: &Redis, words: &[&str]| {
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut redis.connection()).expect("Redis answers");
    };
    let keys = || redis::cmd("DBSIZE").query::<u64>(&mut replica.connection()).expect("Redis answers");
    command(&replica, &["REPLICAOF", "127.0.0.1", &port]);
    poll::until("the replica has it", Duration::from_secs(10), || (keys() >= 2).then_some(())).expect("it replicates");
    // The replica stops listening before the claim is made: the claim is the lost write.
    command(&replica, &["REPLICAOF", "NO", "ONE"]);
    let (first, second) = while_at_work(&origin, &gateways[0], || {
        link.lead_to(replica.address());
        link.cut();
        run_elsewhere(&gateways[1])
    });
    assert_eq!((first.status, second.status), (200, 200));
    let fences = fences(&origin);
    assert!(fences.is_sorted_by(|before, after| before < after), "{fences:?}");
    // The first gateway learns that its claim is gone, and does not overwrite what came after.
    await_counted(&gateways[0], "event.complete.outcome.lost", 1);
    let replayed = pay(&gateways[0], "k");
    assert_eq!((told(&replayed).as_str(), &replayed.body), ("replayed 200", &second.body));
}

#[test]
fn a_fence_rises_over_a_lost_fence_key_and_a_step_of_the_stores_clock() {
    let clock = StepClock::build().expect("the clock is built");
    let redis = Redis::start_in(&[], &clock.environment()).expect("Redis starts");
    let origin =
        Origin::start(origin::always(&[origin::Piece::Bytes(origin::response(409, "{}"))])).expect("a free port");
    let envoy =
        Envoy::start(&config(json!({})).redis(redis.address()).upstream(origin.address())).expect("Envoy starts");
    let run = || {
        let runs = origin.count();
        let ran = || (told(&pay(&envoy, "k")) == "409" && origin.count() > runs).then_some(());
        poll::until("it runs", Duration::from_secs(5), ran).expect("it runs");
    };
    run();
    // The gateway remembers what the store has forgotten, while the store's clock is an hour behind.
    clock.set(-3_600);
    run();
    redis::cmd("FLUSHALL").exec(&mut redis.connection()).expect("Redis answers");
    run();
    clock.set(3_600);
    run();
    clock.set(0);
    run();
    let fences = fences(&origin);
    assert_eq!(fences.len(), 5);
    assert!(fences.is_sorted_by(|before, after| before < after), "{fences:?}");
}

#[test]
fn a_clock_of_the_store_that_steps_back_neither_frees_nor_strands_a_claim() {
    let clock = StepClock::build().expect("the clock is built");
    let redis = Redis::start_in(&[], &clock.environment()).expect("Redis starts");
    let origin = Origin::start(origin::numbered_after(WORK)).expect("a loopback port is free");
    let policy = json!({ "on_unknown": "retry_after_lease" });
    let config = || config(policy.clone()).redis(redis.address()).upstream(origin.address());
    let [mut dying, living] = [(); 2].map(|()| Some(Envoy::start(&config()).expect("Envoy starts")));
    let living = living.expect("it lives");
    let (first, ()) = while_at_work(&origin, &living, || {
        clock.set(-3_600);
        assert_eq!(told(&pay(&living, "k")), "409 idempotency-in-progress");
    });
    assert_eq!((told(&first).as_str(), told(&pay(&living, "k")).as_str()), ("200", "replayed 200"));
    // A claim whose holder is gone lapses one lease later, though its deadline lies an hour ahead.
    redis::cmd("FLUSHALL").exec(&mut redis.connection()).expect("Redis answers");
    clock.set(0);
    let client = dying.as_ref().expect("it still lives").client();
    std::thread::scope(|scope| {
        let runs = origin.count();
        scope.spawn(move || client.send(&payment("k")));
        let is_there = || (origin.count() > runs).then_some(());
        poll::until("the upstream is asked", Duration::from_secs(5), is_there).expect("the upstream is asked");
        dying = None;
    });
    clock.set(-3_600);
    assert_eq!(told(&pay(&living, "k")), "409 idempotency-in-progress");
    std::thread::sleep(LEASE + Duration::from_millis(200));
    assert_eq!(told(&pay(&living, "k")), "200");
}

#[test]
fn a_clock_of_the_store_that_jumps_ahead_is_a_lease_that_lapses_early_and_the_late_outcome_is_refused() {
    let clock = StepClock::build().expect("the clock is built");
    let redis = Redis::start_in(&[], &clock.environment()).expect("Redis starts");
    let origin = Origin::start(origin::numbered_after(WORK)).expect("a loopback port is free");
    let policy = json!({ "on_unknown": "retry_after_lease", "lease": "30s" });
    let config = config(policy).redis(redis.address()).upstream(origin.address());
    let envoy = Envoy::start(&config).expect("Envoy starts");
    let (first, second) = while_at_work(&origin, &envoy, || {
        clock.set(3_600);
        pay(&envoy, "k")
    });
    assert_eq!((first.status, second.status, origin.count()), (200, 200, 2));
    await_counted(&envoy, "event.complete.outcome.lost", 1);
    assert_eq!(pay(&envoy, "k").body, second.body);
}

#[test]
fn idm_09_every_claim_ends_whatever_the_routes_time_out_is() {
    let world = World::start_with(origin::numbered_after(Duration::from_secs(1)));
    let timeouts = [("/zero", Some("0s")), ("/unset", None), ("/short", Some("0.001s")), ("/long", Some("15s"))];
    let envoy = world.envoy_with(json!({ "lease": "5s" }), |mut config| {
        let routes = timeouts.map(|(path, timeout)| {
            let route = json!({ "cluster": "upstream", "timeout": timeout });
            json!({ "match": { "path": path }, "route": route })
        });
        config.connection_manager()["route_config"]["virtual_hosts"][0]["routes"] = json!(routes);
        config
    });
    for (path, _) in timeouts {
        let client = envoy.client();
        let request = payment("k").path(path);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| client.send(&request).expect("an answer"));
            world.await_state(Some("R"));
            assert_eq!(told(&client.send(&request).expect("an answer")), "409 idempotency-in-progress", "{path}");
            let mut connection = world.redis.connection();
            let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("Redis answers");
            for key in keys {
                let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).expect("Redis answers");
                assert!(left > 0, "{path}: {key} lives for ever");
            }
            let (s, us): (u64, u64) = redis::cmd("TIME").query(&mut connection).expect("Redis answers");
            let deadline: u64 = world.record()["d"].parse().expect("a deadline is a number");
            let left = deadline.saturating_sub(s * 1_000_000 + us);
            assert!((1..=5_000_000).contains(&left), "{path}: {left}");
            sender.join().expect("a client does not panic");
        });
        redis::cmd("FLUSHALL").exec(&mut world.redis.connection()).expect("Redis answers");
    }
}
