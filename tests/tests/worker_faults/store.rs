//! A store that is killed, stopped, silent, slow, or answers with garbage and half replies.

use crate::world::{DEADLINE, World, policy};
use lockkeeper_tests::stub_store::{self, Behaviour, StubStore};
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Redis, RestFront, poll};
use std::time::Duration;

/// `*5`, the tag with its length, four integers: the reply to a decision with one limit.
const REPLY_BYTES: usize = 4 + 5 + 18 + 4 * 4;

#[test]
fn redis_killed_and_stopped() {
    for transport in Transport::ALL {
        println!("{transport:?}");
        let mut redis = Redis::start().expect("Redis starts");
        let world = World::start(transport, redis.address(), &policy(4));
        world.recover("first");
        redis.kill();
        for round in 0..4 {
            world.assert_degraded(&format!("killed-{round}"));
        }
        redis.restart().expect("Redis starts again");
        world.recover("restarted");
        redis.pause();
        for round in 0..4 {
            world.assert_degraded(&format!("stopped-{round}"));
        }
        redis.resume();
        world.recover("resumed");
    }
}

/// CLK-04: the first decisions of an isolate, all made locally.
#[test]
fn clk_04_an_isolate_that_never_saw_the_store_limits_by_itself() {
    let redis = Redis::start().expect("Redis starts");
    let world = World::start(Transport::Tcp, redis.address(), &policy(4));
    drop(redis);
    let statuses: Vec<u16> = (0..10).map(|_| world.ask("local", "one").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 4, "{statuses:?}");
    assert_eq!(world.ask("local", "another").status, 200);
}

#[test]
fn a_store_that_is_silent_slow_or_talks_garbage() {
    let faults: [(&str, Behaviour); 5] = [
        ("silent", stub_store::silent()),
        ("slow", stub_store::admit_after(DEADLINE * 3)),
        ("garbage", stub_store::raw(b"HTTP/1.1 200 OK\r\n\r\n")),
        ("another's reply", stub_store::raw(b"*5\r\n$16\r\n0123456789abcdef\r\n:1\r\n:9\r\n:0\r\n:0\r\n")),
        ("an error", stub_store::error("READONLY You can't write against a read only replica.")),
    ];
    for transport in Transport::ALL {
        let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
        let world = World::start(transport, stub.address(), &policy(1_000));
        for (name, behaviour) in &faults {
            println!("{transport:?}, {name}");
            world.recover("before");
            stub.behave(behaviour.clone());
            for round in 0..2 {
                world.assert_degraded(&format!("{name}-{round}"));
            }
            stub.behave(stub_store::admit());
            world.recover("after");
        }
    }
}

#[test]
fn a_store_that_closes_at_every_byte_of_its_reply() {
    for transport in Transport::ALL {
        let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
        let world = World::start(transport, stub.address(), &policy(1_000));
        for bytes in 0..=REPLY_BYTES {
            world.recover("before");
            stub.behave(stub_store::close_after(bytes));
            let answer = world.ask("deny", "cut");
            let expected = if bytes < REPLY_BYTES { 503 } else { 200 };
            assert_eq!(answer.status, expected, "{transport:?}, {bytes} bytes: {answer:?}");
            stub.behave(stub_store::admit());
        }
    }
}

#[test]
fn nobody_waits_for_a_store_that_is_known_to_fail() {
    let stub = StubStore::start(stub_store::silent()).expect("a loopback port is free");
    for transport in Transport::ALL {
        let world = World::start(transport, stub.address(), &policy(4));
        let soon = poll::until("the breaker opens", Duration::from_secs(10), || {
            (world.ask("deny", "user").elapsed < DEADLINE / 2).then_some(())
        });
        assert!(soon.is_ok(), "{transport:?}: everybody waits for the store");
    }
}

/// HST-04: nothing of one request is used by another, and a connection that died idle is not used again.
#[test]
fn hst_04_overlapping_requests_and_a_connection_that_died_idle() {
    let stub = StubStore::start(stub_store::admit_after(DEADLINE / 4)).expect("a loopback port is free");
    for transport in Transport::ALL {
        let world = World::start(transport, stub.address(), &policy(1_000));
        world.recover("first");
        for round in 0..3 {
            let statuses: Vec<u16> = std::thread::scope(|scope| {
                let asked: Vec<_> = (0..7)
                    .map(|user| {
                        let world = &world;
                        scope.spawn(move || world.ask("deny", &user.to_string()).status)
                    })
                    .collect();
                asked.into_iter().map(|one| one.join().expect("an answer")).collect()
            });
            assert_eq!(statuses, [200; 7], "{transport:?}, round {round}");
            stub.close_connections();
            world.recover("idle");
        }
        let log = world.workerd.process().log();
        assert!(!log.contains("different request") && !log.contains("hung"), "{log}");
    }
}

#[test]
fn a_front_that_refuses_the_token_denies() {
    let redis = Redis::start().expect("Redis starts");
    let front = RestFront::start(redis.address()).expect("a loopback port is free");
    let config = lockkeeper_tests::WorkerdConfig::built().store(Transport::Rest, front.address());
    let config = config.policy(&policy(4)).variable("STORE_TOKEN", "wrong");
    let workerd = lockkeeper_tests::Workerd::start(&config).expect("workerd starts");
    let request = lockkeeper_tests::http::Request::get("/deny").header("x-user", "one");
    assert_eq!(workerd.client().send(&request).expect("workerd answers").status, 503);
}
