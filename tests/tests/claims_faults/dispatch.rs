//! What the end of a request means for its claim: given back when the upstream certainly never saw it, unknown when it may have
//! (`End`: reference §4.5 E3–E7; case IDM-03). Each test is a row of what Envoy reports in each of these cases.

use crate::world::{World, await_counted, pay, payment, payment_bytes, told};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::origin::{self, Act};
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{Envoy, EnvoyConfig};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

const ROUTE: &str = "/route_config/virtual_hosts/0/routes/0/route";

fn route(config: &mut EnvoyConfig) -> &mut Value {
    config.connection_manager().pointer_mut(ROUTE).expect("the shipped file has a route")
}

/// The first answer has that status, the claim is given back, and its attempt counts as none.
fn assert_released(world: &World, envoy: &Envoy, status: u16) {
    let answer = pay(envoy, "k");
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("idempotency-outcome"), None, "{answer:?}");
    world.await_state(None);
    let mut connection = world.redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:f").query(&mut connection).expect("Redis answers");
    let fence: String = redis::cmd("GET").arg(&keys).query(&mut connection).expect("a fence is kept");
    assert!(fence.ends_with(":0"), "{fence}");
}

/// The first answer has that status and says that the outcome is unknown; so does the retry, later, and nothing runs.
fn assert_unknown(world: &World, envoy: &Envoy, status: u16) {
    let runs = world.origin.count();
    let answer = pay(envoy, "k");
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("idempotency-outcome"), Some("unknown"), "{answer:?}");
    is_unknown_later(world, envoy);
    assert!(world.origin.count() <= runs + 1, "{:?}", world.origin.arrived());
}

fn is_unknown_later(world: &World, envoy: &Envoy) {
    crate::world::let_the_lease_lapse();
    assert_eq!(told(&pay(envoy, "k")), "409 idempotency-outcome-unknown", "{:?}", world.record());
}

/// A port where nobody listens.
fn nobody() -> SocketAddr {
    lockkeeper_tests::ports::free()
}

/// An address whose handshakes are never completed: the queue of a listener that accepts nobody is full.
struct BlackHole {
    address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl BlackHole {
    fn open() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        // SAFETY: a plain system call on a descriptor that is open: it shortens the queue of a listening socket.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
        let queued = std::iter::from_fn(connect).take(16).collect();
        Self { address, _listener: listener, _queued: queued }
    }
}

#[test]
fn never_dispatched_connect_refused() {
    let world = World::start();
    let envoy = world.envoy_with(json!({}), |config| config.upstream(nobody()));
    assert_released(&world, &envoy, 503);
}

#[test]
fn never_dispatched_connect_timeout() {
    let (world, hole) = (World::start(), BlackHole::open());
    let envoy = world.envoy_with(json!({}), |config| {
        let mut config = config.upstream(hole.address);
        config.cluster("upstream")["connect_timeout"] = json!("0.2s");
        config
    });
    assert_released(&world, &envoy, 503);
}

#[test]
fn never_dispatched_route_timeout_while_connecting() {
    let (world, hole) = (World::start(), BlackHole::open());
    let envoy = world.envoy_with(json!({}), |config| {
        let mut config = config.upstream(hole.address);
        config.cluster("upstream")["connect_timeout"] = json!("5s");
        route(&mut config)["timeout"] = json!("0.2s");
        config
    });
    assert_released(&world, &envoy, 504);
}

#[test]
fn never_dispatched_no_healthy_host() {
    let world = World::start();
    let envoy = world.envoy_with(json!({}), |mut config| {
        config.cluster("upstream")["load_assignment"]["endpoints"] = json!([]);
        config.cluster("upstream")["type"] = json!("STATIC");
        config
    });
    assert_released(&world, &envoy, 503);
}

#[test]
fn never_dispatched_circuit_breaker() {
    let world = World::start();
    let envoy = world.envoy_with(json!({}), |mut config| {
        let threshold = json!({ "max_pending_requests": 0, "max_connections": 0, "max_requests": 0 });
        config.cluster("upstream")["circuit_breakers"] = json!({ "thresholds": [threshold] });
        config
    });
    assert_released(&world, &envoy, 503);
}

