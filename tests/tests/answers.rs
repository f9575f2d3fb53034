//! What clients, operators and upstreams see of a decision: fields, bodies, gRPC statuses, the access log, metrics.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::stub_store::{self, StubStore};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, Upstream, poll};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// One request a day for each user, and ten for all.
fn policy() -> Value {
    json!({
        "version": 1,
        "policies": {
            "api": {
                "limits": [
                    { "name": "per-user", "algorithm": "fixed_window", "limit": 1, "window": "1d", "key": ["header:x-user"] },
                    { "name": "all", "algorithm": "token_bucket", "capacity": 10, "refill": "1/1h", "key": ["constant:all"] },
                    { "name": "shadow", "algorithm": "sliding_window", "limit": 1, "window": "1h", "key": ["constant:all"], "enforce": false }
                ],
                "limits_on_store_failure": "deny"
            },
            "reads": { "limits": [
                { "name": "reads", "algorithm": "fixed_window", "limit": 2, "window": "1d", "key": ["constant:all"] }
            ] }
        },
        "routes": [
            { "match": { "path": "/v1/*" }, "policy": "api" },
            { "match": { "path": "/reads", "methods": ["GET"] }, "policy": "reads" }
        ]
    })
}

fn config() -> EnvoyConfig {
    EnvoyConfig::shipped()
        .policy(policy())
        .deadline(Duration::from_secs(2))
        .host(json!({ "degraded_header": "x-decided-by" }))
}

/// Real Redis, a gateway and the upstream behind it.
fn start() -> (Redis, Upstream, Envoy) {
    let redis = Redis::start().expect("Redis starts");
    let upstream = Upstream::start().expect("the upstream starts");
    let envoy = Envoy::start(&config().redis(redis.address()).upstream(upstream.address())).expect("Envoy starts");
    (redis, upstream, envoy)
}

fn send(envoy: &Envoy, request: &Request) -> Response {
    envoy.client().send(request).expect("an answer")
}

fn by(user: &str) -> Request {
    Request::get("/v1/things").header("x-user", user)
}

fn seconds_until_tomorrow() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("the clock is past 1970");
    86_400 - now.as_secs() % 86_400
}

/// The numbers of `"name";r=…;t=…` items.
fn remaining_and_reset(response: &Response, name: &str) -> (u64, u64) {
    let field = response.header("ratelimit").expect("a RateLimit field");
    let item =
        field.split(", ").find_map(|item| item.strip_prefix(&format!("\"{name}\";r="))).expect("the limit's item");
    let (remaining, reset) = item.split_once(";t=").expect("r and t");
    (remaining.parse().expect("a whole number"), reset.parse().expect("a whole number"))
}

#[test]
fn an_admitted_request_reaches_the_upstream_and_its_answer_tells_the_quota() {
    let (_redis, upstream, envoy) = start();
    let response = send(&envoy, &by("one"));
    assert_eq!((response.status, upstream.count()), (200, 1));
    assert_eq!(response.header("ratelimit-policy"), Some("\"per-user\";q=1;w=86400, \"all\";q=10;w=36000"));
    let (remaining, reset) = remaining_and_reset(&response, "per-user");
    assert_eq!(remaining, 0);
    assert!(reset.abs_diff(seconds_until_tomorrow()) <= 2, "reset in {reset} s");
    assert_eq!(remaining_and_reset(&response, "all"), (9, 3_600), "the next token comes in an hour");
    assert_eq!(response.header("retry-after"), None);
    assert_eq!(response.header("x-decided-by"), None);
}

#[test]
fn a_denied_request_gets_429_with_problem_details_and_does_not_reach_the_upstream() {
    let (_redis, upstream, envoy) = start();
    send(&envoy, &by("one"));
    let response = send(&envoy, &by("one"));
    assert_eq!((response.status, upstream.count()), (429, 1));
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let retry_after: u64 = response.header("retry-after").and_then(|text| text.parse().ok()).expect("whole seconds");
    assert!(retry_after.abs_diff(seconds_until_tomorrow()) <= 2, "retry after {retry_after} s");
    assert_eq!(remaining_and_reset(&response, "per-user").0, 0);
    assert_eq!(remaining_and_reset(&response, "all").0, 9, "the other limit is not charged");
    let problem: Value = serde_json::from_str(&response.body).expect("problem details are JSON");
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too many requests",
        "status": 429,
        "violated-policies": ["per-user"]
    });
    assert_eq!(problem, expected);
}

