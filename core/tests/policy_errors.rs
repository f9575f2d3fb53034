//! Every kind of bad configuration against its exact message: `policy_errors.txt` holds the cases. Each message names
//! the place, what was found and what was expected, and one run names all faults of a file.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use lockkeeper_core::host_config::PluginConfig;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;

/// A case of the file: `# kind: title`, JSON, `---`, messages.
struct Case<'a> {
    kind: &'a str,
    title: &'a str,
    json: String,
    messages: String,
}

const GOOD_LIMIT: &str = r#"{"name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["method"]}"#;

fn cases(text: &str) -> Vec<Case<'_>> {
    let blocks = text.split("\n# ").skip(1);
    blocks
        .map(|block| {
            let (head, rest) = block.split_once('\n').expect("a title line");
            let (kind, title) = head.split_once(": ").expect("a kind and a title");
            let (json, messages) = rest.split_once("---\n").expect("a line of three dashes");
            Case { kind, title, json: json.trim().to_owned(), messages: messages.trim().to_owned() }
        })
        .collect()
}

/// The messages of a case's JSON, put where its kind belongs in a file that is good otherwise.
fn messages(case: &Case<'_>) -> String {
    let json = &case.json;
    let policy = |text: &str| format!(r#"{{"version": 1, "policies": {{"p": {text}}}}}"#);
    let limits = |text: &str| policy(&format!(r#"{{"limits": {text}}}"#));
    match case.kind {
        "file" => of_policy(json),
        "policy" => of_policy(&policy(json)),
        "limit" => of_policy(&limits(&format!("[{json}]"))),
        "route" => of_policy(&format!(
            r#"{{"version": 1, "policies": {{"p": {{"limits": [{GOOD_LIMIT}]}}}}, "routes": [{json}]}}"#
        )),
        "host" => of_plugin(&format!(r#"{{"host": {json}, "policy": {}}}"#, limits(&format!("[{GOOD_LIMIT}]")))),
        "plugin" => of_plugin(json),
        kind => panic!("{kind} is no kind of case"),
    }
}

fn of_policy(json: &str) -> String {
    let loaded = PolicySet::from_json(json.as_bytes(), LoadOptions::default());
    loaded.map_or_else(|errors| errors.to_string(), |_| "loads".into())
}

fn of_plugin(json: &str) -> String {
    PluginConfig::from_json(json.as_bytes()).map_or_else(|errors| errors.to_string(), |_| "loads".into())
}

#[test]
fn every_fault_is_named_with_its_place_what_was_found_and_what_was_expected() {
    let cases = cases(include_str!("policy_errors.txt"));
    assert!(cases.len() >= 40, "only {} cases were read", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let found = messages(case);
        if found != case.messages {
            wrong.push(format!("# {}: {}\n{}\n---\n{found}\n", case.kind, case.title, case.json));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases say something else:\n\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
