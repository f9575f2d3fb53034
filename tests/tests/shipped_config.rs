//! The config and the policy file that users copy: they agree, and the core loads them.

use lockkeeper_core::host_config::{HostConfig, PluginConfig};
use lockkeeper_tests::{EnvoyConfig, paths};
use serde_json::Value;

fn shipped_policy() -> Value {
    let text = std::fs::read_to_string(paths::workspace().join("envoy/policy.json")).expect("envoy/policy.json can be read");
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
    assert_eq!(names, ["api", "login"]);
    assert_eq!(loaded.host, HostConfig::default(), "what the shipped config spells out is the default");
}
