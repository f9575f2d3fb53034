//! The config and the policy file that users copy: they agree, and the core loads them.

use lockkeeper_core::host_config::{HostConfig, PluginConfig};
use lockkeeper_tests::{Envoy, EnvoyConfig, paths};
use serde_json::{Value, json};

fn shipped_policy() -> Value {
    let text =
        std::fs::read_to_string(paths::workspace().join("envoy/policy.json")).expect("envoy/policy.json can be read");
    serde_json::from_str(&text).expect("envoy/policy.json is JSON")
}

/// Without asking whether the filter is built.
fn shipped_plugin_configuration() -> Value {
    EnvoyConfig::shipped_with(&paths::wasm_file("lockkeeper_filter.wasm")).plugin_configuration()
}

#[test]
fn the_policy_in_the_config_is_the_policy_file() {
    assert_eq!(shipped_plugin_configuration()["policy"], shipped_policy());
}

#[test]
fn the_core_loads_the_shipped_plugin_configuration() {
    let loaded = PluginConfig::from_json(shipped_plugin_configuration().to_string().as_bytes());
    let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<_> = loaded.policies.policies.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(names, ["api", "login", "payments"]);
    let default = HostConfig { reads_bodies: true, ..HostConfig::default() };
    assert_eq!(loaded.host, default, "what the shipped config spells out is the default, but for keys' bodies");
}

#[test]
fn envoy_accepts_the_shipped_config() {
    let output = Envoy::validate(&EnvoyConfig::shipped()).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert!(!output.contains("eprecated"), "{output}");
}

#[test]
fn envoy_refuses_a_broken_policy_and_names_each_place() {
    let mut policy = shipped_policy();
    policy["policies"]["api"]["limits"][0]["capacity"] = json!(0);
    policy["routes"][0]["match"]["path"] = json!(7);
    policy["colour"] = json!("red");
    let refusal =
        Envoy::validate(&EnvoyConfig::shipped().policy(policy)).expect_err("the policy is broken").to_string();
    for place in ["$.policy.policies.api.limits[0].capacity", "$.policy.routes[0].match.path", "$.policy.colour"] {
        assert!(refusal.contains(place), "no {place} in:\n{refusal}");
    }
}
