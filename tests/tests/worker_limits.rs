//! The Worker in real workerd limits by a real Redis, over each transport, and shares its counters with Envoy.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::load::{self, Until};
use lockkeeper_tests::stub_store::{self, StubStore};
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, RestFront, SlowLink, Upstream, Workerd, WorkerdConfig};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Long: these tests are about decisions, on machines under load.
const DEADLINE: Duration = Duration::from_secs(5);

/// A bucket of three for each user, which refills too slowly to matter.
fn three_each() -> Value {
    let limit = json!({ "name": "each", "algorithm": "token_bucket", "capacity": 3, "refill": "1/1h",
                        "key": ["header:x-user"], "on_missing_key": "reject" });
    json!({ "version": 1, "default_policy": "p",
            "policies": { "p": { "limits": [limit], "limits_on_store_failure": "deny" } } })
}

struct World {
    redis: Redis,
    front: RestFront,
    upstream: Upstream,
}

impl World {
    fn start() -> World {
        let redis = Redis::start().expect("Redis starts");
        let front = RestFront::start(redis.address()).expect("a loopback port is free");
        World { front, redis, upstream: Upstream::start().expect("a loopback port is free") }
    }

    fn store(&self, transport: Transport) -> SocketAddr {
        if transport == Transport::Rest { self.front.address() } else { self.redis.address() }
    }

    fn config(&self, transport: Transport, policy: &Value) -> WorkerdConfig {
        let config = WorkerdConfig::built().store(transport, self.store(transport)).deadline(DEADLINE);
        config.origin(self.upstream.address()).policy(policy)
    }
}

fn ask(workerd: &Workerd, user: &str) -> lockkeeper_tests::http::Response {
    workerd.client().send(&Request::get("/orders?x=1").header("x-user", user)).expect("workerd answers")
}

#[test]
fn each_transport_admits_the_capacity_and_denies_with_the_fields() {
    let world = World::start();
    for transport in Transport::ALL {
        println!("{transport:?}");
        let workerd = Workerd::start(&world.config(transport, &three_each())).expect("workerd starts");
        let user = transport.word();
        for left in (0..3).rev() {
            let answer = ask(&workerd, user);
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(
                answer.header("ratelimit").is_some_and(|field| field.contains(&format!(";r={left};"))),
                "{answer:?}"
            );
        }
        let denied = ask(&workerd, user);
        assert_eq!(denied.status, 429, "{denied:?}");
        assert_eq!(denied.header("content-type"), Some("application/problem+json"));
        assert!(denied.header("retry-after").is_some());
        let seen = world.upstream.take();
        assert_eq!(seen.len(), 3, "a denied request does not reach the origin");
        assert_eq!(seen[0]["path"], "/orders?x=1");
        assert_eq!(ask(&workerd, &format!("{user}-other")).status, 200);
        world.upstream.take();
    }
}

#[test]
fn a_decision_is_one_command_and_an_object_keeps_its_connection() {
    const DECISIONS: u64 = 50;
    for (transport, connections) in [(Transport::DurableObject, 1), (Transport::Rest, 1), (Transport::Tcp, DECISIONS)] {
        let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
        let front = RestFront::start(stub.address()).expect("a loopback port is free");
        let world = World::start();
        let store = if transport == Transport::Rest { front.address() } else { stub.address() };
        let config = world.config(transport, &three_each()).store(transport, store);
        let workerd = Workerd::start(&config).expect("workerd starts");
        for number in 0..DECISIONS {
            assert_eq!(ask(&workerd, &number.to_string()).status, 200);
        }
        assert_eq!((stub.commands(), stub.connections()), (DECISIONS, connections), "{transport:?}");
    }
}

#[test]
fn two_workers_and_an_envoy_share_a_sliding_window_exactly() {
    let world = World::start();
    let limit =
        json!({ "name": "all", "algorithm": "sliding_window", "limit": 100, "window": "10m", "key": ["constant:all"] });
    let policy = json!({ "version": 1, "default_policy": "p",
                         "policies": { "p": { "limits": [limit], "limits_on_store_failure": "deny" } } });
    // At this distance from the store none of them is much faster than the others.
    let link = SlowLink::start(world.redis.address(), Duration::from_millis(10)).expect("a loopback port is free");
    let workers = [Transport::DurableObject, Transport::Tcp].map(|transport| {
        Workerd::start(&world.config(transport, &policy).store(transport, link.address())).expect("workerd starts")
    });
    let envoy = EnvoyConfig::shipped().redis(link.address()).direct_response().policy(policy).deadline(DEADLINE);
    let envoy = Envoy::start(&envoy).expect("Envoy starts");
    let servers = [workers[0].address(), workers[1].address(), envoy.address()];
    let samples: Vec<_> = std::thread::scope(|scope| {
        let loads = servers
            .map(|server| scope.spawn(move || load::run(server, 4, Until::Requests(100), |_| Request::get("/"))));
        loads.map(|load| load.join().expect("the load does not panic")).into_iter().collect()
    });
    let admitted: Vec<_> = samples.iter().map(|samples| load::count(samples, 200)).collect();
    let denied: usize = samples.iter().map(|samples| load::count(samples, 429)).sum();
    println!("admitted by each: {admitted:?}");
    assert!(admitted.iter().all(|count| *count > 0), "{admitted:?}: not shared");
    assert_eq!((admitted.iter().sum::<usize>(), denied), (100, 200));
}
