//! The policies, the Envoys and the payments that every test here starts from.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::{Envoy, EnvoyConfig};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Far above what the machine takes under load.
pub const DEADLINE: &str = "2s";

/// One Envoy of several that share a store.
pub fn envoy(
    policy: &Value,
    redis: SocketAddr,
    upstream: SocketAddr,
    change: impl Fn(EnvoyConfig) -> EnvoyConfig,
) -> Envoy {
    let config = EnvoyConfig::shipped().reads_bodies().redis(redis).upstream(upstream).without_access_log();
    let config = config.policy(policy.clone()).host(json!({ "deadline": DEADLINE }));
    Envoy::start(&change(config)).expect("Envoy starts")
}

/// The `idempotency` member of a policy: the strict choices, with these further members.
pub fn idempotency(more: Value) -> Value {
    let mut rules = json!({ "scope": ["header:authorization"], "on_unknown": "reject", "replay_limit": false });
    rules.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    rules
}

/// A policy file whose default policy has only this.
pub fn policy(idempotency: Value) -> Value {
    json!({ "version": 1, "policies": { "payments": { "idempotency": idempotency } }, "default_policy": "payments" })
}

/// A payment of one client.
pub fn payment(key: &str, body: &str) -> Request {
    Request::new("POST", "/payments").header("authorization", "Bearer a").header("idempotency-key", key).body(body)
}
