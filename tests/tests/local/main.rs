//! Without a store each Envoy limits by itself: one limiter for all its workers, of bounded memory, on a clock that does not step.

mod clock;
mod exact;
mod switching;
mod table;

use lockkeeper_tests::{EnvoyConfig, ports};
use serde_json::{Value, json};

/// A gateway whose store does not exist, with one limit for all requests to `/<name>` for each name.
fn config(limits: &[(&str, Value)]) -> EnvoyConfig {
    let policies: serde_json::Map<_, _> =
        limits.iter().map(|(name, limit)| (name.to_string(), json!({ "limits": [limit] }))).collect();
    let routes: Vec<_> =
        limits.iter().map(|(name, _)| json!({ "match": { "path": format!("/{name}") }, "policy": name })).collect();
    let policy = json!({ "version": 1, "policies": policies, "routes": routes });
    EnvoyConfig::shipped().policy(policy).redis(ports::free()).direct_response().without_access_log()
}

/// A limit keyed by the header `x-user`.
fn per_user(numbers: Value) -> Value {
    let mut limit = json!({ "name": "per-user", "key": ["header:x-user"] });
    let Value::Object(numbers) = numbers else { panic!("numbers of a limit are an object") };
    limit.as_object_mut().expect("a limit is an object").extend(numbers);
    limit
}

/// A request of a user, as bytes.
fn request(path: &str, user: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: example.com\r\nx-user: {user}\r\n\r\n").into_bytes()
}
