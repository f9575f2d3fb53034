//! How often a request counts: once for each pass through the filter, at its headers, whatever follows.

use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, Upstream, upstream};
use serde_json::{Value, json};

use crate::{config, get};

fn policy(limit: u64) -> Value {
    let limit =
        json!({ "name": "all", "algorithm": "fixed_window", "limit": limit, "window": "1d", "key": ["constant:all"] });
    json!({ "version": 1, "policies": { "api": { "limits": [limit] } }, "default_policy": "api" })
}

fn start(limit: u64, change: impl FnOnce(&mut EnvoyConfig)) -> (Redis, Upstream, Envoy) {
    let (redis, upstream) = (Redis::start().expect("Redis starts"), Upstream::start().expect("the upstream starts"));
    let mut config = config(&redis, &policy(limit)).upstream(upstream.address());
    change(&mut config);
    let envoy = Envoy::start(&config).expect("Envoy starts");
    (redis, upstream, envoy)
}

#[test]
fn pro_04_an_upgrade_counts_once_at_its_handshake() {
    let (_redis, upstream, envoy) = start(2, |config| {
        config.connection_manager()["upgrade_configs"] = json!([{ "upgrade_type": "websocket" }]);
    });
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA==\r\n";
    for _ in 0..2 {
        get(&envoy, "/ws", upgrade);
    }
    let denied = get(&envoy, "/ws", upgrade);
    assert_eq!(denied.status, 429, "never 101 first: {denied:?}");
    assert!(denied.head.contains("\r\nretry-after: "), "{denied:?}");
    assert_eq!(upstream.count(), 2, "upgrades that reached the upstream");
}

#[test]
fn hst_05_retries_to_the_upstream_take_nothing_more() {
    let (_redis, upstream, envoy) = start(2, |config| {
        let route = &mut config.connection_manager()["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
        route["retry_policy"] = json!({ "retry_on": "5xx", "num_retries": 2 });
    });
    let fail = format!("{}: 503\r\n", upstream::STATUS);
    assert_eq!(get(&envoy, "/", &fail).status, 503);
    assert_eq!(upstream.count(), 3, "one try and two retries");
    assert_eq!(get(&envoy, "/", "").status, 200, "the first request took one of two");
    assert_eq!(get(&envoy, "/", "").status, 429);
}

#[test]
fn hst_05_a_filter_that_is_installed_twice_counts_twice() {
    let (_redis, _upstream, envoy) = start(4, |config| {
        let filters = config.connection_manager()["http_filters"].as_array_mut().expect("a list of filters");
        let mut second = filters[0].clone();
        second["name"] = json!("lockkeeper_again");
        filters.insert(1, second);
    });
    assert_eq!([(); 3].map(|()| get(&envoy, "/", "").status), [200, 200, 429]);
}
