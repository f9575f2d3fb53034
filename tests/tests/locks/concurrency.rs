//! Limits on requests at once: exact over all gateways, and free again however a request or its gateway ends.

use crate::world::{SOON, World, problem, put, until_status};
use lockkeeper_tests::gated_upstream::Go;
use lockkeeper_tests::poll;
use lockkeeper_tests::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

fn at_once(limit: u64, more: Value) -> Value {
    let mut rules = json!({ "limit": limit, "key": ["host"], "lease": "1s" });
    rules.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({ "concurrency": rules })
}

#[test]
fn two_gateways_let_exactly_the_limit_run_at_once() {
    const REQUESTS: usize = 40;
    let world = World::start_with(at_once(7, json!({})), |config| config.concurrency(2));
    let host = |number: usize| put(&format!("/{number}")).header("host", "a.example");
    let running: Vec<_> = (0..REQUESTS).map(|number| world.begin(number % 2, &host(number))).collect();
    world.upstream.arrived(7);
    let denied = || running.iter().filter(|one| one.is_finished()).count();
    poll::until("the others are answered", SOON, || (denied() == REQUESTS - 7).then_some(())).expect("answered");
    assert_eq!((world.upstream.count(), world.slots()), (7, 7));
    world.upstream.open(Go::Answer(200));
    let answers: Vec<_> = running.into_iter().map(|one| one.join().expect("an answer")).collect();
    let denied: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!((denied.len(), answers.len()), (REQUESTS - 7, REQUESTS));
    for answer in denied {
        assert_eq!(answer.header("ratelimit-policy"), Some("\"concurrency\";q=7;qu=\"concurrent-requests\""));
        assert_eq!(answer.header("ratelimit"), Some("\"concurrency\";r=0"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(problem(answer)["violated-policies"], json!(["concurrency"]));
    }
    world.await_slots(0);
    let passed = world.send(0, &host(0));
    assert_eq!((passed.status, passed.header("ratelimit")), (200, Some("\"concurrency\";r=6")));
    assert_eq!(world.upstream.most_running(), 7);
    assert!(world.counted(0, "limit.concurrency.outcome.denied") > 0);
}

#[test]
fn the_slots_of_a_gateway_that_died_come_back_when_their_lease_ends() {
    let world = World::start(at_once(2, json!({})));
    let _lost = [world.begin_raw(0, "/"), world.begin_raw(0, "/")];
    world.upstream.arrived(2);
    world.await_slots(2);
    let api = put("/").header("host", "api.example.com");
    assert_eq!(world.send(1, &api).status, 429);
    let other = world.begin(1, &put("/").header("host", "a.example"));
    world.upstream.arrived(3);
    world.gateways[0].process().signal(Signal::Kill);
    world.upstream.open(Go::Answer(200));
    assert_eq!(other.join().expect("an answer").status, 200, "another key has slots of its own");
    until_status(200, || world.send(1, &api));
}

#[test]
fn a_slot_is_renewed_while_its_request_runs() {
    let world = World::start(at_once(1, json!({})));
    let holder = world.begin_raw(0, "/");
    world.upstream.arrived(1);
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(2_500) {
        let denied = world.send(1, &put("/").header("host", "api.example.com"));
        assert_eq!(denied.status, 429, "after {:?}", start.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(holder);
    world.await_slots(0);
}

#[test]
fn an_upgraded_connection_holds_its_slot_until_it_closes() {
    let world = World::start_with(at_once(1, json!({})), |mut config| {
        config.connection_manager()["upgrade_configs"] = json!([{ "upgrade_type": "websocket" }]);
        config
    });
    let mut socket = lockkeeper_tests::raw::RawConnection::open(world.gateways[0].address()).expect("Envoy accepts");
    let upgrade = "GET /ws HTTP/1.1\r\nhost: api.example.com\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.send(upgrade.as_bytes()).expect("Envoy reads");
    world.upstream.arrived(1);
    let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    world.upstream.let_go(0, Go::Echo(switch.as_bytes().to_vec()));
    assert_eq!(socket.receive_head().expect("an answer").status, 101);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(world.send(1, &put("/").header("host", "api.example.com")).status, 429, "longer than a lease");
    drop(socket);
    world.await_slots(0);
}

#[test]
fn a_limit_that_only_measures_lets_all_run_and_renews_what_it_counts() {
    let world = World::start(at_once(1, json!({ "enforce": false })));
    let host = put("/").header("host", "a.example");
    let running: Vec<_> = (0..3).map(|number| world.begin(number % 2, &host)).collect();
    world.upstream.arrived(3);
    assert_eq!(world.slots(), 1);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(world.slots(), 1, "the one that has a slot keeps it");
    let lost = [0, 1].map(|gateway| world.counted(gateway, "lease_events.event.lost"));
    assert_eq!(lost, [0, 0], "the others had none to lose");
    world.upstream.open(Go::Answer(200));
    assert!(running.into_iter().all(|one| one.join().expect("an answer").status == 200));
    world.await_slots(0);
    let denials = [0, 1].map(|gateway| world.counted(gateway, "limit.concurrency.outcome.shadow_denied"));
    assert_eq!(denials.iter().sum::<u64>(), 2, "{denials:?}");
}

#[test]
fn a_request_that_another_limit_denies_takes_no_slot() {
    let mut members = at_once(5, json!({}));
    members["limits"] =
        json!([{ "name": "daily", "algorithm": "fixed_window", "limit": 1, "window": "1d", "key": ["host"] }]);
    let world = World::start(members);
    world.upstream.open(Go::Answer(200));
    let host = put("/").header("host", "a.example");
    assert_eq!([world.send(0, &host).status, world.send(1, &host).status], [200, 429]);
    world.await_slots(0);
}
