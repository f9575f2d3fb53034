//! Real Redis, behind `redis_proxy` as shipped, in each kind of trouble.

use crate::observe::{alone, config, observe, wait_for_recovery, wait_for_the_store};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, SlowLink};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A Redis and a gateway that uses it.
fn start() -> (Redis, Envoy) {
    let redis = Redis::start().expect("Redis starts");
    let envoy = Envoy::start(&config().redis(redis.address())).expect("Envoy starts");
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
    let (redis, envoy) = start();
    let redis = std::cell::RefCell::new(redis);
    let kill = || redis.borrow_mut().kill();
    let restart = || redis.borrow_mut().restart().expect("Redis starts again");
    observe(&envoy, kill, restart).assert_bounded_outage("killed");
}

#[test]
fn redis_stopped_with_its_connections_open() {
    let _alone = alone();
    let (redis, envoy) = start();
    observe(&envoy, || redis.pause(), || redis.resume()).assert_bounded_outage("stopped");
}

#[test]
fn redis_demoted_to_a_replica_and_promoted() {
    let _alone = alone();
    let master = Redis::start().expect("Redis starts");
    let (redis, envoy) = start();
    let demote = || command(&redis, &format!("REPLICAOF 127.0.0.1 {}", master.address().port()));
    observe(&envoy, demote, || command(&redis, "REPLICAOF NO ONE")).assert_bounded_outage("read only");
}

#[test]
fn redis_out_of_memory() {
    let _alone = alone();
    let (redis, envoy) = start();
    let fill = || command(&redis, "CONFIG SET maxmemory 100kb");
    observe(&envoy, fill, || command(&redis, "CONFIG SET maxmemory 0")).assert_bounded_outage("out of memory");
}

#[test]
fn redis_busy_with_a_script_that_does_not_end() {
    let _alone = alone();
    let (redis, envoy) = start();
    command(&redis, "CONFIG SET busy-reply-threshold 100");
    std::thread::scope(|scope| {
        let hog = || {
            scope.spawn(|| {
                let mut connection = redis.connection();
                let killed = redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection);
                assert!(killed.is_err(), "the endless script ends only when it is killed");
            });
        };
        observe(&envoy, hog, || command(&redis, "SCRIPT KILL")).assert_bounded_outage("busy");
    });
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
fn a_failover_behind_the_same_address_straight() {
    assert_follows_a_failover("straight", |address| config().straight_to(address), |_| {});
}

/// `redis_proxy` keeps its connections whatever is answered on them, so the failover must close them, as Sentinel's does.
#[test]
fn a_failover_behind_the_same_address_through_redis_proxy() {
    let close = |old: &Redis| command(old, "CLIENT KILL TYPE normal");
    assert_follows_a_failover("redis_proxy", |address| config().redis(address), close);
}
