//! Two Envoys, one Redis, and an upstream that holds each request until its test lets it go.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{Envoy, EnvoyConfig, GatedUpstream, Redis, poll};
use redis::Commands;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

/// Far above what the machine takes under load.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// For what happens soon, on a machine under load.
pub const SOON: Duration = Duration::from_secs(10);

/// The servers of one test.
pub struct World {
    pub redis: Redis,
    pub upstream: GatedUpstream,
    pub gateways: [Envoy; 2],
}

/// A record as it stands in the store.
pub type Record = BTreeMap<String, String>;

impl World {
    /// Two gateways whose default policy has these members.
    pub fn start(members: Value) -> World {
        World::start_with(members, |config| config)
    }

    /// The same with a changed configuration.
    pub fn start_with(members: Value, change: impl Fn(EnvoyConfig) -> EnvoyConfig) -> World {
        let redis = Redis::start().expect("Redis starts");
        let upstream = GatedUpstream::start().expect("a loopback port is free");
        let config = config(&members, redis.address(), upstream.address());
        let gateways = [(); 2].map(|()| Envoy::start(&change(config.clone())).expect("Envoy starts"));
        World { redis, upstream, gateways }
    }

    /// The answer of a gateway to a request.
    pub fn send(&self, gateway: usize, request: &Request) -> Response {
        self.gateways[gateway].client().send(request).expect("an answer")
    }

    /// The same in the background.
    pub fn begin(&self, gateway: usize, request: &Request) -> JoinHandle<Response> {
        let (client, request) = (self.gateways[gateway].client(), request.clone());
        std::thread::spawn(move || client.send(&request).expect("an answer"))
    }

    /// A request of a client that may go away: by dropping what this returns.
    pub fn begin_raw(&self, gateway: usize, path: &str) -> RawConnection {
        let mut connection = RawConnection::open(self.gateways[gateway].address()).expect("Envoy accepts");
        let request = format!("PUT {path} HTTP/1.1\r\nhost: api.example.com\r\ncontent-length: 0\r\n\r\n");
        connection.send(request.as_bytes()).expect("Envoy reads");
        connection
    }

    /// All keys that end so.
    pub fn keys(&self, ending: &str) -> Vec<String> {
        self.redis.connection().keys(format!("*{ending}")).expect("the keys")
    }

    /// The only record there is.
    pub fn record(&self) -> Record {
        let keys = self.keys("}:r");
        assert_eq!(keys.len(), 1, "records: {keys:?}");
        self.redis.connection().hgetall(&keys[0]).expect("a hash")
    }

    /// Waits until no record is left.
    pub fn free(&self) {
        poll::until("all records are given back", SOON, || self.keys("}:r").is_empty().then_some(())).expect("free");
    }

    /// How many slots are taken, whoever's they are.
    pub fn slots(&self) -> usize {
        let mut connection = self.redis.connection();
        self.slot_keys().iter().map(|key| connection.zcard::<_, usize>(key).expect("a sorted set")).sum()
    }

    /// Waits until so many are.
    pub fn await_slots(&self, count: usize) {
        poll::until(&format!("{count} slots are taken"), SOON, || (self.slots() == count).then_some(()))
            .unwrap_or_else(|error| panic!("{error}; {} are", self.slots()));
    }

    fn slot_keys(&self) -> Vec<String> {
        self.redis.connection().keys("*.concurrency:*").expect("the keys")
    }

    /// Waits until a gateway serves so many requests.
    pub fn await_active(&self, gateway: usize, count: u64) {
        let active = || self.gateways[gateway].admin().stat("http.ingress.downstream_rq_active");
        poll::until(&format!("the gateway serves {count} requests"), SOON, || (active() == count).then_some(()))
            .unwrap_or_else(|error| panic!("{error}, but {}", active()));
    }

    /// How often a gateway has asked the store, or what it has been told of leases: counters whose name has this.
    pub fn counted(&self, gateway: usize, name: &str) -> u64 {
        let stats = self.gateways[gateway].admin().stats();
        stats.iter().filter(|(known, _)| known.contains(name)).map(|(_, count)| count).sum()
    }

    /// Waits until such a counter stands so high.
    pub fn await_counted(&self, gateway: usize, name: &str, count: u64) {
        poll::until(&format!("{name} counts {count}"), SOON, || (self.counted(gateway, name) >= count).then_some(()))
            .unwrap_or_else(|error| panic!("{error}, but {}", self.counted(gateway, name)));
    }

    /// The store's time in microseconds.
    pub fn now_us(&self) -> u64 {
        let (seconds, us): (u64, u64) = redis::cmd("TIME").query(&mut self.redis.connection()).expect("a time");
        seconds * 1_000_000 + us
    }
}

/// A gateway whose default policy has these members.
pub fn config(members: &Value, redis: SocketAddr, upstream: SocketAddr) -> EnvoyConfig {
    let policy = json!({ "version": 1, "policies": { "p": members }, "default_policy": "p" });
    EnvoyConfig::shipped().redis(redis).upstream(upstream).without_access_log().policy(policy).deadline(DEADLINE)
}

/// A lock on the path, with these further members.
pub fn lock(more: Value) -> Value {
    let mut rules = json!({ "key": ["path"] });
    rules.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({ "lock": rules })
}

/// A change to the resource at a path.
pub fn put(path: &str) -> Request {
    Request::new("PUT", path)
}

/// The members of a problem.
pub fn problem(response: &Response) -> Value {
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{response:?}");
    serde_json::from_str(&response.body).expect("JSON")
}

/// Does something again until its answer has this status.
pub fn until_status(status: u16, mut send: impl FnMut() -> Response) -> Response {
    let what = format!("an answer with status {status}");
    poll::until(&what, SOON, || Some(send()).filter(|response| response.status == status)).expect("such an answer")
}
