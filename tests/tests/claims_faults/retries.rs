//! The proxy's own retries and hedging: never behind the back of a claim, and as ever without one.

use crate::world::{World, pay, payment};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::origin::{self, Piece};
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
    for act in [Piece::Close, Piece::Bytes(origin::response(503, "{}")), Piece::Bytes(origin::response(409, "{}"))] {
        let world = World::start_with(origin::always(std::slice::from_ref(&act)));
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
    let world = World::start_with(origin::always(&[Piece::Bytes(origin::response(503, "{}"))]));
    // Envoy listens to such wishes of callers that it takes for internal.
    let envoy = world.envoy_with(json!({}), |mut config| {
        let loopback = json!({ "cidr_ranges": [{ "address_prefix": "127.0.0.0", "prefix_len": 8 }] });
        config.connection_manager()["internal_address_config"] = loopback;
        config
    });
    let asks = [
        ("x-envoy-retry-on", "5xx,reset"),
        ("x-envoy-max-retries", "5"),
        ("x-envoy-hedge-on-per-try-timeout", "true"),
        ("x-envoy-upstream-rq-per-try-timeout-ms", "500"),
    ];
    let asking = |request: Request| asks.iter().fold(request, |request, (name, value)| request.header(name, value));
    let send = |request: &Request| envoy.client().send(request).expect("an answer").status;
    assert_eq!((send(&asking(payment("k"))), world.origin.count()), (503, 1));
    assert_eq!((send(&asking(unclaimed())), world.origin.count()), (503, 1 + 6));
}

#[test]
fn a_claimed_request_is_not_hedged() {
    let world = World::start_with(Arc::new(|seen| {
        let number = seen.number;
        vec![Piece::Pause(Duration::from_millis(600)), Piece::Bytes(origin::response(200, &number.to_string()))]
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
