//! Claims without a store, and policies that this host refuses.

use crate::world::{World, is_replay, is_run, keyed, of, payment, policy, problem, send, start};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Piece, SlowLink, poll};
use serde_json::{Value, json};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(15);

#[test]
fn idm_08_without_a_store_a_request_with_a_key_is_a_503_or_passes_where_the_policy_says_so() {
    for (mode, passes) in [(json!({}), false), (json!({ "on_store_failure": "allow" }), true)] {
        for transport in Transport::ALL {
            let mut world = World::start(keyed(mode.clone()));
            let worker = start(&world.config(transport).deadline(Duration::from_millis(300)));
            world.redis.kill();
            for _ in 0..7 {
                let answer = send(worker.address(), &payment("k", "x"));
                match passes {
                    true => assert!(is_run(&answer), "{transport:?}: {answer:?}"),
                    false => assert_eq!(problem(&answer), of(503, "store-unavailable"), "{transport:?}"),
                }
            }
            assert_eq!(world.origin.count(), if passes { 7 } else { 0 }, "{transport:?}");
            assert!(world.origin.seen().iter().all(|seen| seen.body == b"x" && seen.header("fencing-token").is_none()));
            let get = Request::get("/payments").header("authorization", "Bearer a").header("idempotency-key", "k");
            assert!(is_run(&send(worker.address(), &get)), "{transport:?}: what claims nothing passes");
        }
    }
}

/// The isolate's own table stands in: duplicates get what was kept, and the store learns of it when it is back.
#[test]
fn an_isolate_protects_by_itself_where_the_policy_says_so_and_tells_the_store_later() {
    let mut world = World::start(keyed(json!({ "on_store_failure": "local", "per_instance_protection": true })));
    let worker = start(&world.config(Transport::Tcp).deadline(Duration::from_millis(500)));
    assert!(is_run(&send(worker.address(), &payment("before", "x"))));
    world.redis.kill();
    assert!(is_run(&send(worker.address(), &payment("during", "x"))));
    for key in ["before", "during"] {
        assert!(is_replay(&send(worker.address(), &payment(key, "x"))), "{key}");
        assert_eq!(send(worker.address(), &payment(key, "y")).status, 422, "{key}");
    }
    assert_eq!(world.origin.seen()[1].header("fencing-token"), None, "no other instance knows of it");
    world.redis.restart().expect("Redis starts again");
    let told = poll::until("the store is told", SOON, || {
        send(worker.address(), &Request::get("/"));
        (world.records("D") > 0).then_some(())
    });
    told.unwrap_or_else(|error| panic!("{error:#}\n{}", worker.process().log_tail()));
    let other = world.worker();
    assert!(is_replay(&send(other.address(), &payment("during", "x"))));
    assert_eq!(world.origin.seen().iter().filter(|seen| seen.head.starts_with("POST")).count(), 2);
}

/// E11: the store is away when the request ends. The client is not kept waiting; the record is stored later.
#[test]
fn idm_08_a_store_that_fails_at_completion_is_told_when_it_is_back() {
    for transport in Transport::ALL {
        let mut world = World::start(keyed(json!({ "lease": "30s" })));
        let answer = Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
        world.origin.answer("/payments", vec![Piece::Pause(Duration::from_millis(600)), answer]);
        let worker = start(&world.config(transport).deadline(Duration::from_millis(500)));
        let first = std::thread::scope(|scope| {
            let first = scope.spawn(|| send(worker.address(), &payment("k", "x")));
            poll::until("it runs", SOON, || (world.origin.count() == 1).then_some(())).expect("it runs");
            world.redis.pause();
            first.join().expect("an answer")
        });
        assert!(is_run(&first) && first.elapsed < Duration::from_secs(5), "{transport:?}: {first:?}");
        world.redis.resume();
        let stored = poll::until("the record is stored", SOON, || (world.record("s") == "D").then_some(()));
        stored.unwrap_or_else(|error| panic!("{transport:?}: {error:#}\n{}", worker.process().log_tail()));
        assert!(is_replay(&send(worker.address(), &payment("k", "x"))));
        world.redis.kill();
    }
}

/// E10 and a lost reply to the claim: sent twice, done once.
#[test]
fn replies_that_are_lost_cost_neither_a_second_run_nor_the_claim() {
    let world = World::start(keyed(json!({})));
    let link = SlowLink::start(world.redis.address(), Duration::from_millis(200)).expect("a loopback port is free");
    let config = world.config_to(Transport::DurableObject, link.address()).deadline(Duration::from_secs(2));
    let worker = start(&config);
    assert!(is_run(&send(worker.address(), &payment("warm-up", "x"))));
    for round in 0..6_u64 {
        let key = format!("cut-{round}");
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| send(worker.address(), &payment(&key, "x")));
            std::thread::sleep(Duration::from_millis(30 + 80 * round));
            link.cut();
            asked.join().expect("an answer")
        });
        assert!(is_run(&answer) || answer.status == 503, "{round}: {answer:?}");
        let before = world.origin.count();
        let again = poll::until("it is decided", SOON, || {
            let again = send(worker.address(), &payment(&key, "x"));
            (again.status == 200).then_some(again)
        });
        let again = again.unwrap_or_else(|error| panic!("{round}: {error:#}\n{}", worker.process().log_tail()));
        assert_eq!(is_replay(&again), is_run(&answer), "{round}: {again:?}");
        assert_eq!(world.origin.count(), before + usize::from(!is_run(&answer)), "{round}");
    }
}

/// A lease that is lost, where the policy says so, cuts the origin off: the client does not get what may be untrue.
#[test]
fn r_2_a_lost_lease_cuts_the_origin_off_where_the_policy_says_so() {
    for (on_lost, status) in [("cancel", 502), ("continue", 200)] {
        let lock = json!({ "lock": { "key": ["constant:all"], "lease": "1s", "on_lease_lost": on_lost } });
        let world = World::start(policy(lock));
        let answer = Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
        world.origin.answer("/", vec![Piece::Pause(Duration::from_secs(3)), answer]);
        let worker = world.worker();
        let answer = std::thread::scope(|scope| {
            let held = scope.spawn(|| send(worker.address(), &Request::get("/")));
            poll::until("it runs", SOON, || (world.origin.count() == 1).then_some(())).expect("it runs");
            redis::cmd("FLUSHALL").exec(&mut world.redis.connection()).expect("Redis answers");
            held.join().expect("an answer")
        });
        assert_eq!(answer.status, status, "{on_lost}: {answer:?}");
        assert!(worker.process().log().contains("\"event\":\"lost\""), "{on_lost}");
    }
}

#[test]
fn ten_01_a_policy_whose_scope_the_origin_does_not_verify_is_refused() {
    let refused = |members: Value| {
        let world = World::start(keyed(members));
        let worker = world.worker();
        assert_eq!(send(worker.address(), &payment("k", "x")).status, 503);
        assert_eq!(world.origin.begun(), 0);
        worker.process().log()
    };
    let log = refused(json!({ "scope": ["metadata:cf.country"] }));
    assert!(log.contains("idempotency.scope") && log.contains("header:authorization"), "{log}");
    for scope in [json!(["metadata:cf.country", "header:authorization"]), json!(["cookie:sid"])] {
        let world = World::start(keyed(json!({ "scope": scope, "shared_scope": false })));
        let worker = world.worker();
        let answer = send(worker.address(), &payment("k", "x").header("cookie", "sid=1"));
        assert!(is_run(&answer), "{scope}: {answer:?}");
    }
}
