//! Two Envoys that share a Redis, and an upstream that counts: what every test here starts from.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, Upstream, poll, upstream};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Long enough that a store that is well decides, on machines under load.
pub const DEADLINE: Duration = Duration::from_secs(1);
/// How long the gateways may take to notice what became of the store.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// The header that tells who decided without the store.
pub const DEGRADED: &str = "x-decided-by";

/// The servers of one test.
pub struct World {
    pub redis: Redis,
    pub upstream: Upstream,
    policy: Value,
}

impl World {
    /// Payments, by these further members of `idempotency`.
    pub fn start(more: Value) -> World {
        let mut rules = json!({ "scope": ["header:authorization"], "on_unknown": "reject", "replay_limit": false });
        rules["fingerprint"] = json!({ "hold_limit": false });
        rules.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        World::of(json!({ "idempotency": rules }))
    }

    /// By one whole policy.
    pub fn of(policy: Value) -> World {
        let policy = json!({ "version": 1, "policies": { "payments": policy }, "default_policy": "payments" });
        let redis = Redis::start().expect("Redis starts");
        let upstream = Upstream::start().expect("the upstream starts");
        World { redis, upstream, policy }
    }

    /// One Envoy, with two workers and these members of `local`.
    pub fn envoy(&self, local: Value) -> Envoy {
        let config = EnvoyConfig::shipped().reads_bodies().redis(self.redis.address());
        let config = config.upstream(self.upstream.address()).policy(self.policy.clone()).without_access_log();
        let config = config.concurrency(2).deadline(DEADLINE);
        let config = config.host(json!({ "degraded_header": DEGRADED, "local": local }));
        Envoy::start(&config).expect("Envoy starts")
    }
}

/// What makes a policy protect by itself.
pub fn by_instance() -> Value {
    json!({ "on_store_failure": "local", "per_instance_protection": true })
}

/// A payment of one client.
pub fn payment(key: &str) -> Request {
    Request::new("POST", "/payments").header("authorization", "Bearer a").header("idempotency-key", key).body("{}")
}

/// The same, taking its time at the upstream.
pub fn slow_payment(key: &str, delay: Duration) -> Request {
    payment(key).header(upstream::DELAY_MS, delay.as_millis().to_string())
}

/// The answer to a request.
pub fn send(envoy: &Envoy, request: &Request) -> Response {
    envoy.client().send(request).expect("an answer")
}

/// Who decided an answer, if not the store.
pub fn decider(response: &Response) -> Option<&str> {
    response.header(DEGRADED)
}

/// Waits until all workers decide as the store's state has it: by it, or by `decider`. The probes' keys are their own.
pub fn wait_for(envoy: &Envoy, decider: Option<&str>) {
    let mut number = 0;
    let mut is_so = || {
        let client = || envoy.client();
        // Each probe on a connection of its own, so that both workers get some.
        let answers: Vec<_> = (0..16)
            .map(|_| {
                number += 1;
                client().send(&payment(&format!("probe {number} {}", envoy.address().port()).replace(' ', "-")))
            })
            .collect();
        let is_by = |answer: &Response| answer.status == 200 && answer.header(DEGRADED) == decider;
        answers.iter().all(|answer| answer.as_ref().is_ok_and(is_by)).then_some(())
    };
    poll::until("the decider changes", PATIENCE, &mut is_so).expect("the gateway follows the store");
}

/// Waits until a worker's metric has at least this value.
pub fn wait_for_metric(envoy: &Envoy, name: &str, at_least: u64) {
    let name = format!("wasmcustom.{name}");
    let reached = || (envoy.admin().stat(&name) >= at_least).then_some(());
    poll::until(&name, PATIENCE, reached).expect("the metric follows");
}

/// The metric of decisions of the policy as a whole.
pub fn decisions(outcome: &str, decided_by: &str) -> String {
    format!("lockkeeper_decisions.policy.payments.limit.all.outcome.{outcome}.decided_by.{decided_by}")
}

/// A request in the background, and the address it goes to.
pub fn in_background(address: SocketAddr, request: Request) -> std::thread::JoinHandle<Response> {
    std::thread::spawn(move || lockkeeper_tests::http::Client::new(address).send(&request).expect("an answer"))
}
