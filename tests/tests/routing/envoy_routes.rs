//! Envoy's own routes choose a policy by their name or name it in their metadata.

use lockkeeper_tests::{Envoy, Redis, poll};
use serde_json::{Value, json};
use std::time::Duration;

use crate::{config, counted_by, get, limit};

fn policy() -> Value {
    let of = |name: &str| json!({ "limits": [limit(name, json!(["constant:all"]))] });
    json!({
        "version": 1,
        "policy_from_route_metadata": true,
        "policies": { "checkout": of("checkout"), "reports": of("reports"), "path": of("path"), "rest": of("rest") },
        "routes": [
            { "match": { "route_name": "checkout" }, "policy": "checkout" },
            { "match": { "path": "/named/*" }, "policy": "path" },
            { "match": { "path": "/by-path" }, "policy": "path" },
        ],
        "default_policy": "rest"
    })
}

fn route(prefix: &str, name: &str, policy: Option<Value>) -> Value {
    let answer = json!({ "status": 200, "body": { "inline_string": "ok\n" } });
    let mut route = json!({ "name": name, "match": { "prefix": prefix }, "direct_response": answer });
    if let Some(policy) = policy {
        route["metadata"] = json!({ "filter_metadata": { "lockkeeper": { "policy": policy } } });
    }
    route
}

#[test]
fn the_name_and_the_metadata_of_envoys_route_choose_the_policy_and_nonsense_gets_the_default_one() {
    let redis = Redis::start().expect("Redis starts");
    let mut config = config(&redis, &policy());
    config.connection_manager()["route_config"]["virtual_hosts"][0]["routes"] = json!([
        route("/named/checkout", "checkout", None),
        route("/named/metadata", "other", Some(json!("reports"))),
        route("/named/both", "checkout", Some(json!("reports"))),
        route("/unknown", "other", Some(json!("nobody"))),
        route("/number", "other", Some(json!(7))),
        route("/list", "other", Some(json!(["reports"]))),
        route("/object", "other", Some(json!({ "reports": true }))),
        route("/null", "other", Some(json!(null))),
        route("/", "", None),
    ]);
    let envoy = Envoy::start(&config).expect("Envoy starts");
    let rows = [
        ("/named/checkout", "checkout"),
        ("/named/metadata", "reports"),
        ("/named/both", "reports"),
        ("/named/neither", "path"),
        ("/by-path", "path"),
        ("/else", "rest"),
        ("/unknown", "rest"),
        ("/number", "rest"),
        ("/list", "rest"),
        ("/object", "rest"),
        ("/null", "rest"),
        ("/named/checkout", "checkout"),
    ];
    // The first request finds the pipe closed; it is decided all the same.
    for (target, policy) in rows {
        let response = get(&envoy, target, "");
        assert_eq!((response.status, counted_by(&response)), (200, Some(policy)), "{target}");
    }
    let events = "wasmcustom.lockkeeper_route_events.event.unknown_policy";
    let counted = poll::until("the unknown names are counted", Duration::from_secs(10), || {
        (envoy.admin().stat(events) >= 5).then(|| envoy.admin().stat(events))
    });
    assert_eq!(counted.expect("counted"), 5);
    let lines = envoy.process().log().matches("which the policy file does not have").count();
    assert!((1..5).contains(&lines), "{lines} lines in the log, which may hold one a second");
}
