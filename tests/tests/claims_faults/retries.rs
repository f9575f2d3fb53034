//! The proxy's own retries and hedging: never behind the back of a claim, and as ever without one.

use crate::world::{World, pay, payment};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::origin::{self, Act};
use lockkeeper_tests::{Envoy, EnvoyConfig};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn envoy_that_retries(world: &World, policy: &Value) -> Envoy {
    world.envoy_with(json!({}), |mut config: EnvoyConfig| {
        let manager = config.connection_manager();
        let route = manager.pointer_mut("/route_config/virtual_hosts/0/routes/0/route").expect("a route");
        route["retry_policy"] = policy.clone();
        route["hedge_policy"] = json!({ "hedge_on_per_try_timeout": true });
        config
    })
}

fn retries() -> Value {
    json!({ "retry_on": "5xx,reset,connect-failure,retriable-4xx,refused-stream", "num_retries": 3,
            "retry_back_off": { "base_interval": "0.01s" } })
}

fn unclaimed() -> Request {
    Request::new("POST", "/payments").header("authorization", "Bearer a").body("{}")
}

#[test]
fn a_claimed_request_is_not_run_again_by_the_proxy() {
    for act in [Act::Close, Act::Send(origin::response(503, "{}")), Act::Send(origin::response(409, "{}"))] {
        let world = World::start_with(origin::acts(std::slice::from_ref(&act)));
        let envoy = envoy_that_retries(&world, &retries());
        let status = pay(&envoy, "k").status;
        assert!([409, 503].contains(&status), "{status}");
        assert_eq!(world.origin.count(), 1, "{act:?}");
        envoy.client().send(&unclaimed()).expect("an answer");
        assert_eq!(world.origin.count(), 5, "{act:?}");
    }
}

#[test]
fn what_the_client_asks_of_the_proxy_changes_nothing_for_a_claimed_request() {
    let world = World::start_with(origin::acts(&[Act::Send(origin::response(503, "{}"))]));
    let envoy = world.envoy(json!({}));
    let asks = [
        ("x-envoy-retry-on", "5xx,reset"),
        ("x-envoy-max-retries", "5"),
        ("x-envoy-retry-grpc-on", "unavailable"),
        ("x-envoy-hedge-on-per-try-timeout", "true"),
        ("x-envoy-upstream-rq-per-try-timeout-ms", "100"),
    ];
    let request = asks.iter().fold(payment("k"), |request, (name, value)| request.header(name, value));
    assert_eq!(envoy.client().send(&request).expect("an answer").status, 503);
    assert_eq!(world.origin.count(), 1);
}

#[test]
fn a_claimed_request_is_not_hedged() {
    let world = World::start_with(Arc::new(|arrived| {
        let number = arrived.number;
        vec![Act::Wait(Duration::from_millis(600)), Act::Send(origin::response(200, &number.to_string()))]
    }));
    let policy = json!({ "retry_on": "5xx", "num_retries": 3, "per_try_timeout": "0.2s" });
    let envoy = envoy_that_retries(&world, &policy);
    envoy.client().send(&unclaimed()).expect("an answer");
    let hedged = world.origin.count();
    assert!(hedged > 1, "an unclaimed request is hedged");
    pay(&envoy, "k");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(world.origin.count(), hedged + 1);
}
