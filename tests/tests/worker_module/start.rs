//! A limiter that is made before there is any request, when the platform gives neither time nor randomness.

use crate::world::{DEADLINE, from_client, send, with_script};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::{Redis, Workerd, WorkerdConfig, paths};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};

const EARLY: &str = r#"
import { env } from "cloudflare:workers";
import { Lockkeeper } from "./lockkeeper.js";
export { StoreConnection } from "./lockkeeper.js";

const limiter = await Lockkeeper.create(env.POLICY, JSON.parse(env.OPTIONS));
export default {
  async fetch(request) {
    const decision = await limiter.decide(request);
    return decision.response ?? decision.settle(new Response(decision.outcome));
  },
};
"#;

fn once_each() -> Value {
    let limit = json!({ "name": "once", "algorithm": "token_bucket", "capacity": 1, "refill": "1/1d", "key": ["client_address"] });
    json!({ "version": 1, "policies": { "p": { "limits": [limit] } }, "default_policy": "p" })
}

fn start(store: SocketAddr) -> Workerd {
    let directory = with_script(&paths::built_worker(paths::worker()), EARLY);
    let store = json!({ "url": format!("redis://{store}"), "deadlineMs": DEADLINE.as_millis() });
    let config = WorkerdConfig::built_in(directory.path().to_owned()).policy(&once_each());
    let options = json!({ "store": store, "local": { "sets": 8 } });
    Workerd::start(&config.variable("OPTIONS", &options.to_string())).expect("workerd starts")
}

#[test]
fn it_decides_by_the_store() {
    let redis = Redis::start().expect("Redis starts");
    let workerd = start(redis.address());
    assert_eq!([(); 2].map(|()| send(&workerd, &from_client("/")).status), [200, 429]);
}

/// The sets of the isolate's own limiter fill, and who finds none free shares one allowance with the others: who that is
/// depends on the seed.
#[test]
fn nobody_can_tell_beforehand_which_clients_share_a_place_in_its_own_limiter() {
    let away = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let crowd = || {
        let workerd = start(away);
        let client = |number| Request::get("/").header("cf-connecting-ip", format!("192.0.2.{number}"));
        (1..=100).map(|number| send(&workerd, &client(number)).status).collect::<Vec<_>>()
    };
    let (one, other) = (crowd(), crowd());
    assert!([&one, &other].iter().all(|statuses| statuses.contains(&429)), "{one:?}, {other:?}");
    assert_ne!(one, other);
}
