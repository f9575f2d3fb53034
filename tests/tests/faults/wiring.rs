//! A gateway whose way to the store is missing, leads nowhere, or is there before the store.

use crate::observe::{alone, assert_degraded, config, wait_for_the_store};
use lockkeeper_tests::{BlackHole, Envoy, EnvoyConfig, Redis};
use std::time::{Duration, Instant};

fn assert_starts_degraded(name: &str, config: &EnvoyConfig) -> Envoy {
    let envoy = Envoy::start(config).expect("Envoy starts without a store");
    assert_degraded(&envoy, name);
    envoy
}

#[test]
fn the_cluster_of_the_pipe_is_missing() {
    let _alone = alone();
    assert_starts_degraded("no cluster", &config().without_cluster("lockkeeper_store"));
}

#[test]
fn the_bridge_is_missing() {
    let _alone = alone();
    assert_starts_degraded("no bridge", &config().without_listener("lockkeeper_tunnel"));
}

#[test]
fn the_redis_listener_is_missing() {
    let _alone = alone();
    assert_starts_degraded("no redis listener", &config().without_listener("lockkeeper_redis"));
}

#[test]
fn envoy_starts_before_redis() {
    let _alone = alone();
    let mut redis = Redis::start().expect("Redis starts");
    redis.kill();
    let envoy = assert_starts_degraded("before Redis", &config().redis(redis.address()));
    redis.restart().expect("Redis starts again");
    let back = Instant::now();
    wait_for_the_store(&envoy);
    println!("before Redis: global {:?} after its start", back.elapsed());
    assert!(back.elapsed() < Duration::from_secs(2), "global only {:?} after the start of Redis", back.elapsed());
}

#[test]
fn the_store_does_not_take_connections() {
    let _alone = alone();
    let hole = BlackHole::open();
    assert_starts_degraded("black hole, RedisProxy", &config().redis(hole.address()));
    assert_starts_degraded("black hole, Straight", &config().straight_to(hole.address()));
}
