//! `lockkeeper explain` and the filter agree: for generated requests, sent to a real Envoy in every spelling, the policy
//! in the access log and the keys in Redis are those that were explained.

use lockkeeper::document::Document;
use lockkeeper::explain::{Explanation, Values, explain};
use lockkeeper::request::{Request, RequestOptions};
use lockkeeper_core::engine::Engine;
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, poll};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const REQUESTS: usize = 500;
const SEED: u64 = 0x6c6f_636b_6b65_6570;

/// A policy that looks at every part of a request, with limits that never deny here.
fn policy() -> Value {
    let limit = |name: &str, algorithm: &str, key: &[&str], on_missing: &str| {
        let mut limit = json!({ "name": name, "algorithm": algorithm, "key": key, "on_missing_key": on_missing });
        let numbers = match algorithm {
            "token_bucket" => json!({ "capacity": 1000, "refill": "1/h" }),
            _ => json!({ "limit": 1000, "window": "1h" }),
        };
        limit.as_object_mut().unwrap().extend(numbers.as_object().unwrap().clone());
        limit
    };
    let bucket = |name: &str, key: &[&str]| limit(name, "token_bucket", key, "reject");
    json!({ "version": 1, "namespace": "explained",
        "client_address": { "ipv4_prefix": 24, "ipv6_prefix": 48 }, "block": ["2001:db8:1::/48"],
        "policies": {
            "default": { "limits": [bucket("address", &["client_address"])],
                "exempt": { "methods": ["PUT"], "client_addresses": ["198.51.100.0/24"] } },
            "login": { "limits": [
                bucket("address", &["client_address", "constant:login"]),
                limit("user", "fixed_window", &["header:x-user"], "skip") ] },
            "users": { "limits": [
                limit("user", "sliding_window", &["header:x-user", "method"], "reject"),
                limit("path", "sliding_window_counter", &["host", "path"], "reject") ] },
            "parts": { "limits": [
                limit("all", "fixed_window", &["path:id", "query:q", "cookie:sid", "route"], "skip"),
                { "name": "fallback", "algorithm": "fixed_window", "limit": 1000, "window": "1h",
                  "key": ["cookie:sid"], "on_missing_key": { "fallback": "client_address" } }] },
            "watched": { "limits": [{ "name": "watched", "algorithm": "fixed_window", "limit": 1000, "window": "1h",
                "key": ["header:x-user"], "enforce": false }] } },
        "routes": [
            { "match": { "path": "/v1/login", "methods": ["POST"] }, "policy": "login" },
            { "match": { "path": "/v1/users/*", "methods": ["GET"] }, "policies": ["default", "users"] },
            { "match": { "host": "*.example.com", "path": "/v1/*" }, "policy": "watched" },
            { "match": { "path": "/v1/users/{id}", "headers": { "x-user": "bob" } }, "policy": "parts" },
            { "match": { "host": "api.example.com", "path": "/v1/users/a" }, "policy": "login" } ],
        "default_policy": "default" })
}

/// A small generator of numbers: the same requests each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn one<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

fn request(dice: &mut Dice) -> RequestOptions {
    let path = match dice.below(4) {
        0 => dice
            .one(&["/v1/login", "//v1/login", "/v1/./login", "/v1/%6cogin", "/v1/x/../login?a=b", "/v1/login/"])
            .into(),
        1 => dice
            .one(&[
                "/v1/users/a",
                "/v1/users/%61",
                "/v1/users",
                "/v1/users//a?x&q=1",
                "/V1/users/a",
                "/v1/users/b?q=%31",
                "/v1/users/c%2f?q=2&q=3",
            ])
            .into(),
        _ => (0..=dice.below(5))
            .map(|_| {
                dice.one(&[
                    "/", "/v1", "/users", "/a", "/..", "/%2e", "/%2F", "/%zz", "/a%20b", "/%c3%A9", "?q=1", "/login",
                ])
            })
            .collect::<String>(),
    };
    let path = if path.starts_with('/') { path } else { format!("/{path}") };
    let host = dice.one(&[
        "api.example.com",
        "API.Example.com:80",
        "api.example.com.",
        "x.example.com",
        "other.org",
        "[::1]:8080",
    ]);
    let mut headers = vec![format!("host: {host}"), format!("x-forwarded-for: {}", peer(dice))];
    let user = |dice: &mut Dice| {
        format!("{}: {}", dice.one(&["x-user", "X-User"]), dice.one(&["bob", "alice", "", "a, b", "{}"]))
    };
    headers.extend((0..dice.below(3)).map(|_| user(dice)).collect::<Vec<_>>());
    headers.extend(
        (0..dice.below(2))
            .map(|_| format!("cookie: {}", dice.one(&["sid=1", "a=b; sid=2", "sid=", "x"])))
            .collect::<Vec<_>>(),
    );
    RequestOptions {
        method: dice.one(&["GET", "GET", "HEAD", "POST", "POST", "PUT", "OPTIONS"]).into(),
        url: path,
        peer: headers[1].strip_prefix("x-forwarded-for: ").map(str::to_owned),
        headers,
        metadata: Vec::new(),
        route_name: None,
        route_policy: None,
    }
}

