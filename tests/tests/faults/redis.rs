//! Real Redis, behind `redis_proxy` as shipped, in each kind of trouble.

use crate::observe::{alone, config, observe};
use lockkeeper_tests::{Envoy, Redis};

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
