//! The responses a policy asks for: fields of every shape beside an upstream's own, its own words, answers that scripts
//! of other origins can read, gRPC codes.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Two requests a day, by a policy file with these further members.
fn start(more: Value, upstream_fields: Value) -> (Redis, Envoy) {
    let redis = Redis::start().expect("Redis starts");
    let mut policy = json!({
        "version": 1,
        "policies": { "api": {
            "limits": [{ "name": "all", "algorithm": "fixed_window", "limit": 2, "window": "1d", "key": ["constant:all"] }],
            "limits_on_store_failure": "deny"
        } },
        "default_policy": "api"
    });
    policy.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let mut config = EnvoyConfig::shipped().redis(redis.address()).direct_response().without_access_log();
    config.connection_manager()["route_config"]["virtual_hosts"][0]["response_headers_to_add"] = upstream_fields;
    let envoy = Envoy::start(&config.policy(policy).host(json!({ "deadline": "2s" }))).expect("Envoy starts");
    (redis, envoy)
}

fn field(name: &str, value: &str) -> Value {
    json!({ "header": { "key": name, "value": value } })
}

fn send(envoy: &Envoy, request: &Request) -> Response {
    envoy.client().send(request).expect("an answer")
}

fn all_values<'r>(response: &'r Response, name: &str) -> Vec<&'r str> {
    response.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs()
}

#[test]
fn fields_have_the_shape_of_the_mode() {
    let rows = [("rt", vec!["r", "t"]), ("aw", vec!["a", "w"]), ("both", vec!["r", "t", "a", "w"]), ("off", vec![])];
    for (mode, names) in rows {
        let (_redis, envoy) = start(json!({ "rate_limit_headers": mode }), json!([]));
        for status in [200, 200, 429] {
            let response = send(&envoy, &Request::get("/"));
            assert_eq!(response.status, status, "{mode}");
            let item = response.header("ratelimit").unwrap_or_default();
            let found: Vec<_> = item.split(';').skip(1).filter_map(|one| Some(one.split_once('=')?.0)).collect();
            assert_eq!(found, names, "{mode}: {item:?}");
            assert_eq!(response.header("ratelimit-policy").is_some(), mode != "off");
            assert_eq!(response.header("retry-after").is_some(), status == 429, "{mode}");
        }
    }
}

#[test]
fn hdr_01_legacy_fields_tell_a_unix_time() {
    let (_redis, envoy) = start(json!({ "rate_limit_headers": "legacy" }), json!([]));
    let tomorrow = (unix_s() / 86_400 + 1) * 86_400;
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let response = send(&envoy, &Request::get("/"));
        assert_eq!(response.status, status);
        assert_eq!(all_values(&response, "x-ratelimit-limit"), ["2"]);
        assert_eq!(all_values(&response, "x-ratelimit-remaining"), [remaining]);
        let reset: u64 = all_values(&response, "x-ratelimit-reset")[0].parse().expect("seconds");
        assert!(reset.abs_diff(tomorrow) <= 2, "{reset}, not {tomorrow}");
        assert_eq!(response.header("ratelimit"), None);
    }
}

#[test]
fn hdr_05_the_upstreams_own_fields_stay_and_single_ones_come_once() {
    let upstream = json!([
        field("ratelimit", "\"origin\";r=2;t=9"),
        field("x-ratelimit-remaining", "1"),
        field("retry-after", "30"),
        field("cache-control", "public, max-age=300")
    ]);
    let (_redis, envoy) = start(json!({ "rate_limit_headers": "legacy" }), upstream.clone());
    let response = send(&envoy, &Request::get("/"));
    assert_eq!(all_values(&response, "x-ratelimit-remaining"), ["1"]);
    assert_eq!(all_values(&response, "x-ratelimit-limit"), [""; 0], "ours would stand beside another's remaining");
    let (_redis, envoy) = start(json!({}), upstream);
    let response = send(&envoy, &Request::get("/"));
    assert_eq!(all_values(&response, "ratelimit")[0], "\"origin\";r=2;t=9");
    assert!(all_values(&response, "ratelimit")[1].starts_with("\"all\";r=1;t="));
    assert_eq!(all_values(&response, "retry-after"), ["30"]);
    assert_eq!(all_values(&response, "cache-control"), ["public, max-age=300"], "caching stays the upstream's");
}

