//! A Redis Cluster behind the pipe, which is not supported: no request is answered by anything but its failure mode, and
//! the log says what is wrong.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, poll, ports};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const SLOTS: [[u16; 2]; 2] = [[0, 8_191], [8_192, 16_383]];
const USERS: usize = 40;

/// Two nodes with half of the slots each.
fn cluster() -> [Redis; 2] {
    let bus = [ports::free(), ports::free()].map(|address| address.port().to_string());
    let nodes = [0, 1].map(|node: usize| {
        let options = [("cluster-enabled", "yes"), ("cluster-port", bus[node].as_str())];
        Redis::start_with(&options).expect("Redis starts as a node of a cluster")
    });
    for (node, [first, last]) in nodes.iter().zip(SLOTS) {
        redis::cmd("CLUSTER")
            .arg("ADDSLOTSRANGE")
            .arg(first)
            .arg(last)
            .exec(&mut node.connection())
            .expect("free slots");
    }
    let (other, mut admin) = (nodes[1].address(), nodes[0].connection());
    let meet = ["MEET", &other.ip().to_string(), &other.port().to_string(), &bus[1]];
    redis::cmd("CLUSTER").arg(&meet).exec(&mut admin).expect("a node to meet");
    poll::until("the nodes know each other", Duration::from_secs(20), || {
        let is_whole = |node: &Redis| {
            let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut node.connection()).ok()?;
            info.contains("cluster_state:ok").then_some(())
        };
        nodes.iter().map(is_whole).collect::<Option<Vec<()>>>()
    })
    .expect("a cluster");
    nodes
}

fn limit(name: &str, key: &str) -> Value {
    json!({ "name": name, "algorithm": "fixed_window", "limit": 1_000, "window": "1d", "key": [key] })
}

/// A gateway that asks one node only, with `limits`; without the store nobody passes.
fn start(node: &Redis, limits: &[Value]) -> Envoy {
    let policy = json!({ "version": 1, "default_policy": "api",
        "policies": { "api": { "limits": limits, "limits_on_store_failure": "deny" } } });
    let config = EnvoyConfig::shipped().policy(policy).host(json!({ "deadline": "500ms" })).concurrency(1);
    Envoy::start(&config.redis(node.address()).direct_response().without_access_log()).expect("Envoy starts")
}

/// The statuses of one request for each user.
fn statuses(envoy: &Envoy) -> BTreeSet<u16> {
    let client = envoy.client();
    let status =
        |user| client.send(&Request::get("/").header("x-user", format!("user {user}"))).expect("an answer").status;
    (0..USERS).map(status).collect()
}

fn assert_told(envoy: &Envoy) {
    let told = || envoy.process().log().contains("it is a Redis Cluster, which is not supported").then_some(());
    poll::until("the log", Duration::from_secs(5), told).unwrap_or_else(|_| panic!("{}", envoy.process().log()));
    let refused = || (envoy.admin().stat("wasmcustom.lockkeeper_store_calls.outcome.topology") > 0).then_some(());
    poll::until("the metric", Duration::from_secs(5), refused).expect("refusals are counted");
}

#[test]
fn sto_03_a_cluster_decides_what_its_node_holds_refuses_the_rest_and_is_named_in_the_log() {
    let [node, _other] = cluster();
    // Of forty users, some have their keys on either node.
    let envoy = start(&node, &[limit("per-user", "header:x-user")]);
    assert_eq!(statuses(&envoy), BTreeSet::from([200, 503]), "by the store, and by the failure mode");
    assert_told(&envoy);
    // Two keys of one decision are in one slot once in 16,384 times.
    let envoy = start(&node, &[limit("per-user", "header:x-user"), limit("all", "constant:all")]);
    assert_eq!(statuses(&envoy), BTreeSet::from([503]));
    assert_told(&envoy);
}
