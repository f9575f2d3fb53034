//! Spellings of paths and hosts, and the values that keys take from a request.

use lockkeeper_tests::{Envoy, Redis};
use serde_json::{Value, json};

use crate::{config, counted_by, exchange, get, limit, take_key};

fn start(policy: &Value) -> (Redis, Envoy) {
    let redis = Redis::start().expect("Redis starts");
    let envoy = Envoy::start(&config(&redis, policy).direct_response()).expect("Envoy starts");
    (redis, envoy)
}

#[test]
fn key_04_no_spelling_of_a_route_escapes_its_limit() {
    let login =
        json!({ "name": "login", "algorithm": "fixed_window", "limit": 2, "window": "1d", "key": ["constant:all"] });
    let (_redis, envoy) = start(&json!({
        "version": 1,
        "policies": { "login": { "limits": [login] } },
        "routes": [
            { "match": { "host": "api.example.test", "path": "/v1/login", "methods": ["POST"] }, "policy": "login" }
        ]
    }));
    let post = |host: &str, target: &str| {
        exchange(&envoy, &format!("POST {target} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n\r\n")).status
    };
    assert_eq!([(); 2].map(|()| post("api.example.test", "/v1/login")), [200, 200]);
    let denied = [
        ("api.example.test", "/v1/login"),
        ("api.example.test", "//v1/login"),
        ("api.example.test", "/v1//login"),
        ("api.example.test", "/v1/./login"),
        ("api.example.test", "/x/../v1/login"),
        ("api.example.test", "/v1/%6Cogin"),
        ("api.example.test", "/v1/x/%2e%2e/login"),
        ("api.example.test", "/v1/login/"),
        ("api.example.test", "/v1/login?x=1"),
        ("API.Example.Test", "/v1/login"),
        ("api.example.test:443", "/v1/login"),
        ("api.example.test.", "/v1/login"),
        ("api.example.test", "http://api.example.test/v1/login"),
    ];
    for (host, target) in denied {
        assert_eq!(post(host, target), 429, "{host} {target}");
    }
    for target in ["/v1%2Flogin", "/v1/login;a=b", "/v1/log"] {
        assert_eq!(post("api.example.test", target), 200, "{target} is another path");
    }
    for target in ["/v1/%login", "/v1/logi%6"] {
        assert_eq!(post("api.example.test", target), 400, "{target} is malformed");
    }
}

#[test]
fn routes_are_chosen_by_template_header_and_method() {
    let of = |name: &str| json!({ "limits": [limit(name, json!(["constant:all"]))] });
    let (_redis, envoy) = start(&json!({
        "version": 1,
        "policies": { "order": of("order"), "new": of("new"), "pro": of("pro"), "head": of("head"), "rest": of("rest") },
        "routes": [
            { "match": { "path": "/orders/{id}" }, "policy": "order" },
            { "match": { "path": "/orders/new" }, "policy": "new" },
            { "match": { "path": "/orders/{id}", "headers": { "x-plan": "pro", "x-beta": true } }, "policy": "pro" },
            { "match": { "path": "/orders/{id}", "methods": ["DELETE"] }, "policy": "head" }
        ],
        "default_policy": "rest"
    }));
    let rows = [
        ("/orders/7", "", "order"),
        ("/orders/7", "x-plan: pro\r\nx-beta: 1\r\n", "pro"),
        ("/orders/7", "x-plan: pro\r\nx-beta:\r\n", "order"),
        ("/orders/7", "X-Plan: pro\r\nX-Beta: 1\r\n", "pro"),
        ("/orders/7", "x-plan: pro\r\nx-plan: pro\r\nx-beta: 1\r\n", "order"),
        ("/orders/new", "x-plan: pro\r\nx-beta: 1\r\n", "new"),
        ("/orders", "", "rest"),
        ("/orders/7/items", "", "rest"),
    ];
    for (target, lines, policy) in rows {
        assert_eq!(counted_by(&get(&envoy, target, lines)), Some(policy), "{target} {lines:?}");
    }
    let delete = "DELETE /orders/7 HTTP/1.1\r\nhost: a\r\nx-plan: pro\r\nx-beta: 1\r\n\r\n";
    assert_eq!(counted_by(&exchange(&envoy, delete)), Some("head"));
}

#[test]
fn keys_are_taken_from_cookies_queries_paths_and_several_header_lines() {
    let keyed = |key: &str| json!({ "limits": [limit("l", json!([key]))] });
    let (redis, envoy) = start(&json!({
        "version": 1,
        "policies": {
            "cookie": keyed("cookie:sid"), "query": keyed("query:k"), "header": keyed("header:x-a"), "path": keyed("path:id")
        },
        "routes": [
            { "match": { "path": "/cookie" }, "policy": "cookie" },
            { "match": { "path": "/query" }, "policy": "query" },
            { "match": { "path": "/header" }, "policy": "header" },
            { "match": { "path": "/items/{id}" }, "policy": "path" }
        ]
    }));
    let key = |(target, lines): (&str, &str)| {
        assert_eq!(get(&envoy, target, lines).status, 200, "{target} {lines:?}");
        take_key(&redis)
    };
    // Each pair is one identity, and another than that of the third.
    let rows = [
        [
            ("/cookie", "cookie: sid=a\r\n"),
            ("/cookie", "cookie: b=1; sid=\"a\"; sid=b\r\n"),
            ("/cookie", "cookie: sid=b\r\n"),
        ],
        [("/cookie", "cookie: sid=a\r\n"), ("/cookie", "cookie: sid=a; b\r\n"), ("/cookie", "cookie: sid=A\r\n")],
        [("/query?k=a%20b", ""), ("/query?x&%6b=a+b&k=c", ""), ("/query?k=ab", "")],
        [("/header", "x-a: 1\r\nx-a: 2\r\n"), ("/header", "X-A: 1,2\r\n"), ("/header", "x-a: 2\r\nx-a: 1\r\n")],
        [("/items/7", ""), ("//items/./%37/?x=8", ""), ("/items/8", "")],
    ];
    for [one, two, other] in rows {
        let [one_key, two_key, other_key] = [one, two, other].map(key);
        assert_eq!(one_key, two_key, "{one:?} and {two:?}");
        assert_ne!(one_key, other_key, "{one:?} and {other:?}");
    }
    for (target, lines) in [
        ("/cookie", ""),
        ("/cookie", "cookie: sid\r\n"),
        ("/cookie", "cookie: b=1\r\ncookie: sid=a\r\n"),
        ("/query?k=", ""),
        ("/header", "x-a:\r\n"),
    ] {
        assert_eq!(get(&envoy, target, lines).status, 400, "{target} {lines:?}");
    }
}
