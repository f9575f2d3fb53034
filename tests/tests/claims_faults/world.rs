//! One Redis, an upstream that does as it is told, and Envoys between them: what every test here starts from.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::origin::{self, Behaviour, Origin};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, poll};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Far above what the machine takes under load.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// The shortest lease that there is.
pub const LEASE: Duration = Duration::from_secs(1);

/// The servers of one test.
pub struct World {
    pub redis: Redis,
    pub origin: Origin,
}

impl World {
    /// A Redis, and an upstream that answers each run by its number.
    pub fn start() -> World {
        World::start_with(origin::numbered())
    }

    /// A Redis, and an upstream that behaves.
    pub fn start_with(behaviour: Behaviour) -> World {
        let redis = Redis::start().expect("Redis starts");
        let origin = Origin::start(behaviour).expect("the upstream starts");
        World { redis, origin }
    }

    /// An Envoy by these members of `idempotency`.
    pub fn envoy(&self, more: Value) -> Envoy {
        self.envoy_with(more, |config| config)
    }

    /// An Envoy by a changed configuration.
    pub fn envoy_with(&self, more: Value, change: impl FnOnce(EnvoyConfig) -> EnvoyConfig) -> Envoy {
        let config = change(config(more).redis(self.redis.address()).upstream(self.origin.address()));
        Envoy::start(&config).expect("Envoy starts")
    }

    /// An Envoy whose store is elsewhere.
    pub fn envoy_at(&self, store: SocketAddr, more: Value) -> Envoy {
        self.envoy_with(more, |config| config.redis(store))
    }

    /// The only record, by field; empty when there is none.
    pub fn record(&self) -> HashMap<String, String> {
        let mut connection = self.redis.connection();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*:r").query(&mut connection).expect("Redis answers");
        assert!(keys.len() < 2, "{keys:?}");
        let fields = keys.first().map(|key| redis::cmd("HGETALL").arg(key).query(&mut connection));
        fields.map_or_else(HashMap::new, |fields| fields.expect("a record is a hash"))
    }

    /// The state of the only record: R, D or S; `None` when there is none.
    pub fn state(&self) -> Option<String> {
        self.record().remove("s")
    }

    /// Waits until the record is in that state.
    pub fn await_state(&self, state: Option<&str>) {
        let is_there = || (self.state().as_deref() == state).then_some(());
        if let Err(error) = poll::until(&format!("the record is in state {state:?}"), Duration::from_secs(5), is_there)
        {
            panic!("{error:#}: {:?}", self.record());
        }
    }

    /// Waits until that many requests have reached the upstream.
    pub fn await_runs(&self, runs: usize) {
        let are_there = || (self.origin.count() >= runs).then_some(());
        poll::until("the upstream is asked", Duration::from_secs(5), are_there).expect("the upstream is asked");
    }
}

/// The configuration that all tests here start from, without addresses.
pub fn config(more: Value) -> EnvoyConfig {
    EnvoyConfig::shipped().reads_bodies().without_access_log().deadline(DEADLINE).policy(policy(more))
}

/// A policy file of claims alone: strict, with the shortest lease, with these further members of `idempotency`.
pub fn policy(more: Value) -> Value {
    let mut rules = json!({
        "scope": ["header:authorization"], "on_unknown": "reject", "replay_limit": false, "lease": "1s",
        "fingerprint": { "hold_limit": false }
    });
    rules.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({ "version": 1, "policies": { "payments": { "idempotency": rules } }, "default_policy": "payments" })
}

/// A payment of one client.
pub fn payment(key: &str) -> Request {
    Request::new("POST", "/payments")
        .header("authorization", "Bearer a")
        .header("idempotency-key", key)
        .body("{\"amount\":1}")
}

/// The same payment to the same host as bytes, for clients that go away.
pub fn payment_bytes(key: &str) -> Vec<u8> {
    let body = "{\"amount\":1}";
    format!(
        "POST /payments HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer a\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The answer to a payment.
pub fn pay(envoy: &Envoy, key: &str) -> Response {
    envoy.client().send(&payment(key)).expect("an answer")
}

/// What the answer to a duplicate says: a run's own answer, a replay, or a word of the problem.
pub fn told(response: &Response) -> String {
    if response.header("idempotent-replayed").is_some() {
        return format!("replayed {}", response.status);
    }
    let problem: Option<Value> = serde_json::from_str(&response.body).ok();
    let code = problem.as_ref().and_then(|problem| problem["code"].as_str());
    code.map_or_else(|| response.status.to_string(), |code| format!("{} {code}", response.status))
}

/// Sum of the counters whose names contain this.
pub fn counted(envoy: &Envoy, name: &str) -> u64 {
    envoy.admin().stats().iter().filter(|(known, _)| known.contains(name)).map(|(_, count)| count).sum()
}

/// Waits until a counter has reached a value: filters report theirs with the tick.
pub fn await_counted(envoy: &Envoy, name: &str, least: u64) {
    let is_there = || (counted(envoy, name) >= least).then_some(());
    poll::until(name, Duration::from_secs(5), is_there).expect("the counter rises");
}
