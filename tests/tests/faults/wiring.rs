//! A gateway whose way to the store is missing, leads nowhere, or is there before the store.

use crate::observe::{Way, alone, assert_degraded, config, wait_for_the_store};
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
    assert_starts_degraded("no bridge", &config().without_bridge());
}

/// Opening the pipe then fails within the call that opens it.
#[test]
fn the_name_of_the_store_does_not_resolve() {
    let _alone = alone();
    assert_starts_degraded("no address", &config().without_store_addresses());
}

/// Envoy calls the bridge while the filter sends, and neither would survive that in one VM.
#[test]
fn the_bridge_is_given_the_vm_of_the_filter() {
    let _alone = alone();
    let envoy = assert_starts_degraded("one VM", &config().bridge_in("lockkeeper"));
    let log = envoy.process().log();
    assert!(log.contains("give resp_bridge another vm_id"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn the_redis_listener_is_missing() {
    let _alone = alone();
    assert_starts_degraded("no redis listener", &Way::RedisProxy.config().without_listener("lockkeeper_redis"));
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
    for way in Way::ALL {
        assert_starts_degraded(&format!("black hole, {way:?}"), &way.config().redis(hole.address()));
    }
}
