//! One Redis, an origin whose answers tests write, and as many Workers before it as they ask for.

use lockkeeper_tests::http::{Client, Request, Response};
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, RestFront, ScriptedUpstream, Workerd, WorkerdConfig};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Far above what the machine takes under load.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// The servers of one test.
pub struct World {
    pub redis: Redis,
    front: RestFront,
    pub origin: ScriptedUpstream,
    policy: Value,
}

impl World {
    /// By a whole policy file.
    pub fn start(policy: Value) -> World {
        World::start_on(Redis::start().expect("Redis starts"), policy)
    }

    /// The same with a Redis of the test's own.
    pub fn start_on(redis: Redis, policy: Value) -> World {
        let front = RestFront::start(redis.address()).expect("a loopback port is free");
        let origin = ScriptedUpstream::start().expect("a loopback port is free");
        World { redis, front, origin, policy }
    }

    /// The configuration of a Worker.
    pub fn config(&self, transport: Transport) -> WorkerdConfig {
        let store = if transport == Transport::Rest { self.front.address() } else { self.redis.address() };
        self.config_to(transport, store)
    }

    /// The same with another way to the store.
    pub fn config_to(&self, transport: Transport, store: SocketAddr) -> WorkerdConfig {
        let config = WorkerdConfig::built().store(transport, store).deadline(DEADLINE);
        config.origin(self.origin.address()).policy(&self.policy)
    }

    /// A Worker whose store is reached by a Durable Object.
    pub fn worker(&self) -> Workerd {
        start(&self.config(Transport::DurableObject))
    }

    /// An Envoy that shares store and policy.
    pub fn envoy(&self) -> Envoy {
        let config = EnvoyConfig::shipped().reads_bodies().redis(self.redis.address()).without_access_log();
        let config = config.upstream(self.origin.address()).policy(self.policy.clone()).deadline(DEADLINE);
        Envoy::start(&config).expect("Envoy starts")
    }

    /// What the store holds of the only record.
    pub fn record(&self, field: &str) -> String {
        let mut redis = self.redis.connection();
        let names: Vec<String> = redis::cmd("KEYS").arg("*:r").query(&mut redis).expect("Redis answers");
        let [name] = &names[..] else { panic!("one record: {names:?}") };
        let value: Option<String> = redis::cmd("HGET").arg(name).arg(field).query(&mut redis).expect("Redis answers");
        value.unwrap_or_default()
    }

    /// How many records the store holds in that state.
    pub fn records(&self, state: &str) -> usize {
        let mut redis = self.redis.connection();
        let names: Vec<String> = redis::cmd("KEYS").arg("*:r").query(&mut redis).expect("Redis answers");
        let states =
            names.iter().map(|name| redis::cmd("HGET").arg(name).arg("s").query(&mut redis).unwrap_or_default());
        states.filter(|found: &String| found == state).count()
    }

    /// How many keys the store holds.
    pub fn keys(&self) -> usize {
        redis::cmd("DBSIZE").query(&mut self.redis.connection()).expect("Redis answers")
    }
}

pub fn start(config: &WorkerdConfig) -> Workerd {
    Workerd::start(config).expect("workerd starts")
}

/// The answer to a request.
pub fn send(server: SocketAddr, request: &Request) -> Response {
    Client::new(server).send(request).expect("an answer")
}

/// A policy file whose default policy has only this.
pub fn policy(members: Value) -> Value {
    json!({ "version": 1, "policies": { "payments": members }, "default_policy": "payments" })
}

/// Keys of the header `authorization`, at most once, with these further members.
pub fn keyed(more: Value) -> Value {
    let mut rules = json!({ "scope": ["header:authorization"], "on_unknown": "reject", "replay_limit": false,
                            "fingerprint": { "hold_limit": false } });
    rules.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    policy(json!({ "idempotency": rules }))
}

/// A payment of one client.
pub fn payment(key: &str, body: &str) -> Request {
    Request::new("POST", "/payments").header("authorization", "Bearer a").header("idempotency-key", key).body(body)
}

/// Whether it is the answer of the request's own run.
pub fn is_run(answer: &Response) -> bool {
    answer.status == 200 && answer.header("idempotent-replayed").is_none()
}

/// Whether it is what was kept of an earlier run.
pub fn is_replay(answer: &Response) -> bool {
    answer.header("idempotent-replayed") == Some("true")
}

/// Status and `code` of an answer of ours.
pub fn problem(answer: &Response) -> (u16, String) {
    let problem: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("no problem: {answer:?}"));
    (answer.status, problem["code"].as_str().unwrap_or_default().to_owned())
}

/// Status and `code` that an answer of ours should have.
pub fn of(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// What `printf hello | gzip -n` writes.
pub const HELLO_GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\x07\x00\x86\xa6\x10\x36\x05\x00\x00\x00";

/// The content of an answer, whatever its coding.
pub fn content(answer: &Response) -> Vec<u8> {
    if answer.header("content-encoding") != Some("gzip") {
        return answer.content.clone();
    }
    // A header without fields, and a checksum with a length behind.
    let deflated = answer.content.get(10..answer.content.len() - 8).unwrap_or_else(|| panic!("no gzip: {answer:?}"));
    miniz_oxide::inflate::decompress_to_vec(deflated).unwrap_or_else(|error| panic!("no gzip ({error}): {answer:?}"))
}
