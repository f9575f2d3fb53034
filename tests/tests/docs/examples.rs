//! Every JSON example is loaded as a gateway would load it. A fence is a whole policy file or a whole plugin
//! configuration; or `json fragment KIND`, which is put in its place in a file; or `json refused`, whose messages follow
//! in the next fence.

use lockkeeper_core::host_config::PluginConfig;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use serde_json::{Value, json};

use crate::markdown::{Fence, pages};

#[test]
fn every_example_loads() {
    let mut loaded = 0;
    for page in pages() {
        for fence in page.fences().iter().filter(|fence| is_json(fence) && fence.info != "json refused") {
            load(&document(fence)).unwrap_or_else(|errors| panic!("{} does not load:\n{errors}", fence.place));
            loaded += 1;
        }
    }
    assert!(loaded > 0, "there are no examples");
}

#[test]
fn every_refused_example_is_refused_with_the_messages_that_follow_it() {
    let mut refused = 0;
    for page in pages() {
        let fences = page.fences();
        for pair in fences.windows(2).filter(|pair| pair[0].info == "json refused") {
            let errors = load(&pair[0].text).expect_err(&pair[0].place);
            assert_eq!(errors, pair[1].text.trim_end(), "{}", pair[1].place);
            refused += 1;
        }
    }
    assert!(refused > 0, "there is no refused example");
}

pub fn is_json(fence: &Fence) -> bool {
    fence.info.split(' ').next() == Some("json")
}

/// Loads a policy file or, when it has a member `policy`, a plugin configuration.
fn load(text: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let loaded = match value.get("policy") {
        Some(_) => PluginConfig::from_json(text.as_bytes()).map(drop),
        None => PolicySet::from_json(text.as_bytes(), LoadOptions::default()).map(drop),
    };
    loaded.map_err(|errors| errors.to_string())
}

/// The whole document that a fence is, or is a part of.
pub fn document(fence: &Fence) -> String {
    let Some(kind) = fence.info.strip_prefix("json fragment ") else {
        assert_eq!(fence.info, "json", "{}: what kind of example is it?", fence.place);
        return fence.text.clone();
    };
    let part: Value = serde_json::from_str(&fence.text).unwrap_or_else(|error| panic!("{}: {error}", fence.place));
    whole(kind, part).unwrap_or_else(|| panic!("{}: no kind of example", fence.place)).to_string()
}

fn whole(kind: &str, part: Value) -> Option<Value> {
    let limit = json!({ "name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["method"] });
    let policy = |policy: Value| json!({ "version": 1, "policies": { "api": policy }, "default_policy": "api" });
    Some(match kind {
        "limit" => policy(json!({ "limits": [part] })),
        "policy" => policy(part),
        "route" => merged(policy(json!({ "limits": [limit] })), json!({ "routes": [part] })),
        "file" => merged(policy(json!({ "limits": [limit] })), part),
        "host" => json!({ "host": part, "policy": policy(json!({ "limits": [limit] })) }),
        _ => return None,
    })
}

fn merged(mut object: Value, members: Value) -> Value {
    let (Value::Object(target), Value::Object(members)) = (&mut object, members) else {
        panic!("only objects can be merged")
    };
    target.extend(members);
    object
}
