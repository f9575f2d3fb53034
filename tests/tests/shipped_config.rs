//! The config and the policy file that users copy: they agree, and the core loads them.

use lockkeeper_core::host_config::{HostConfig, PluginConfig};
use lockkeeper_tests::{Envoy, EnvoyConfig, paths};
use serde_json::{Value, json};
use std::path::Path;

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
    for config in [EnvoyConfig::shipped(), EnvoyConfig::redis_proxy()] {
        let output = Envoy::validate(&config).unwrap_or_else(|refusal| panic!("{refusal}"));
        assert!(!output.contains("eprecated"), "{output}");
    }
}

/// Nobody keeps two files alike by hand.
#[test]
fn the_two_configs_differ_in_the_way_to_redis_alone() {
    let rendered = |config: EnvoyConfig| config.render(Path::new("")).0;
    let (mut direct, mut proxied) = (rendered(EnvoyConfig::shipped()), rendered(EnvoyConfig::redis_proxy()));
    let resources = |config: &mut Value, kind: &str, differs: &[&str]| {
        let list = config["static_resources"][kind].take();
        let list = list.as_array().expect("a list").clone();
        list.into_iter().filter(|one| !differs.iter().any(|name| one["name"] == *name)).collect::<Vec<_>>()
    };
    for (kind, differs) in [("listeners", &["lockkeeper_redis"][..]), ("clusters", &["redis", "lockkeeper_store"])] {
        assert_eq!(resources(&mut direct, kind, differs), resources(&mut proxied, kind, differs), "{kind}");
    }
    assert!(proxied.as_object_mut().expect("an object").remove("bootstrap_extensions").is_some());
    assert_eq!(direct, proxied);
    let bridge = |mut config: EnvoyConfig| {
        let store = config.cluster("lockkeeper_store");
        [store["upstream_config"].clone(), store["typed_extension_protocol_options"].clone()]
    };
    assert_eq!(bridge(EnvoyConfig::shipped()), bridge(EnvoyConfig::redis_proxy()));
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
