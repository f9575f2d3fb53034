//! The client's address by each setting of Envoy's connection manager, before a client that lies.

use lockkeeper_core::identity::Attribute;
use lockkeeper_tests::{Envoy, Redis, Upstream};
use serde_json::{Value, json};

use crate::{config, expected_key, get, limit, take_key};

/// The peer of every connection in these tests.
const PEER: &str = "127.0.0.1";
/// Stands for what Envoy appends to `x-forwarded-for` for the peer: for a loopback peer, an address of the machine.
const APPENDED: &str = "appended";
const HEADERS: [&str; 4] = ["", "203.0.113.1", "198.51.100.9, 203.0.113.1", "198.51.100.9, 203.0.113.1, 203.0.113.2"];
/// What no setting looks at.
const LIES: &str = "x-real-ip: 198.51.100.9\r\nforwarded: for=198.51.100.9\r\ntrue-client-ip: 198.51.100.9\r\n\
                    cf-connecting-ip: 198.51.100.9\r\n";

fn policy(client_address: Value) -> Value {
    json!({
        "version": 1,
        "client_address": client_address,
        "policies": { "api": { "limits": [limit("l", json!(["client_address"]))] } },
        "default_policy": "api"
    })
}

/// Sends each header and compares the identity with that of the address expected.
fn assert_addresses(use_remote_address: bool, hops: u32, client_address: Value, expected: [&str; 4]) {
    let (redis, upstream) = (Redis::start().expect("Redis starts"), Upstream::start().expect("the upstream starts"));
    let policy = policy(client_address);
    let mut config = config(&redis, &policy).upstream(upstream.address());
    config.connection_manager()["use_remote_address"] = json!(use_remote_address);
    config.connection_manager()["xff_num_trusted_hops"] = json!(hops);
    let envoy = Envoy::start(&config).expect("Envoy starts");
    for (header, address) in HEADERS.iter().zip(expected) {
        let line = if header.is_empty() { String::new() } else { format!("x-forwarded-for: {header}\r\n") };
        assert_eq!(get(&envoy, "/", &format!("{line}{LIES}")).status, 200);
        let seen = upstream.take().pop().expect("the upstream saw the request");
        let appended = seen["headers"]["x-forwarded-for"].as_str().unwrap_or_default().rsplit(',').next();
        let address = if address == APPENDED { appended.expect("Envoy appends the peer").trim() } else { address };
        let key = expected_key(&policy, "/", |asked| {
            (*asked == Attribute::ClientAddress).then(|| address.as_bytes().to_vec())
        });
        assert_eq!(take_key(&redis), key, "{use_remote_address}, {hops} hops, {header:?}: {address}");
    }
}

/// The table of docs/OPERATIONS.md.
#[test]
fn key_02_the_hosts_address_is_the_one_that_the_connection_manager_settles_on() {
    let [x, a, b] = ["198.51.100.9", "203.0.113.1", "203.0.113.2"];
    let host = || json!({ "source": "host" });
    assert_addresses(true, 0, host(), [PEER, PEER, PEER, PEER]);
    assert_addresses(true, 1, host(), [PEER, a, a, b]);
    assert_addresses(true, 2, host(), [PEER, PEER, x, a]);
    assert_addresses(false, 0, host(), [PEER, a, a, b]);
    assert_addresses(false, 1, host(), [PEER, PEER, x, a]);
}

/// The table of docs/OPERATIONS.md: with `use_remote_address` Envoy has appended the peer before the filter looks.
#[test]
fn key_02_trusted_hops_count_from_the_right_of_what_the_filter_sees() {
    let [x, a, b] = ["198.51.100.9", "203.0.113.1", "203.0.113.2"];
    let hops = |hops: u32| json!({ "source": "x-forwarded-for", "trusted_hops": hops });
    assert_addresses(true, 0, hops(1), [APPENDED; 4]);
    assert_addresses(true, 0, hops(2), [PEER, a, a, b]);
    assert_addresses(true, 0, hops(3), [PEER, PEER, x, a]);
    assert_addresses(false, 0, hops(1), [PEER, a, a, b]);
}
