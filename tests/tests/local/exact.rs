//! The workers of one instance admit exactly the limit, together.

use crate::{config, per_user, request};
use lockkeeper_tests::Envoy;
use lockkeeper_tests::raw::flood;
use serde_json::{Value, json};

const REQUESTS: usize = 2_000;

fn algorithms(limit: u64) -> [(&'static str, Value); 4] {
    [
        ("bucket", json!({ "algorithm": "token_bucket", "capacity": limit, "refill": "1/1h" })),
        ("fixed", json!({ "algorithm": "fixed_window", "limit": limit, "window": "1d" })),
        ("log", json!({ "algorithm": "sliding_window", "limit": limit, "window": "1h" })),
        ("counter", json!({ "algorithm": "sliding_window_counter", "limit": limit, "window": "1d" })),
    ]
    .map(|(name, numbers)| (name, per_user(numbers)))
}

fn assert_admitted(envoy: &Envoy, name: &str, connections: usize, admitted: usize) {
    let user = format!("on-{connections}");
    let statuses = flood(envoy.address(), connections, REQUESTS, |_| request(&format!("/{name}"), &user));
    println!("{name} on {connections} connections: {statuses:?}");
    let expected = [(200, admitted), (429, REQUESTS - admitted)];
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), expected, "{name} on {connections} connections");
}

#[test]
fn two_and_four_workers_admit_exactly_the_limit() {
    let limits = algorithms(50);
    for workers in [2, 4] {
        let envoy = Envoy::start(&config(&limits).concurrency(workers)).expect("Envoy starts");
        for (name, _) in &limits {
            for connections in [64, 1] {
                assert_admitted(&envoy, name, connections, 50);
            }
        }
    }
}

#[test]
fn an_instance_with_a_share_admits_its_share() {
    let limits = algorithms(100);
    let config = config(&limits).concurrency(2).host(json!({ "local": { "share": 0.25 } }));
    let gateways = [(); 2].map(|()| Envoy::start(&config).expect("Envoy starts"));
    for (name, _) in &limits {
        gateways.iter().for_each(|envoy| assert_admitted(envoy, name, 16, 25));
    }
}
