//! Real Redis in each kind of trouble, at the end of the pipe and behind `redis_proxy`.

use crate::observe::{Way, alone, config, observe, wait_for_recovery, wait_for_the_store};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, SlowLink};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A Redis and a gateway that uses it.
fn start(way: Way) -> (Redis, Envoy) {
    let redis = Redis::start().expect("Redis starts");
    let envoy = Envoy::start(&way.config().redis(redis.address())).expect("Envoy starts");
    (redis, envoy)
}

/// Runs a command, e.g. `CONFIG SET maxmemory 1mb`.
fn command(redis: &Redis, text: &str) {
    let mut command = redis::Cmd::new();
    command.arg(text.split(' ').collect::<Vec<_>>());
    command.exec(&mut redis.connection()).unwrap_or_else(|error| panic!("{text}: {error}"));
}

#[test]
fn redis_killed_and_restarted_empty() {
    let _alone = alone();
    for way in Way::ALL {
        let (redis, envoy) = start(way);
        let redis = std::cell::RefCell::new(redis);
        let kill = || redis.borrow_mut().kill();
        let restart = || redis.borrow_mut().restart().expect("Redis starts again");
        observe(&envoy, kill, restart).assert_bounded_outage(&format!("killed, {way:?}"));
    }
}

#[test]
fn redis_stopped_with_its_connections_open() {
    let _alone = alone();
    for way in Way::ALL {
        let (redis, envoy) = start(way);
        observe(&envoy, || redis.pause(), || redis.resume()).assert_bounded_outage(&format!("stopped, {way:?}"));
    }
}

#[test]
fn redis_demoted_to_a_replica_and_promoted() {
    let _alone = alone();
    for way in Way::ALL {
        let master = Redis::start().expect("Redis starts");
        let (redis, envoy) = start(way);
        let demote = || command(&redis, &format!("REPLICAOF 127.0.0.1 {}", master.address().port()));
        observe(&envoy, demote, || command(&redis, "REPLICAOF NO ONE"))
            .assert_bounded_outage(&format!("read only, {way:?}"));
    }
}

#[test]
fn redis_out_of_memory() {
    let _alone = alone();
    for way in Way::ALL {
        let (redis, envoy) = start(way);
        let fill = || command(&redis, "CONFIG SET maxmemory 100kb");
        observe(&envoy, fill, || command(&redis, "CONFIG SET maxmemory 0"))
            .assert_bounded_outage(&format!("out of memory, {way:?}"));
    }
}

#[test]
fn redis_busy_with_a_script_that_does_not_end() {
    let _alone = alone();
    for way in Way::ALL {
        let (redis, envoy) = start(way);
        command(&redis, "CONFIG SET busy-reply-threshold 100");
        std::thread::scope(|scope| {
            let hog = || {
                scope.spawn(|| {
                    let mut connection = redis.connection();
                    let killed = redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection);
                    assert!(killed.is_err(), "the endless script ends only when it is killed");
                });
            };
            observe(&envoy, hog, || command(&redis, "SCRIPT KILL")).assert_bounded_outage(&format!("busy, {way:?}"));
        });
    }
}

/// The address leads to a new master, and the old one, still alive, becomes its replica.
fn assert_follows_a_failover(name: &str, config: impl Fn(SocketAddr) -> EnvoyConfig, after: impl Fn(&Redis)) {
    let _alone = alone();
    let (old, new) = (Redis::start().expect("Redis starts"), Redis::start().expect("Redis starts"));
    let link = SlowLink::start(old.address(), Duration::ZERO).expect("a loopback port is free");
    let envoy = Envoy::start(&config(link.address())).expect("Envoy starts");
    wait_for_the_store(&envoy);
    command(&old, &format!("REPLICAOF 127.0.0.1 {}", new.address().port()));
    link.lead_to(new.address());
    after(&old);
    let failover = Instant::now();
    wait_for_recovery(&envoy);
    println!("{name}: global {:?} after the failover", failover.elapsed());
}

#[test]
fn a_failover_behind_the_same_address() {
    assert_follows_a_failover("direct", |address| config().redis(address), |_| {});
}

/// `redis_proxy` keeps its connections whatever is answered on them, so the failover must close them, as Sentinel's does.
#[test]
fn a_failover_behind_the_same_address_through_redis_proxy() {
    let close = |old: &Redis| command(old, "CLIENT KILL TYPE normal");
    assert_follows_a_failover("redis_proxy", |address| Way::RedisProxy.config().redis(address), close);
}
