//! What the end of a request means for its claim (reference §4.5; case IDM-03): given back when the upstream certainly never saw it,
//! unknown when it may have. The rows are what Envoy reports in each of these cases, each a route of one Envoy.

use crate::world::{LEASE, World, payment, payment_bytes, told};
use lockkeeper_tests::origin::{self, Piece, Seen};
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{BlackHole, Envoy, poll, ports};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// An Envoy with these routes by path, before the shipped one; what they lead to is added to the clusters.
fn envoy(world: &World, routes: &[(&str, Value)], clusters: &[Value]) -> Envoy {
    world.envoy_with(json!({}), |mut config| {
        let list = config.connection_manager().pointer_mut("/route_config/virtual_hosts/0/routes").expect("routes");
        let list = list.as_array_mut().expect("a list of routes");
        for (path, rest) in routes.iter().rev() {
            let mut route = rest.clone();
            route["match"] = json!({ "path": path });
            list.insert(0, route);
        }
        let fault = json!({ "name": "fault", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault" } });
        config.connection_manager()["http_filters"].as_array_mut().expect("a list of filters").insert(1, fault);
        clusters.iter().for_each(|cluster| config.add_cluster(cluster.clone()));
        config
    })
}

fn cluster(name: &str, address: Option<SocketAddr>, more: Value) -> Value {
    let endpoint = address.map(|address| {
        let socket = json!({ "address": address.ip().to_string(), "port_value": address.port() });
        json!({ "lb_endpoints": [{ "endpoint": { "address": { "socket_address": socket } } }] })
    });
    let endpoints: Vec<Value> = endpoint.into_iter().collect();
    let mut cluster = json!({
        "name": name, "type": "STATIC", "connect_timeout": "5s",
        "load_assignment": { "cluster_name": name, "endpoints": endpoints }
    });
    cluster.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    cluster
}

fn to(cluster: &str) -> Value {
    json!({ "route": { "cluster": cluster } })
}

/// All records.
fn records(world: &World) -> Vec<HashMap<String, String>> {
    let mut connection = world.redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:r").query(&mut connection).expect("Redis answers");
    let read = |key| redis::cmd("HGETALL").arg(key).query(&mut connection).expect("a record is a hash");
    keys.iter().map(read).collect()
}

/// What is remembered of the attempts so far: fences and attempts.
fn fences(world: &World) -> Vec<String> {
    let mut connection = world.redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:f").query(&mut connection).expect("Redis answers");
    keys.iter().map(|key| redis::cmd("GET").arg(key).query(&mut connection).expect("a fence is kept")).collect()
}

#[test]
fn idm_03_what_never_reached_the_upstream_gives_its_claim_back() {
    let (world, hole) = (World::start(), BlackHole::open());
    let breaker = json!({ "max_pending_requests": 0, "max_connections": 0, "max_requests": 0 });
    let clusters = [
        cluster("refused", Some(ports::free()), json!({})),
        cluster("hole", Some(hole.address()), json!({})),
        cluster("hurried", Some(hole.address()), json!({ "connect_timeout": "0.2s" })),
        cluster("empty", None, json!({})),
        cluster("full", Some(world.origin.address()), json!({ "circuit_breakers": { "thresholds": [breaker] } })),
    ];
    let retry = json!({ "retry_on": "connect-failure,reset", "num_retries": 2 });
    let aborted = json!({ "fault": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
        "abort": { "http_status": 401, "percentage": { "numerator": 100, "denominator": "HUNDRED" } } } });
    let rows = [
        ("connect refused", 503, to("refused")),
        ("connect timeout", 503, to("hurried")),
        ("route timeout while connecting", 504, json!({ "route": { "cluster": "hole", "timeout": "0.2s" } })),
        ("no healthy host", 503, to("empty")),
        ("circuit breaker", 503, to("full")),
        ("no cluster", 503, json!({ "route": { "cluster_header": "x-no-such-cluster" } })),
        ("retries that find nobody", 503, json!({ "route": { "cluster": "refused", "retry_policy": retry } })),
        ("direct response", 201, json!({ "direct_response": { "status": 201 } })),
        ("redirect", 301, json!({ "redirect": { "path_redirect": "/" } })),
        (
            "a later filter answers",
            401,
            json!({ "route": { "cluster": "upstream" }, "typed_per_filter_config": aborted }),
        ),
    ];
    let paths: Vec<String> = (0..rows.len()).map(|row| format!("/{row}")).collect();
    let routes: Vec<(&str, Value)> =
        rows.iter().zip(&paths).map(|((.., route), path)| (path.as_str(), route.clone())).collect();
    let envoy = envoy(&world, &routes, &clusters);
    for ((name, status, _), path) in rows.iter().zip(&paths) {
        for attempt in 1..=2 {
            let answer = envoy.client().send(&payment("k").path(path)).expect("an answer");
            assert_eq!(answer.status, *status, "{name}, {attempt}: {answer:?}");
            assert_eq!(answer.header("idempotency-outcome"), None, "{name}, {attempt}: {answer:?}");
            let is_released = || records(&world).is_empty().then_some(());
            poll::until(name, Duration::from_secs(3), is_released).expect("it is released");
        }
    }
    let fences = fences(&world);
    assert_eq!(fences.len(), rows.len(), "each was claimed");
    assert!(fences.iter().all(|fence| fence.ends_with(":0")), "these attempts count as none: {fences:?}");
    assert_eq!(world.origin.count(), 0);
}

/// The upstream of the rows that are unknown, by path.
fn misbehave(seen: &Seen) -> Vec<Piece> {
    let late = |more: Piece| vec![Piece::Pause(Duration::from_millis(600)), more];
    let whole = origin::response(200, "{}");
    let pause = Piece::Pause(Duration::from_millis(50));
    let chunks = b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec();
    match seen.path() {
        "/closes" => vec![Piece::Close],
        "/garbage" => vec![Piece::Bytes(b"this is no HTTP at all\r\n\r\n".to_vec()), Piece::Close],
        "/cut-head" => vec![Piece::Bytes(whole[..20].to_vec()), pause, Piece::Close],
        "/cut-body" => vec![Piece::Bytes(whole[..whole.len() - 1].to_vec()), pause, Piece::Close],
        "/cut-chunks" => vec![Piece::Bytes(chunks), pause, Piece::Close],
        "/500" => vec![Piece::Bytes(origin::response(500, "{}"))],
        "/503" => vec![Piece::Bytes(origin::response(503, "{}"))],
        "/slow-body" => vec![Piece::Bytes(chunks), Piece::Pause(Duration::from_millis(600)), Piece::Close],
        _ => late(Piece::Bytes(whole)),
    }
}

#[test]
fn idm_03_what_may_have_reached_the_upstream_is_unknown_and_does_not_run_again() {
    let world = World::start_with(Arc::new(misbehave));
    let timed = |more: Value| {
        let mut route = to("upstream");
        route["route"].as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        route
    };
    let per_try = json!({ "retry_policy": { "retry_on": "5xx,reset", "per_try_timeout": "0.2s", "num_retries": 2 } });
    let longest = json!({ "max_stream_duration": { "max_stream_duration": "0.2s" } });
    // Status 0: the answer is cut. Of a response that was held when it was cut, the gateway's own answer passes no filter.
    let rows = [
        ("/route-timeout", 504, timed(json!({ "timeout": "0.2s" }))),
        ("/per-try-timeout", 504, timed(per_try)),
        ("/idle", 504, timed(json!({ "idle_timeout": "0.2s" }))),
        ("/longest", 504, timed(longest)),
        ("/closes", 503, to("upstream")),
        ("/garbage", 502, to("upstream")),
        ("/cut-head", 502, to("upstream")),
        ("/cut-body", 502, to("upstream")),
        ("/cut-chunks", 0, to("upstream")),
        ("/slow-body", 0, timed(json!({ "timeout": "0.2s" }))),
        ("/500", 500, to("upstream")),
        ("/503", 503, to("upstream")),
    ];
    let routes: Vec<(&str, Value)> = rows.iter().map(|(path, _, route)| (*path, route.clone())).collect();
    let envoy = envoy(&world, &routes, &[]);
    for (path, status, _) in &rows {
        let answer = envoy.client().send(&payment("k").path(path));
        let got = answer.as_ref().map_or(0, |answer| answer.status);
        assert_eq!(got, *status, "{path}: {answer:?}");
        // What the upstream answered itself goes on as it is.
        let is_told = answer.is_ok_and(|answer| answer.header("idempotency-outcome") == Some("unknown"));
        let untold = ["/cut-body", "/cut-chunks", "/slow-body", "/500", "/503"];
        assert_ne!(is_told, untold.contains(path), "{path}");
    }
    std::thread::sleep(LEASE + Duration::from_millis(200));
    for (path, ..) in &rows {
        let answer = envoy.client().send(&payment("k").path(path)).expect("an answer");
        assert_eq!(told(&answer), "409 idempotency-outcome-unknown", "{path}: {answer:?}");
    }
    let mut paths: Vec<_> = world.origin.seen().iter().map(|run| run.head.lines().next().map(str::to_owned)).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!((world.origin.count(), paths.len()), (rows.len(), rows.len()), "one run of each: {paths:?}");
}

#[test]
fn idm_03_answers_that_promise_that_nothing_was_done_give_the_claim_back() {
    let world = World::start_with(Arc::new(|seen| {
        let status = seen.header("x-status").and_then(|status| status.parse().ok()).unwrap_or(200);
        vec![Piece::Bytes(origin::response(status, "{}"))]
    }));
    let lax = world.envoy(json!({ "on_unknown": "retry_after_lease" }));
    let statuses = ["401", "403", "409", "421", "423", "425", "429", "500", "503"];
    for status in statuses {
        for attempt in 1..=2 {
            let request = payment(status).header("x-status", status);
            let answer = lax.client().send(&request).expect("an answer");
            assert_eq!(answer.status.to_string(), status, "{answer:?}");
            assert_eq!(answer.header("idempotent-replayed"), None);
            world.await_state(None);
            let run = world.origin.seen().pop().expect("it ran");
            assert_eq!(run.header("idempotency-attempt"), Some(format!("{attempt}").as_str()), "{status}");
        }
    }
    assert_eq!(world.origin.count(), statuses.len() * 2);
}

/// Sends a payment and goes away when the world says so.
fn client_goes_away(envoy: &Envoy, path: &str, when: impl FnOnce()) {
    let mut client = RawConnection::open(envoy.address()).expect("Envoy accepts");
    let bytes = String::from_utf8(payment_bytes("k")).expect("a request is text").replacen("/payments", path, 1);
    client.send(bytes.as_bytes()).expect("Envoy reads");
    when();
}

#[test]
fn idm_06_b_a_client_that_goes_away_leaves_the_outcome_unknown_once_the_upstream_was_asked() {
    let (world, hole) = (World::start_with(Arc::new(misbehave)), BlackHole::open());
    let connecting = ("/connecting", to("hole"));
    let envoy = envoy(&world, &[connecting], &[cluster("hole", Some(hole.address()), json!({}))]);
    client_goes_away(&envoy, "/connecting", || world.await_state(Some("R")));
    world.await_state(None);
    client_goes_away(&envoy, "/working", || world.await_runs(1));
    let answer = envoy.client().send(&payment("k").path("/working")).expect("an answer");
    assert_eq!(told(&answer), "409 idempotency-in-progress");
    let mut client = RawConnection::open(envoy.address()).expect("Envoy accepts");
    client
        .send(&String::from_utf8_lossy(&payment_bytes("k")).replace("/payments", "/slow-body").into_bytes())
        .expect("Envoy reads");
    assert_eq!(client.receive_head().expect("the head passes").status, 200);
    drop(client);
    std::thread::sleep(LEASE + Duration::from_millis(200));
    for path in ["/working", "/slow-body"] {
        let answer = envoy.client().send(&payment("k").path(path)).expect("an answer");
        assert_eq!(told(&answer), "409 idempotency-outcome-unknown", "{path}");
    }
    assert_eq!(world.origin.count(), 2);
}

/// Answers every HTTP/2 stream with this RST_STREAM code, counting them.
fn http2_that_resets(code: u8) -> SocketAddr {
    use std::io::{Read, Write};
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
    let address = listener.local_addr().expect("a bound listener has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (mut reader, mut writer) = (&stream, &stream);
            let mut preface = [0; 24];
            let _ = reader.read_exact(&mut preface);
            let _ = writer.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
            let mut head = [0; 9];
            while reader.read_exact(&mut head).is_ok() {
                let length = usize::from(head[1]) << 8 | usize::from(head[2]);
                let mut payload = vec![0; length];
                let _ = reader.read_exact(&mut payload);
                // HEADERS: the stream is refused at once.
                if head[3] == 1 {
                    let id = &head[5..9];
                    let _ = writer.write_all(&[&[0, 0, 4, 3, 0], id, &[0, 0, 0, code]].concat());
                }
            }
        }
    });
    address
}

#[test]
fn idm_03_an_http2_stream_that_was_refused_gives_its_claim_back_and_one_that_was_reset_is_unknown() {
    const REFUSED_STREAM: u8 = 7;
    const INTERNAL_ERROR: u8 = 2;
    let world = World::start();
    let http2 = json!({ "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": { "http2_protocol_options": {} } } } });
    let clusters = [("refuses", REFUSED_STREAM), ("resets", INTERNAL_ERROR)]
        .map(|(name, code)| cluster(name, Some(http2_that_resets(code)), http2.clone()));
    let envoy = envoy(&world, &[("/refuses", to("refuses")), ("/resets", to("resets"))], &clusters);
    let send = |path: &str| envoy.client().send(&payment("k").path(path)).expect("an answer");
    for _ in 0..2 {
        let answer = send("/refuses");
        assert_eq!((answer.status, answer.header("idempotency-outcome")), (503, None), "{answer:?}");
        world.await_state(None);
    }
    let answer = send("/resets");
    assert_eq!((answer.status, answer.header("idempotency-outcome")), (503, Some("unknown")), "{answer:?}");
    assert_eq!(world.state().as_deref(), Some("R"));
}