#[test]
fn a_request_without_a_part_of_a_key_gets_400() {
    let (_redis, upstream, envoy) = start();
    for request in [Request::get("/v1/things"), by("")] {
        let response = send(&envoy, &request);
        assert_eq!((response.status, upstream.count()), (400, 0));
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
        assert!(response.body.contains("x-user"), "{}", response.body);
    }
}

#[test]
fn the_upstreams_own_fields_are_kept_beside_ours() {
    let redis = Redis::start().expect("Redis starts");
    let mut config = config().redis(redis.address()).direct_response();
    config.connection_manager()["route_config"]["virtual_hosts"][0]["response_headers_to_add"] = json!([
        { "header": { "key": "ratelimit", "value": "\"upstream\";r=7;t=1" } }
    ]);
    let envoy = Envoy::start(&config).expect("Envoy starts");
    let response = send(&envoy, &by("one"));
    let fields: Vec<_> = response.headers.get_all("ratelimit").iter().filter_map(|value| value.to_str().ok()).collect();
    assert_eq!(fields.len(), 2, "{fields:?}");
    assert_eq!(fields[0], "\"upstream\";r=7;t=1");
}

#[test]
fn head_counts_as_get() {
    let (_redis, _upstream, envoy) = start();
    let statuses = ["HEAD", "GET", "HEAD", "GET"].map(|method| send(&envoy, &Request::new(method, "/reads")));
    assert_eq!(statuses.each_ref().map(|response| response.status), [200, 200, 429, 429]);
    assert!(statuses[2].body.is_empty() && statuses[2].header("retry-after").is_some(), "{:?}", statuses[2]);
    assert_eq!(send(&envoy, &Request::new("POST", "/reads").body("x")).status, 200, "no policy matches");
}

#[test]
fn an_upload_waits_for_its_decision_and_a_denied_one_never_reaches_the_upstream() {
    const UPLOAD: usize = 5 << 20;
    let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
    let upstream = Upstream::start().expect("the upstream starts");
    let config = config().redis(stub.address()).upstream(upstream.address()).deadline(Duration::from_secs(10));
    let envoy = Envoy::start(&config).expect("Envoy starts");
    let upload = Request::new("POST", "/v1/things").header("x-user", "one").body(vec![b'x'; UPLOAD]);
    stub.behave(stub_store::admit_after(Duration::from_millis(300)));
    let response = send(&envoy, &upload);
    assert_eq!(response.status, 200, "{}", response.body.get(..200).unwrap_or(&response.body));
    let echoed: Value = serde_json::from_str(&response.body).expect("the upstream answers with JSON");
    assert_eq!(echoed["body"].as_str().map(str::len), Some(UPLOAD), "the whole upload, once");
    stub.behave(stub_store::deny());
    // Envoy answers before the upload ends, and may close the connection on the rest of it.
    if let Ok(response) = envoy.client().send(&upload) {
        assert_eq!(response.status, 429);
    }
    assert_eq!(upstream.count(), 1, "only the admitted upload reached the upstream");
}

/// What a gRPC client gets for one call.
fn grpc_call(server: SocketAddr, content_type: &str, user: Option<&str>) -> ureq::http::HeaderMap {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(server).await.expect("Envoy accepts");
        let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2 works");
        tokio::spawn(connection);
        let mut request =
            ureq::http::Request::post("http://example.com/v1/things").header("content-type", content_type);
        request = request.header("te", "trailers");
        if let Some(user) = user {
            request = request.header("x-user", user);
        }
        let mut client = client.ready().await.expect("the connection is ready");
        let (response, _stream) = client.send_request(request.body(()).expect("a request"), true).expect("a stream");
        let response = response.await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert!(
            response.body().is_end_stream() || !response.headers().contains_key("grpc-status"),
            "a trailers-only answer"
        );
        response.headers().clone()
    })
}

fn grpc_status(headers: &ureq::http::HeaderMap) -> Option<&str> {
    headers.get("grpc-status").and_then(|value| value.to_str().ok())
}

#[test]
fn grpc_clients_get_grpc_statuses() {
    let (redis, upstream, envoy) = start();
    let server = envoy.address();
    let admitted = grpc_call(server, "application/grpc", Some("one"));
    assert_eq!((grpc_status(&admitted), upstream.count()), (None, 1), "the upstream's own answer");
    for content_type in ["application/grpc", "application/grpc+proto"] {
        let denied = grpc_call(server, content_type, Some("one"));
        assert_eq!(grpc_status(&denied), Some("8"), "RESOURCE_EXHAUSTED");
        assert!(denied["content-type"].to_str().is_ok_and(|value| value.starts_with("application/grpc")), "{denied:?}");
        assert!(denied.contains_key("retry-after") && denied.contains_key("grpc-message"), "{denied:?}");
    }
    assert_eq!(grpc_status(&grpc_call(server, "application/grpc", None)), Some("3"), "INVALID_ARGUMENT");
    redis.pause();
    let unavailable = grpc_call(server, "application/grpc", Some("two"));
    assert_eq!(grpc_status(&unavailable), Some("14"), "UNAVAILABLE");
    redis.resume();
}