#[test]
fn never_dispatched_no_route_and_no_cluster() {
    for (route, status) in [
        (json!({ "match": { "prefix": "/elsewhere" }, "route": { "cluster": "upstream" } }), 404),
        (json!({ "match": { "prefix": "/" }, "route": { "cluster_header": "x-no-cluster" } }), 503),
    ] {
        let world = World::start();
        let envoy = world.envoy_with(json!({}), |mut config| {
            *config.connection_manager().pointer_mut("/route_config/virtual_hosts/0/routes").expect("routes") =
                json!([route]);
            config
        });
        let request = payment("k").header("x-no-cluster", "missing");
        let answer = envoy.client().send(&request).expect("an answer");
        assert_eq!(answer.status, status, "{answer:?}");
        world.await_state(None);
    }
}

#[test]
fn idm_06_c_never_dispatched_a_later_filter_answers() {
    let world = World::start();
    let envoy = world.envoy_with(json!({}), |mut config| {
        let fault = json!({ "name": "envoy.filters.http.fault", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
            "abort": { "http_status": 401, "percentage": { "numerator": 100, "denominator": "HUNDRED" } } } });
        let filters = config.connection_manager()["http_filters"].as_array_mut().expect("a list of filters");
        filters.insert(1, fault);
        config
    });
    assert_released(&world, &envoy, 401);
}

#[test]
fn never_dispatched_direct_response() {
    let world = World::start();
    let envoy = world.envoy_with(json!({}), EnvoyConfig::direct_response);
    assert_released(&world, &envoy, 200);
}

#[test]
fn unknown_route_timeout_after_sending() {
    let world = World::start_with(origin::numbered_after(Duration::from_secs(1)));
    let envoy = world.envoy_with(json!({}), |mut config| {
        route(&mut config)["timeout"] = json!("0.2s");
        config
    });
    assert_unknown(&world, &envoy, 504);
}

#[test]
fn unknown_per_try_timeout() {
    let world = World::start_with(origin::numbered_after(Duration::from_secs(1)));
    let envoy = world.envoy_with(json!({}), |mut config| {
        route(&mut config)["retry_policy"] = json!({ "retry_on": "5xx,reset", "per_try_timeout": "0.2s" });
        config
    });
    assert_unknown(&world, &envoy, 504);
}

#[test]
fn unknown_upstream_closes_after_the_request() {
    let world = World::start_with(origin::acts(&[Act::Close]));
    let envoy = world.envoy(json!({}));
    assert_unknown(&world, &envoy, 503);
}

#[test]
fn unknown_garbage_and_a_cut_head() {
    for answer in ["not HTTP at all\r\n\r\n", "HTTP/1.1 200 x\r\ncontent-le"] {
        let world = World::start_with(origin::acts(&[Act::Send(answer.into()), Act::Close]));
        let envoy = world.envoy(json!({}));
        let answer = pay(&envoy, "k");
        assert!([502, 503].contains(&answer.status), "{answer:?}");
        assert_eq!(answer.header("idempotency-outcome"), Some("unknown"), "{answer:?}");
        is_unknown_later(&world, &envoy);
    }
}

#[test]
fn unknown_stream_idle_and_max_duration() {
    for (place, field) in [("", "stream_idle_timeout"), ("common_http_protocol_options", "max_stream_duration")] {
        let world = World::start_with(origin::numbered_after(Duration::from_secs(2)));
        let envoy = world.envoy_with(json!({}), |mut config| {
            let manager = config.connection_manager();
            let options = if place.is_empty() { manager } else { &mut manager[place] };
            options[field] = json!("0.3s");
            config
        });
        assert_unknown(&world, &envoy, 504);
    }
}

#[test]
fn unknown_upstream_dies_mid_body() {
    // Held back, so that the client gets nothing of it; and passed on, as chunks.
    let declared = origin::response(200, "{\"run\":0}\n");
    let chunked = b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec();
    for cut in [declared[..declared.len() - 3].to_vec(), chunked] {
        let world =
            World::start_with(origin::acts(&[Act::Send(cut), Act::Wait(Duration::from_millis(100)), Act::Close]));
        let envoy = world.envoy(json!({}));
        let answer = envoy.client().send(&payment("k"));
        assert!(!answer.as_ref().is_ok_and(|answer| answer.status == 200), "{answer:?}");
        is_unknown_later(&world, &envoy);
        assert_eq!(world.origin.count(), 1);
    }
}

