//! The JSON Schema that editors use: it knows the fields that the loader knows, takes what loads, and refuses what a
//! schema can refuse.

use std::collections::BTreeSet;

use boon::{Compiler, SchemaIndex, Schemas};
use lockkeeper_core::host_config::PluginConfig;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use serde_json::{Value, json};

use crate::examples::{document, is_json};
use crate::markdown::{pages, workspace_file};

/// Where in a plugin configuration an unknown field brings out the known ones of an object, and the schema's name of it.
const OBJECTS: [(&str, &str); 26] = [
    (r#"{ "?": 0, "policy": {} }"#, "plugin_configuration"),
    (r#"{ "host": { "?": 0 }, "policy": {} }"#, "host"),
    (r#"{ "host": { "local": { "?": 0 } }, "policy": {} }"#, "host/properties/local"),
    (r#"{ "policy": { "?": 0 } }"#, "policy_file"),
    (r#"{ "policy": { "client_address": { "?": 0 } } }"#, "client_address"),
    (r#"{ "policy": { "paths": { "?": 0 } } }"#, "policy_file/properties/paths"),
    (r#"{ "policy": { "cors": { "?": 0 } } }"#, "policy_file/properties/cors"),
    (r#"{ "policy": { "exempt": { "?": 0 } } }"#, "exempt"),
    (r#"{ "policy": { "denied": { "?": 0 } } }"#, "denied"),
    (r#"{ "policy": { "unavailable": { "?": 0 } } }"#, "unavailable"),
    (r#"{ "policy": { "policies": { "p": { "?": 0 } } } }"#, "policy"),
    (r#"{ "policy": { "policies": { "p": { "limits": [ { "?": 0, "algorithm": "token_bucket" } ] } } } }"#, "limit"),
    (r#"{ "policy": { "policies": { "p": { "limits": [ { "?": 0, "algorithm": "fixed_window" } ] } } } }"#, "limit"),
    (r#"{ "policy": { "policies": { "p": { "limits": [ { "cost": { "?": 0 } } ] } } } }"#, "cost/oneOf/1"),
    (
        r#"{ "policy": { "policies": { "p": { "limits": [ { "algorithm": "token_bucket", "capacity": 1, "refill": "1/s",
        "overrides": [ { "?": 0 } ] } ] } } } }"#,
        "override",
    ),
    (
        r#"{ "policy": { "policies": { "p": { "limits": [ { "algorithm": "fixed_window", "limit": 1, "window": "1s",
        "overrides": [ { "?": 0 } ] } ] } } } }"#,
        "override",
    ),
    (r#"{ "policy": { "policies": { "p": { "concurrency": { "?": 0 } } } } }"#, "concurrency"),
    (r#"{ "policy": { "policies": { "p": { "lock": { "?": 0 } } } } }"#, "lock"),
    (r#"{ "policy": { "policies": { "p": { "idempotency": { "?": 0 } } } } }"#, "idempotency"),
    (
        r#"{ "policy": { "policies": { "p": { "idempotency": { "key_length": { "?": 0 } } } } } }"#,
        "idempotency/properties/key_length",
    ),
    (
        r#"{ "policy": { "policies": { "p": { "idempotency": { "fingerprint": { "?": 0 } } } } } }"#,
        "idempotency/properties/fingerprint",
    ),
    (
        r#"{ "policy": { "policies": { "p": { "idempotency": { "response": { "?": 0 } } } } } }"#,
        "idempotency/properties/response",
    ),
    (
        r#"{ "policy": { "policies": { "p": { "idempotency": { "shared_scope": true, "replay_limit": { "?": 0 } } } } } }"#,
        "idempotency/properties/replay_limit/oneOf/1",
    ),
    (r#"{ "policy": { "routes": [ { "?": 0 } ] } }"#, "route"),
    (r#"{ "policy": { "routes": [ { "match": { "?": 0 } } ] } }"#, "match"),
    (
        r#"{ "policy": { "policies": { "p": { "limits": [ { "on_missing_key": { "?": 0 } } ] } } } }"#,
        "on_missing_key/oneOf/1",
    ),
];

struct Schema {
    schemas: Schemas,
    root: SchemaIndex,
}

impl Schema {
    fn compile() -> Schema {
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler.add_resource("policy.json", document_of_schema()).expect("the schema is added");
        let root = compiler.compile("policy.json", &mut schemas).unwrap_or_else(|error| panic!("{error:#}"));
        Schema { schemas, root }
    }

    fn refusal(&self, document: &Value) -> Option<String> {
        self.schemas.validate(document, self.root).err().map(|error| format!("{error:#}"))
    }
}

fn document_of_schema() -> Value {
    serde_json::from_str(&workspace_file("docs/policy.schema.json")).expect("the schema is JSON")
}

#[test]
fn the_schema_knows_the_fields_that_the_loader_knows() {
    let schema = document_of_schema();
    let mut loaded: std::collections::BTreeMap<&str, BTreeSet<String>> = Default::default();
    for (text, name) in OBJECTS {
        let errors = PluginConfig::from_json(text.as_bytes()).expect_err("a field is unknown").0;
        let unknown = errors.iter().find(|error| error.path.ends_with("[\"?\"]"));
        let unknown = unknown.unwrap_or_else(|| panic!("nothing is said about the unknown field of {text}"));
        let fields = unknown.expected.strip_prefix("one of the fields ").expect("the known fields are listed");
        loaded.entry(name).or_default().extend(fields.split(", ").map(str::to_owned));
    }
    for (name, fields) in loaded {
        let properties = schema.pointer(&format!("/$defs/{name}/properties"));
        let properties = properties.and_then(Value::as_object).unwrap_or_else(|| panic!("the schema has no {name}"));
        assert_eq!(properties.keys().cloned().collect::<BTreeSet<_>>(), fields, "the fields of {name}");
    }
}

#[test]
fn the_schema_takes_the_shipped_policy_and_every_example() {
    let schema = Schema::compile();
    let shipped = serde_json::from_str(&workspace_file("envoy/policy.json")).expect("the policy is JSON");
    assert_eq!(schema.refusal(&shipped), None);
    for page in pages() {
        for fence in page.fences().iter().filter(|fence| is_json(fence) && fence.info != "json refused") {
            let example = serde_json::from_str(&document(fence)).expect("examples are JSON");
            assert_eq!(schema.refusal(&example), None, "{}", fence.place);
        }
    }
}

/// Of the core's collection of faulty files: whatever the schema refuses does not load, and most of what does not load
/// it refuses. The rest takes more than a schema, such as names that must exist.
#[test]
fn the_schema_refuses_what_a_schema_can() {
    let schema = Schema::compile();
    let (mut faulty, mut missed) = (0, Vec::new());
    for (title, document) in cases() {
        let text = document.to_string();
        let loads = match document.get("policy") {
            Some(_) => PluginConfig::from_json(text.as_bytes()).is_ok(),
            None => PolicySet::from_json(text.as_bytes(), LoadOptions::default()).is_ok(),
        };
        match (loads, schema.refusal(&document)) {
            (true, refusal) => assert_eq!(refusal, None, "{title} loads"),
            (false, Some(_)) => faulty += 1,
            (false, None) => missed.push(title),
        }
    }
    println!("the schema refuses {faulty} and misses {}: {missed:#?}", missed.len());
    assert!(faulty >= 50 && missed.len() * 3 < faulty, "{faulty} are refused, these are missed: {missed:#?}");
}

/// The cases that are JSON, as whole documents. Repeated names are gone: the last stands for all.
fn cases() -> Vec<(String, Value)> {
    let text = workspace_file("core/tests/policy_errors.txt");
    let case = |block: &str| {
        let (head, rest) = block.split_once('\n')?;
        let (kind, title) = head.split_once(": ")?;
        let part = serde_json::from_str(rest.split_once("---\n")?.0).ok()?;
        Some((title.to_owned(), whole(kind, part)))
    };
    text.split("\n# ").skip(1).filter_map(case).collect()
}

fn whole(kind: &str, part: Value) -> Value {
    let limit = json!({ "name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["method"] });
    let policy = |policy: Value| json!({ "version": 1, "policies": { "p": policy } });
    let good = policy(json!({ "limits": [limit] }));
    match kind {
        "policy" => policy(part),
        "limit" => policy(json!({ "limits": [part] })),
        "route" => json!({ "version": 1, "policies": good["policies"], "routes": [part] }),
        "host" => json!({ "host": part, "policy": good }),
        _ => part,
    }
}