fn peer(dice: &mut Dice) -> &'static str {
    dice.one(&[
        "192.0.2.1",
        "192.0.2.77",
        "198.51.100.3",
        "2001:db8::1",
        "2001:db8:0:1::1",
        "2001:DB8:1::1",
        "::ffff:192.0.2.9",
    ])
}

fn send(envoy: &Envoy, options: &RequestOptions) -> u16 {
    let mut connection = RawConnection::open(envoy.address()).unwrap();
    let lines: String = options.headers.iter().map(|header| format!("{header}\r\n")).collect();
    let request = format!("{} {} HTTP/1.1\r\n{lines}content-length: 0\r\n\r\n", options.method, options.url);
    connection.send(request.as_bytes()).unwrap();
    let response = if options.method == "HEAD" { connection.receive_head() } else { connection.receive() };
    response.unwrap_or_else(|error| panic!("{options:?}: {error:#}")).status
}

/// The keys that the filter has written since the last call.
fn take_keys(connection: &mut redis::Connection) -> BTreeSet<String> {
    let keys: BTreeSet<String> = redis::cmd("KEYS").arg("*").query(connection).unwrap();
    redis::cmd("FLUSHALL").query::<()>(connection).unwrap();
    keys.into_iter().filter(|key| !key.ends_with(":probe")).collect()
}

fn explained_keys(explanation: &Explanation) -> BTreeSet<String> {
    let limits = explanation.policy.iter().flat_map(|policy| &policy.limits);
    limits.filter_map(|limit| limit.store_key.clone()).collect()
}

#[test]
fn the_filter_does_what_explain_says() {
    let policy = policy();
    let document = Document { name: "policy.json".into(), text: policy.to_string() };
    let engine = Engine::new(document.load().unwrap_or_else(|findings| panic!("{findings:?}")));
    let redis = Redis::start().unwrap();
    let mut config = EnvoyConfig::shipped().policy(policy).redis(redis.address()).direct_response();
    config = config.deadline(Duration::from_secs(5));
    // The client is the last hop of x-forwarded-for, so that it can be any address.
    config.connection_manager()["xff_num_trusted_hops"] = json!(1);
    let envoy = Envoy::start(&config).unwrap();
    let mut store = redis.connection();
    poll::until("the store decides", Duration::from_secs(10), || {
        envoy.client().get("/");
        (!take_keys(&mut store).is_empty()).then_some(())
    })
    .unwrap();
    let logged_before = logged(&envoy, 1).len();

    let mut dice = Dice(SEED);
    let (mut expected_policies, mut seen) = (Vec::new(), BTreeSet::new());
    for number in 0..REQUESTS {
        let options = request(&mut dice);
        let explanation = explain(&engine, &Request::new(&options).unwrap(), Values::Shown);
        let status = send(&envoy, &options);
        assert_eq!(take_keys(&mut store), explained_keys(&explanation), "request {number}: {options:?} got {status}");
        let policy = explanation.policy.and_then(|policy| policy.logged_as);
        seen.insert((policy.clone(), status));
        expected_policies.push((options, policy));
    }
    let log = logged(&envoy, logged_before + REQUESTS);
    for (number, ((options, policy), line)) in expected_policies.iter().zip(&log[logged_before..]).enumerate() {
        assert_eq!(line["policy"].as_str(), policy.as_deref(), "request {number}: {options:?} is logged as {line}");
    }
    println!("policies and statuses: {seen:?}");
    let policies: BTreeSet<_> = seen.iter().filter_map(|(policy, _)| policy.as_deref()).collect();
    assert_eq!(policies.len(), 5, "the requests reach every policy: {seen:?}");
    assert!(seen.contains(&(Some("users".into()), 400)), "some lack a part of a key: {seen:?}");
}

/// The access log once it has this many lines.
fn logged(envoy: &Envoy, lines: usize) -> Vec<Value> {
    let whole = || Some(envoy.access_log()).filter(|log| log.len() >= lines);
    poll::until("Envoy writes its access log", Duration::from_secs(10), whole).unwrap()
}