#[test]
fn the_access_log_tells_each_decision() {
    let (redis, _upstream, envoy) = start();
    send(&envoy, &by("one"));
    send(&envoy, &by("one"));
    send(&envoy, &Request::get("/v1/things"));
    send(&envoy, &Request::get("/unlimited"));
    redis.pause();
    send(&envoy, &by("two"));
    redis.resume();
    let logged = || Some(envoy.access_log()).filter(|lines| lines.len() >= 5);
    let lines =
        poll::until("five lines of access log", Duration::from_secs(5), logged).expect("the access log is written");
    let rows: Vec<_> = lines
        .iter()
        .map(|line| ["status", "policy", "limit", "outcome", "decided_by"].map(|field| line[field].clone()))
        .collect();
    let expected = [
        json!([200, "api", null, "allowed", "store"]),
        json!([429, "api", "per-user", "denied", "store"]),
        json!([400, "api", "per-user", "rejected", "policy"]),
        json!([200, null, null, "allowed", "policy"]),
        json!([503, "api", null, "unavailable", "failure_mode"]),
    ];
    assert_eq!(json!(rows), json!(expected));
    assert_eq!(lines[1]["details"], "lockkeeper_denied");
    let text = lines.iter().map(Value::to_string).collect::<String>();
    assert!(!text.contains("one") && !text.contains("two"), "a header's value is in the log: {text}");
}

#[test]
fn without_filter_state_the_access_log_tells_none() {
    let redis = Redis::start().expect("Redis starts");
    let config = config().redis(redis.address()).direct_response().host(json!({ "filter_state": false }));
    let envoy = Envoy::start(&config).expect("Envoy starts");
    assert_eq!([(), ()].map(|()| send(&envoy, &by("one")).status), [200, 429]);
    let logged = || Some(envoy.access_log()).filter(|lines| lines.len() >= 2);
    let lines =
        poll::until("two lines of access log", Duration::from_secs(5), logged).expect("the access log is written");
    for line in &lines {
        assert_eq!(
            ["policy", "limit", "outcome", "decided_by"].map(|field| line[field].clone()),
            [(); 4].map(|()| json!(null))
        );
    }
}

#[test]
fn metrics_have_labels_and_add_up_to_the_requests() {
    let (redis, _upstream, envoy) = start();
    for _ in 0..3 {
        send(&envoy, &by("one"));
    }
    send(&envoy, &by("two"));
    send(&envoy, &Request::get("/unlimited"));
    redis.pause();
    send(&envoy, &by("three"));
    redis.resume();
    let expected = [
        (r#"policy="api",limit="all",outcome="allowed",decided_by="store""#, 2),
        (r#"policy="api",limit="per-user",outcome="denied",decided_by="store""#, 2),
        (r#"policy="api",limit="shadow",outcome="shadow_denied",decided_by="store""#, 3),
        (r#"policy="none",limit="none",outcome="allowed",decided_by="policy""#, 1),
        (r#"policy="api",limit="all",outcome="unavailable",decided_by="failure_mode""#, 1),
    ];
    let metric = |text: &str, labels: &str| -> Option<u64> {
        let of_metric = |line: &&str| line.starts_with("lockkeeper_decisions{");
        let has_labels = |line: &&str| labels.split(',').all(|label| line.contains(label));
        text.lines().filter(of_metric).find(has_labels)?.rsplit_once(' ')?.1.parse().ok()
    };
    let seen = || {
        let text = envoy.admin().prometheus();
        let found = expected.map(|(labels, _)| metric(&text, labels));
        (found == expected.map(|(_, count)| Some(count))).then_some(())
    };
    if poll::until("metrics", Duration::from_secs(5), seen).is_err() {
        let text = envoy.admin().prometheus();
        let lines: Vec<_> = text.lines().filter(|line| line.contains("lockkeeper") && !line.ends_with(" 0")).collect();
        panic!("expected {expected:#?}, found:\n{}", lines.join("\n"));
    }
    let text = envoy.admin().prometheus();
    for name in [
        "lockkeeper_store_latency_us_bucket{le=\"1000\"}",
        "lockkeeper_breakers_open{",
        "lockkeeper_pipe_events{",
        "lockkeeper_store_calls{",
    ] {
        assert!(text.contains(name), "no {name} in:\n{text}");
    }
}
