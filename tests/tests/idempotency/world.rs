//! One Envoy, one Redis and an upstream that counts: what every test here starts from.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, Upstream};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Far above what the machine takes under load.
pub const DEADLINE: &str = "2s";

/// The servers of one test.
pub struct World {
    pub redis: Redis,
    pub envoy: Envoy,
    pub upstream: Upstream,
}

impl World {
    /// Payments of the header `authorization`, by these further members of `idempotency`.
    pub fn start(more: Value) -> World {
        World::start_with(policy(idempotency(more)), |config| config)
    }

    /// By a whole policy file, and a changed configuration.
    pub fn start_with(policy: Value, change: impl Fn(EnvoyConfig) -> EnvoyConfig) -> World {
        let redis = Redis::start().expect("Redis starts");
        let upstream = Upstream::start().expect("the upstream starts");
        let envoy = envoy(&policy, redis.address(), upstream.address(), change);
        World { redis, envoy, upstream }
    }

    /// The answer to a request.
    pub fn send(&self, request: &Request) -> Response {
        self.envoy.client().send(request).expect("an answer")
    }
}

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
