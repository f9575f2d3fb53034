//! Which policy and which identity a request has in a real Envoy: its routes and metadata, every spelling of a path, cookies,
//! queries, verified claims, the client's address behind proxies and before clients that lie; and how often a request counts.

mod address;
mod claims;
mod envoy_routes;
mod passes;
mod requests;

use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::identity::Attribute;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_tests::raw::{RawConnection, RawResponse};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis};
use serde_json::{Value, json};

/// A limit of a thousand a day.
fn limit(name: &str, key: Value) -> Value {
    json!({ "name": name, "algorithm": "fixed_window", "limit": 1000, "window": "1d", "key": key })
}

fn config(redis: &Redis, policy: &Value) -> EnvoyConfig {
    EnvoyConfig::shipped().redis(redis.address()).host(json!({ "deadline": "5s" })).policy(policy.clone())
}

fn exchange(envoy: &Envoy, request: &str) -> RawResponse {
    let mut connection = RawConnection::open(envoy.address()).expect("Envoy accepts");
    connection.exchange(request.as_bytes()).unwrap_or_else(|error| panic!("{request:?}: {error:#}"))
}

/// A GET with header lines, each ended by `\r\n`.
fn get(envoy: &Envoy, target: &str, lines: &str) -> RawResponse {
    exchange(envoy, &format!("GET {target} HTTP/1.1\r\nhost: example.com\r\n{lines}\r\n"))
}

/// The name of the only limit that counted the request.
fn counted_by(response: &RawResponse) -> Option<&str> {
    let field = response.head.lines().find_map(|line| line.strip_prefix("ratelimit: "))?;
    field.split('"').nth(1)
}

/// The one store key that Redis holds; forgets it.
fn take_key(redis: &Redis) -> String {
    let mut connection = redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*{*").query(&mut connection).expect("Redis lists its keys");
    redis::cmd("FLUSHALL").exec(&mut connection).expect("Redis forgets all");
    let [key] = keys.try_into().unwrap_or_else(|keys| panic!("not one key: {keys:?}"));
    key
}

/// The store key by the core alone, for a GET and these attributes.
fn expected_key(policy: &Value, target: &str, value: impl Fn(&Attribute) -> Option<Vec<u8>>) -> String {
    let policies = PolicySet::from_json(policy.to_string().as_bytes(), LoadOptions::default());
    let engine = Engine::new(policies.unwrap_or_else(|errors| panic!("the policy does not load:\n{errors}")));
    let selection = engine.select("GET", "example.com", target);
    let values: Vec<_> = engine.attributes(&selection).iter().map(value).collect();
    match engine.begin(&selection, &values) {
        Step::Call(call) => call.counted()[0].store_key.clone(),
        other => panic!("not counted: {other:?}"),
    }
}
