//! What the pages say about the code, compared with the code.

use std::collections::BTreeSet;
use std::path::Path;

use lockkeeper_core::host_config::PluginConfig;
use lockkeeper_core::normalize;
use lockkeeper_core::script;
use lockkeeper_tests::paths;

use crate::markdown::{code_spans, only_code, page, workspace_file};

/// Nothing here is known, so each message lists what is.
const UNKNOWN_EVERYWHERE: &str = r#"{ "?": 0, "host": { "?": 0, "local": { "?": 0 } }, "policy": { "?": 0,
    "client_address": { "?": 0 }, "paths": { "?": 0 }, "cors": { "?": 0 }, "exempt": { "?": 0 }, "denied": { "?": 0 },
    "unavailable": { "?": 0 }, "routes": [{ "?": 0, "match": { "?": 0 } }],
    "policies": { "p": { "?": 0, "concurrency": { "?": 0 }, "lock": { "?": 0 }, "idempotency": { "?": 0, "key_length": { "?": 0 },
        "fingerprint": { "?": 0 }, "response": { "?": 0 }, "shared_scope": true, "replay_limit": { "?": 0 } }, "limits": [
        { "?": 0, "algorithm": "token_bucket", "capacity": 1, "refill": "1/s", "cost": { "?": 0 }, "overrides": [{ "?": 0 }] }, { "?": 0, "algorithm": "fixed_window" }] } } } }"#;

#[test]
fn policy_md_describes_every_field() {
    let errors = PluginConfig::from_json(UNKNOWN_EVERYWHERE.as_bytes()).expect_err("no field is known");
    let lists = errors.0.iter().filter_map(|error| error.expected.strip_prefix("one of the fields "));
    let fields: BTreeSet<&str> = lists.flat_map(|list| list.split(", ")).collect();
    assert!(fields.len() > 20, "{fields:?}");
    let text = page("docs/POLICY.md").text;
    let described: BTreeSet<&str> = code_spans(&text).collect();
    let missing: Vec<_> = fields.difference(&described).collect();
    assert!(missing.is_empty(), "docs/POLICY.md does not describe {missing:?}");
}

#[test]
fn paths_and_hosts_are_normalised_as_policy_md_says() {
    let policy = page("docs/POLICY.md");
    for row in policy.rows("Paths") {
        assert_eq!(normalize::path(only_code(row[0])), only_code(row[1]), "{row:?}");
    }
    for row in policy.rows("Hosts") {
        assert_eq!(normalize::host(only_code(row[0])), only_code(row[1]), "{row:?}");
    }
}

#[test]
fn operations_md_lists_every_metric_and_no_other() {
    let operations = page("docs/OPERATIONS.md");
    let rows = operations.rows("Metrics");
    let listed: BTreeSet<&str> =
        rows.iter().map(|row| only_code(row[0])).filter(|name| name.starts_with("lockkeeper_")).collect();
    let source = workspace_file("filter/src/metrics.rs");
    let is_part = |char: char| char.is_ascii_lowercase() || char == '_';
    let named = source.split('"').skip(1).filter(|text| text.starts_with("lockkeeper_"));
    let defined: BTreeSet<&str> = named.filter_map(|text| text.split(|char| !is_part(char)).next()).collect();
    assert_eq!(listed, defined);
}

#[test]
fn the_redis_user_of_operations_md_may_do_what_the_scripts_do() {
    let operations = page("docs/OPERATIONS.md");
    let rights = operations.text.lines().find(|line| line.starts_with("ACL SETUSER")).expect("a line of rights");
    let granted: BTreeSet<&str> = rights.split(' ').filter_map(|word| word.strip_prefix('+')).collect();
    let scripts = [script::ADMIT, script::COMPLETE, script::DECIDE, script::PROBE, script::RELEASE, script::RENEW];
    for text in scripts.map(|script| script.text()) {
        let calls = text.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
        let missing: Vec<String> =
            calls.map(str::to_lowercase).filter(|call| !granted.contains(call.as_str())).collect();
        assert!(missing.is_empty(), "docs/OPERATIONS.md does not grant {missing:?}");
    }
}

#[test]
fn every_test_that_cases_md_names_exists() {
    let cases = page("docs/CASES.md");
    let sources = rust_sources();
    for row in cases.rows("The table") {
        let checks = row.last().expect("a row has cells");
        for test in code_spans(checks).filter(|span| !span.contains(['/', '.'])) {
            assert!(sources.contains(&format!("fn {test}()")), "docs/CASES.md names {test}, which does not exist");
        }
        assert!(checks.contains(['`', ']']), "docs/CASES.md says of {} neither a test nor a rule", row[0]);
    }
}

fn rust_sources() -> String {
    let mut sources = String::new();
    ["core", "filter", "tests", "xtask"]
        .iter()
        .for_each(|member| collect(&paths::workspace().join(member), &mut sources));
    sources
}

fn collect(path: &Path, sources: &mut String) {
    let Ok(entries) = std::fs::read_dir(path) else {
        if path.extension().is_some_and(|ending| ending == "rs") {
            sources.push_str(&std::fs::read_to_string(path).expect("a source can be read"));
        }
        return;
    };
    entries.flatten().for_each(|entry| collect(&entry.path(), sources));
}