#[test]
fn hdr_04_a_denial_is_not_to_be_stored() {
    let (_redis, envoy) = start(json!({}), json!([]));
    let responses = [(); 3].map(|()| send(&envoy, &Request::get("/")));
    assert_eq!(responses[0].header("cache-control"), None);
    assert_eq!((responses[2].status, all_values(&responses[2], "cache-control")), (429, vec!["no-store"]));
}

#[test]
fn hdr_02_jitter_only_adds() {
    let (_redis, envoy) = start(json!({ "retry_after_jitter": "1m" }), json!([]));
    let mut added: Vec<u64> = Vec::new();
    for _ in 0..40 {
        let before = 86_400 - unix_s() % 86_400;
        let response = send(&envoy, &Request::get("/"));
        if let Some(seconds) = response.header("retry-after").and_then(|text| text.parse::<u64>().ok()) {
            let after = 86_400 - unix_s() % 86_400;
            assert!((after..=before + 61).contains(&seconds), "{seconds} s with {after} to {before} s to go");
            added.push(seconds.saturating_sub(before));
        }
    }
    added.sort_unstable();
    added.dedup();
    assert!(added.len() > 10, "spread over a minute: {added:?}");
}

#[test]
fn a_policy_words_its_own_answers() {
    let words = json!({
        "denied": { "status": 420, "content_type": "text/html", "body": "<p>Slow down</p>", "headers": { "X-Reason": "rate" } },
        "unavailable": { "status": 500, "body": "down" }
    });
    let (redis, envoy) = start(words, json!([]));
    let denied = [(); 3].map(|()| send(&envoy, &Request::get("/")))[2].clone();
    assert_eq!((denied.status, denied.body.as_str()), (420, "<p>Slow down</p>"));
    assert_eq!(all_values(&denied, "content-type"), ["text/html"]);
    assert_eq!(all_values(&denied, "x-reason"), ["rate"]);
    assert!(denied.header("retry-after").is_some() && denied.header("ratelimit").is_some());
    redis.pause();
    let down = send(&envoy, &Request::get("/"));
    redis.resume();
    assert_eq!((down.status, down.body.as_str()), (500, "down"));
    assert_eq!(all_values(&down, "content-type"), ["text/plain; charset=utf-8"]);
}

#[test]
fn pro_01_the_code_of_a_grpc_denial_can_be_chosen() {
    let call = Request::new("POST", "/pkg.Service/Method").header("content-type", "application/grpc");
    for (more, code) in [(json!({}), "8"), (json!({ "denied": { "grpc_status": "unavailable" } }), "14")] {
        let (_redis, envoy) = start(more, json!([]));
        let denied = [(); 3].map(|()| send(&envoy, &call))[2].clone();
        assert_eq!((denied.status, denied.header("grpc-status")), (200, Some(code)));
        assert_eq!(denied.header("grpc-message").is_some(), denied.body.is_empty());
        assert!(denied.header("retry-after").is_some());
    }
}

#[test]
fn pro_02_preflights_cost_nothing_and_scripts_can_read_denials() {
    const APP: &str = "https://app.example.com";
    let cors = json!({ "cors": { "allow_origins": [APP], "allow_credentials": true } });
    let (redis, envoy) = start(cors, json!([]));
    let options = || Request::new("OPTIONS", "/");
    let preflight = options().header("origin", APP).header("access-control-request-method", "POST");
    let post = Request::new("POST", "/").header("origin", APP);
    for status in [200, 200, 429] {
        assert_eq!(send(&envoy, &preflight).status, 200);
        assert_eq!(send(&envoy, &post).status, status);
    }
    let denied = send(&envoy, &post);
    let expected = [
        ("access-control-allow-origin", APP),
        ("access-control-allow-credentials", "true"),
        ("access-control-expose-headers", "retry-after, ratelimit, ratelimit-policy"),
        ("vary", "origin"),
    ];
    for (name, value) in expected {
        assert_eq!(all_values(&denied, name), [value]);
    }
    let stranger = send(&envoy, &Request::new("POST", "/").header("origin", "https://evil.example"));
    assert_eq!((stranger.status, stranger.header("access-control-allow-origin")), (429, None));
    for flood in [options(), options().header("origin", APP), options().header("access-control-request-method", "PUT")]
    {
        assert_eq!(send(&envoy, &flood).status, 429, "not a preflight");
    }
    redis.pause();
    let (preflight, down) = (send(&envoy, &preflight), send(&envoy, &post));
    redis.resume();
    assert_eq!((preflight.status, down.status), (200, 503));
    assert_eq!(down.header("access-control-allow-origin"), Some(APP));
    assert_eq!(down.header("access-control-expose-headers"), Some("retry-after"));
}
