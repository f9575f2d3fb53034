//! Requests no well-behaved client sends: each gets an answer by a documented rule, and the filter's VM survives them.

use lockkeeper_tests::raw::{RawConnection, RawResponse};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis};
use serde_json::json;
use std::time::Duration;

/// One request a day for each value of `x-user`, and one worker whose VM must survive everything.
fn config(redis: &Redis) -> EnvoyConfig {
    let limit = json!({ "name": "per-user", "algorithm": "fixed_window", "limit": 1, "window": "1d", "key": ["header:x-user"] });
    let config = EnvoyConfig::shipped().redis(redis.address()).direct_response().without_access_log();
    config.deadline(Duration::from_secs(2)).policy(json!({
        "version": 1,
        "policies": { "api": { "limits": [limit], "limits_on_store_failure": "deny" } },
        "default_policy": "api"
    }))
}

fn start() -> (Redis, Envoy) {
    let redis = Redis::start().expect("Redis starts");
    let envoy = Envoy::start(&config(&redis)).expect("Envoy starts");
    (redis, envoy)
}

fn exchange(envoy: &Envoy, request: &[u8]) -> RawResponse {
    let mut connection = RawConnection::open(envoy.address()).expect("Envoy accepts");
    let name = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
    connection.exchange(request).unwrap_or_else(|error| panic!("{name:?}: {error:#}"))
}

/// A GET with header lines of any bytes.
fn get(lines: &[&[u8]]) -> Vec<u8> {
    let mut request = b"GET / HTTP/1.1\r\nhost: example.com\r\n".to_vec();
    for line in lines {
        request.extend_from_slice(line);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

fn user(value: &[u8]) -> Vec<u8> {
    get(&[&[b"x-user: ", value].concat()])
}

fn assert_statuses(envoy: &Envoy, requests: &[(Vec<u8>, u16)]) {
    for (number, (request, status)) in requests.iter().enumerate() {
        let response = exchange(envoy, request);
        assert_eq!(response.status, *status, "request {number} of {}: {response:?}", requests.len());
    }
}

/// The VM has not been replaced: it has neither panicked nor trapped.
fn assert_alive(envoy: &Envoy) {
    let fresh = format!("the last on {}", envoy.address());
    assert_eq!(exchange(envoy, &user(fresh.as_bytes())).status, 200);
    let log = envoy.process().log();
    assert!(!log.contains("panicked") && !log.contains("RuntimeError"), "{log}");
}

#[test]
fn values_that_are_no_utf8_are_told_apart_byte_by_byte() {
    let (_redis, envoy) = start();
    let requests = [
        (user(b"\xff\xfe"), 200),
        (user(b"\xff\xfd"), 200),
        (user(b"\xff\xfe"), 429),
        (user(b"\xc3"), 200),
        (user(b"\xc3\xa9"), 200),
        (user("\u{fffd}".as_bytes()), 200),
        (user(b"\xff\xfd"), 429),
    ];
    assert_statuses(&envoy, &requests);
    assert_alive(&envoy);
}

#[test]
fn repeated_lines_are_one_list() {
    let (_redis, envoy) = start();
    let requests = [
        (get(&[b"x-user: a", b"x-user: b"]), 200),
        (get(&[b"x-user: a,b"]), 429),
        (get(&[b"X-User: a", b"other: x", b"X-USER: b"]), 429),
        (get(&[b"x-user: b", b"x-user: a"]), 200),
        (get(&[b"x-user: a"]), 200),
        (get(&[b"x-user:   a  "]), 429),
        (get(&[b"x-user:"]), 400),
        (get(&[b"x-user:   "]), 400),
        (get(&[]), 400),
    ];
    assert_statuses(&envoy, &requests);
    assert_alive(&envoy);
}

#[test]
fn values_of_50_kib_are_told_apart_by_their_last_byte_and_longer_ones_are_envoys_to_refuse() {
    let (_redis, envoy) = start();
    let long = |last: u8| user(&[vec![b'k'; 50 * 1024], vec![last]].concat());
    let too_long = user(&vec![b'k'; 64 * 1024]);
    assert_statuses(&envoy, &[(long(b'a'), 200), (long(b'b'), 200), (long(b'a'), 429), (too_long, 431)]);
    assert_alive(&envoy);
}

#[test]
fn values_of_64_kib_are_told_apart_where_envoy_lets_them_in() {
    let redis = Redis::start().expect("Redis starts");
    let mut config = config(&redis);
    config.connection_manager()["max_request_headers_kb"] = json!(128);
    let envoy = Envoy::start(&config).expect("Envoy starts");
    let long = |last: u8| user(&[vec![b'k'; 64 * 1024], vec![last]].concat());
    assert_statuses(&envoy, &[(long(b'a'), 200), (long(b'b'), 200), (long(b'a'), 429)]);
    assert_alive(&envoy);
}

#[test]
fn a_hundred_headers_and_strange_request_lines_change_nothing() {
    let (_redis, envoy) = start();
    let many: Vec<Vec<u8>> = (0..90).map(|number| format!("x-{number}: {number}").into_bytes()).collect();
    let mut lines: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    lines.push(b"x-user: many");
    let line = |text: &str| format!("{text} HTTP/1.1\r\nhost: example.com\r\nx-user: {text}\r\n\r\n").into_bytes();
    let long_path = format!("GET /{}", "%2e%2e/a%00b/".repeat(500));
    let requests = [
        (get(&lines), 200),
        (get(&lines), 429),
        (line("PROPFIND /"), 200),
        (line("PROPFIND /"), 429),
        (line("BREW /tea"), 400),
        (line("OPTIONS *"), 404),
        (line("GET //a/./b/../%61?x=/../"), 200),
        (line("GET http://example.com/absolute"), 200),
        (line(&long_path), 400),
        (line("GET /#fragment"), 400),
    ];
    assert_statuses(&envoy, &requests);
    assert_alive(&envoy);
}

#[test]
fn a_request_without_authority_is_envoys_to_refuse_or_to_name() {
    let (redis, envoy) = start();
    let without_host = b"GET / HTTP/1.1\r\nx-user: one\r\n\r\n".to_vec();
    let old = b"GET / HTTP/1.0\r\nx-user: one\r\n\r\n".to_vec();
    assert_statuses(&envoy, &[(without_host.clone(), 400), (old.clone(), 426)]);
    assert_alive(&envoy);
    let mut config = config(&redis);
    config.connection_manager()["http_protocol_options"] = json!({ "accept_http_10": true });
    let envoy = Envoy::start(&config).expect("Envoy starts");
    assert_statuses(&envoy, &[(old.clone(), 400), (without_host, 400)]);
    assert_alive(&envoy);
    config.connection_manager()["http_protocol_options"]["default_host_for_http_10"] = json!("example.com");
    let envoy = Envoy::start(&config).expect("Envoy starts");
    assert_statuses(&envoy, &[(old.clone(), 200), (old, 429)]);
    assert_alive(&envoy);
}
