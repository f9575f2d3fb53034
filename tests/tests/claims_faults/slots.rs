//! Slots of a concurrency limit (reference list 55): given back at every end of a request, also when a claim is held beside.

use crate::world::{World, payment, payment_bytes, policy};
use lockkeeper_tests::origin::{self, Piece, Seen};
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{poll, ports};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn behave(seen: &Seen) -> Vec<Piece> {
    let whole = origin::response(200, "{}");
    match seen.path() {
        "/closes" => vec![Piece::Close],
        "/cut" => vec![Piece::Bytes(whole[..whole.len() - 1].to_vec()), Piece::Close],
        "/500" => vec![Piece::Bytes(origin::response(500, "{}"))],
        "/slow" | "/gone" => vec![Piece::Pause(Duration::from_millis(400)), Piece::Bytes(whole)],
        _ => vec![Piece::Bytes(whole)],
    }
}

/// How many slots are taken.
fn taken(world: &World) -> u64 {
    let mut connection = world.redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*concurrency*").query(&mut connection).expect("Redis answers");
    keys.iter().map(|key| redis::cmd("ZCARD").arg(key).query::<u64>(&mut connection).expect("a sorted set")).sum()
}

#[test]
fn a_slot_is_given_back_at_every_end() {
    let world = World::start_with(Arc::new(behave));
    let mut policy = policy(json!({}));
    policy["policies"]["payments"]["concurrency"] = json!({ "limit": 1, "lease": "1h", "key": ["host"] });
    let refused = ports::free();
    let envoy = world.envoy_with(json!({}), |mut config| {
        let nobody = json!({ "address": "127.0.0.1", "port_value": refused.port() });
        let endpoint = json!({ "lb_endpoints": [{ "endpoint": { "address": { "socket_address": nobody } } }] });
        config.add_cluster(json!({ "name": "nobody", "type": "STATIC", "connect_timeout": "1s",
            "load_assignment": { "cluster_name": "nobody", "endpoints": [endpoint] } }));
        let routes = config.connection_manager().pointer_mut("/route_config/virtual_hosts/0/routes").expect("routes");
        let routes = routes.as_array_mut().expect("a list of routes");
        routes.insert(0, json!({ "match": { "path": "/refused" }, "route": { "cluster": "nobody" } }));
        routes
            .insert(0, json!({ "match": { "path": "/slow" }, "route": { "cluster": "upstream", "timeout": "0.1s" } }));
        config.policy(policy)
    });
    let is_free = |name: &str| {
        let is_free = || (taken(&world) == 0).then_some(());
        poll::until(name, Duration::from_secs(5), is_free).expect("the slot is given back");
    };
    // With a key and without; the second with the key is a replay, or refused, and takes nothing.
    for path in ["/ok", "/500", "/closes", "/cut", "/refused", "/slow"] {
        let unclaimed = lockkeeper_tests::http::Request::new("POST", path).header("authorization", "Bearer a");
        for request in [payment("k").path(path), payment("k").path(path), unclaimed] {
            let answer = envoy.client().send(&request);
            let got = answer.as_ref().map_or(0, |answer| answer.status);
            assert_ne!(got, 429, "{path}: {answer:?}");
            is_free(path);
        }
    }
    // The client goes away while the upstream works.
    let runs = world.origin.count();
    let mut client = RawConnection::open(envoy.address()).expect("Envoy accepts");
    let bytes = String::from_utf8(payment_bytes("k")).expect("a request is text").replacen("/payments", "/gone", 1);
    client.send(bytes.as_bytes()).expect("Envoy reads");
    world.await_runs(runs + 1);
    assert_eq!(taken(&world), 1);
    let second = envoy.client().send(&payment("other")).expect("an answer");
    assert_eq!(second.status, 429, "{second:?}");
    drop(client);
    is_free("client gone");
}