#[test]
fn unknown_500_and_released_when_the_policy_lets_it_run_again() {
    let world = World::start_with(origin::acts(&[Act::Send(origin::response(500, "{}"))]));
    let strict = world.envoy(json!({}));
    assert_eq!(pay(&strict, "k").status, 500);
    is_unknown_later(&world, &strict);
    let lax = world.envoy(json!({ "on_unknown": "retry_after_lease" }));
    let request = payment("other").header("x-another", "1");
    for _ in 0..2 {
        assert_eq!(lax.client().send(&request).expect("an answer").status, 500);
        await_counted(&lax, "event.release.outcome.ok", 1);
    }
    assert_eq!(world.origin.count(), 3);
}

#[test]
fn released_by_answers_that_promise_nothing_was_done() {
    for status in [401, 403, 409, 421, 423, 425, 429] {
        let world = World::start_with(origin::acts(&[Act::Send(origin::response(status, "{}"))]));
        let envoy = world.envoy(json!({}));
        assert_eq!(pay(&envoy, "k").status, status);
        world.await_state(None);
        assert_eq!(pay(&envoy, "k").status, status);
        assert_eq!(world.origin.count(), 2, "{status}");
        let attempts: Vec<_> =
            world.origin.arrived().iter().map(|run| run.header("idempotency-attempt").map(str::to_owned)).collect();
        assert_eq!(attempts, [Some("1".to_owned()), Some("2".to_owned())], "{status}");
    }
}

/// Sends a payment and goes away when the world says so.
fn client_goes_away(envoy: &Envoy, when: impl FnOnce()) {
    let mut client = RawConnection::open(envoy.address()).expect("Envoy accepts");
    client.send(&payment_bytes("k")).expect("Envoy reads");
    when();
    drop(client);
}

#[test]
fn idm_06_b_unknown_client_gone_after_dispatch() {
    let world = World::start_with(origin::numbered_after(Duration::from_millis(300)));
    let envoy = world.envoy(json!({}));
    client_goes_away(&envoy, || world.await_runs(1));
    assert_eq!(told(&pay(&envoy, "k")), "409 idempotency-in-progress");
    is_unknown_later(&world, &envoy);
    assert_eq!(world.origin.count(), 1);
}

#[test]
fn unknown_client_gone_mid_response() {
    let chunk = Act::Send(b"5\r\nhello\r\n".to_vec());
    let head = Act::Send(b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec());
    let end = Act::Send(b"0\r\n\r\n".to_vec());
    let world = World::start_with(origin::acts(&[head, chunk, Act::Wait(Duration::from_millis(500)), end]));
    let envoy = world.envoy(json!({}));
    let mut client = RawConnection::open(envoy.address()).expect("Envoy accepts");
    client.send(&payment_bytes("k")).expect("Envoy reads");
    assert_eq!(client.receive_head().expect("a head").status, 200);
    drop(client);
    is_unknown_later(&world, &envoy);
    assert_eq!(world.origin.count(), 1);
}

#[test]
fn never_dispatched_client_gone_while_connecting() {
    let (world, hole) = (World::start(), BlackHole::open());
    let envoy = world.envoy_with(json!({}), |config| {
        let mut config = config.upstream(hole.address);
        config.cluster("upstream")["connect_timeout"] = json!("5s");
        config
    });
    client_goes_away(&envoy, || world.await_state(Some("R")));
    world.await_state(None);
}

#[test]
fn unknown_client_gone_at_the_first_byte_of_a_get_like_request_is_not_a_claim() {
    // A request that the policy does not claim leaves nothing behind, whatever happens to it.
    let world = World::start();
    let envoy = world.envoy(json!({}));
    let request = Request::new("GET", "/payments").header("authorization", "Bearer a").header("idempotency-key", "k");
    assert_eq!(envoy.client().send(&request).expect("an answer").status, 200);
    assert_eq!(world.state(), None);
}
