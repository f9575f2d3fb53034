//! The host under a claim: its VM crashes, or it runs the filter twice for one request (cases HST-03, HST-05).

use crate::world::{DEADLINE, LEASE, World, config, pay, payment, told};
use lockkeeper_tests::envoy::Reload;
use lockkeeper_tests::http::Request;
use lockkeeper_tests::origin::{self, Piece};
use lockkeeper_tests::{Envoy, EnvoyConfig, paths, poll};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Shorter than the shipped 15 s, to be waited for.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

#[test]
fn hst_03_a_crash_with_a_claim_held_is_bounded_and_its_record_lapses() {
    let world = World::start_with(origin::numbered_after(Duration::from_millis(600)));
    let policy = crate::world::policy(json!({}));
    let mut config = EnvoyConfig::shipped_with(&paths::wasm_trap()).reads_bodies().deadline(DEADLINE).policy(policy);
    config.connection_manager()["stream_idle_timeout"] = json!(format!("{}s", IDLE_TIMEOUT.as_secs()));
    let config = config.redis(world.redis.address()).upstream(world.origin.address());
    let envoy = Envoy::start(&config).expect("Envoy starts");
    let client = envoy.client();
    let claimed = std::thread::scope(|scope| {
        let claimed = scope.spawn(|| client.send(&payment("k")));
        world.await_runs(1);
        let trap = Request::get("/").header("x-lockkeeper-trap", "1");
        assert_eq!(envoy.client().send(&trap).expect("a crash is answered").status, 503);
        claimed.join().expect("a client does not panic")
    });
    let longest = claimed.as_ref().map_or(Duration::ZERO, |answer| answer.elapsed);
    assert!(longest < IDLE_TIMEOUT * 2, "{claimed:?}");
    assert!(!claimed.as_ref().is_ok_and(|answer| answer.status == 200), "{claimed:?}");
    assert_eq!(world.state().as_deref(), Some("R"), "left to lapse");
    std::thread::sleep(LEASE);
    let answer = || Some(pay(&envoy, "k")).filter(|answer| answer.status != 503);
    let answer = poll::until("claims are taken again", Duration::from_secs(5), answer).expect("claims are taken again");
    assert_eq!(told(&answer), "409 idempotency-outcome-unknown");
    assert_eq!(world.origin.count(), 1);
}

#[test]
fn hst_05_a_filter_that_is_installed_twice_refuses_instead_of_running_twice() {
    let world = World::start();
    let envoy = world.envoy_with(json!({}), |mut config| {
        let filters = config.connection_manager()["http_filters"].as_array_mut().expect("a list of filters");
        let second = filters[0].clone();
        filters.insert(1, second);
        config
    });
    // The second one finds the key claimed by the first: an installation that cannot be overlooked.
    assert_eq!(told(&pay(&envoy, "k")), "409 idempotency-in-progress");
    assert_eq!(world.origin.count(), 0);
    world.await_state(None);
}

#[test]
fn hst_05_an_internal_redirect_does_not_run_a_claimed_request_twice() {
    let world = World::start_with(Arc::new(|seen| {
        let location = b"HTTP/1.1 302 x\r\nlocation: http://127.0.0.1/elsewhere\r\ncontent-length: 0\r\n\r\n".to_vec();
        let is_first = seen.path() == "/payments";
        vec![Piece::Bytes(if is_first { location } else { origin::response(200, "{}") })]
    }));
    let redirecting = |mut config: EnvoyConfig| {
        let route = config.connection_manager().pointer_mut("/route_config/virtual_hosts/0/routes/0/route");
        route.expect("a route")["internal_redirect_policy"] = json!({ "allow_cross_scheme_redirect": true });
        config
    };
    let config = redirecting(config(json!({}))).redis(world.redis.address()).upstream(world.origin.address());
    let envoy = Envoy::start(&config).expect("Envoy starts");
    let request = payment("k").body("");
    let unclaimed = Request::new("POST", "/payments").header("authorization", "Bearer a");
    let unclaimed = envoy.client().send(&unclaimed).expect("an answer");
    assert_eq!((unclaimed.status, world.origin.count()), (200, 2), "Envoy follows the redirect");
    let first = envoy.client().send(&request).expect("an answer");
    assert_eq!((told(&first).as_str(), world.origin.count()), ("200", 4), "where it leads to is a key of its own");
    // What the first pass came to nobody has seen.
    assert_eq!(told(&envoy.client().send(&request).expect("an answer")), "409 idempotency-in-progress");
    std::thread::sleep(LEASE + Duration::from_millis(200));
    assert_eq!(told(&envoy.client().send(&request).expect("an answer")), "409 idempotency-outcome-unknown");
    assert_eq!(world.origin.count(), 4, "nothing runs again");
}

#[test]
fn idm_06_a_new_configuration_leaves_running_claims_to_the_old_one() {
    let world = World::start_with(origin::numbered_after(LEASE * 2));
    let with = |retention: &str| {
        let config = config(json!({ "retention": retention })).reloadable();
        config.redis(world.redis.address()).upstream(world.origin.address())
    };
    let envoy = Envoy::start(&with("24h")).expect("Envoy starts");
    let client = envoy.client();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.send(&payment("k")).expect("an answer"));
        world.await_runs(1);
        assert_eq!(envoy.reload(&with("48h")).expect("Envoy answers"), Reload::Accepted);
        // Longer than a lease: the old configuration renews it.
        std::thread::sleep(LEASE * 6 / 5);
        assert_eq!(told(&pay(&envoy, "k")), "409 idempotency-in-progress");
        assert_eq!(told(&first.join().expect("a client does not panic")), "200");
    });
    assert_eq!(told(&pay(&envoy, "k")), "replayed 200");
    assert_eq!(world.origin.count(), 1);
}
