//! `lockkeeper check` as a process: what it prints, as JSON too, and its exit code.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use support::{Directory, lockkeeper};

const GOOD: &str = r#"{"version": 1, "policies": {"api": {"limits": [
  {"name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["client_address"]}]}}, "default_policy": "api"}"#;
const BAD: &str = r#"{
  "version": 1,
  "policies": { "login": { "limits": [
    { "name": "a", "algorithm": "token_bucket", "capacity": 0, "refill": "5/s", "key": ["method"] },
    { "name": "b", "algorithm": "fixed_window", "limit": 1, "key": ["method"], "tempo": 1, "limit": 2 } ] } },
  "é": 1, "default_policy": "logon"
}
"#;

#[test]
fn each_fault_is_shown_at_its_place() {
    let directory = Directory::with(&[("good.json", GOOD), ("bad.json", BAD)]);
    let checked = lockkeeper(&directory, &["check", "bad.json", "good.json"]);
    assert_eq!(checked.code, 1);
    assert_eq!(checked.stderr, "");
    let expected = r#"bad.json:4:61: error: $.policies.login.limits[0].capacity: found 0, expected a whole number from 1 to 1000000000000
    4 |     { "name": "a", "algorithm": "token_bucket", "capacity": 0, "refill": "5/s", "key": ["method"] },
      |                                                             ^
bad.json:5:5: error: $.policies.login.limits[1].window: found nothing, expected a duration such as "1m"
    5 |     { "name": "b", "algorithm": "fixed_window", "limit": 1, "key": ["method"], "tempo": 1, "limit": 2 } ] } },
      |     ^
bad.json:5:80: error: $.policies.login.limits[1].tempo: found an unknown field, expected one of the fields …
    5 |     { "name": "b", "algorithm": "fixed_window", "limit": 1, "key": ["method"], "tempo": 1, "limit": 2 } ] } },
      |                                                                                ^
bad.json:5:92: error: $.policies.login.limits[1].limit: found the same name twice, expected each name once
    5 |     { "name": "b", "algorithm": "fixed_window", "limit": 1, "key": ["method"], "tempo": 1, "limit": 2 } ] } },
      |                                                                                            ^
bad.json:6:3: error: $["é"]: found an unknown field, expected one of the fields …
    6 |   "é": 1, "default_policy": "logon"
      |   ^
bad.json:6:29: error: $.default_policy: found "logon", expected the name of a policy of this file: login: did you mean "login"?
    6 |   "é": 1, "default_policy": "logon"
      |                             ^
bad.json: 6 errors
good.json: ok (1 policy, 1 limit, 0 routes)
"#;
    assert_eq!(without_fields(&checked.stdout), expected);
}

/// The fields that there are grow with the language.
fn without_fields(text: &str) -> String {
    let line = |line: &str| match line.split_once("one of the fields ") {
        Some((before, _)) => format!("{before}one of the fields …\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn a_warning_fails_the_check_only_when_told_to() {
    let unlimited = GOOD.replace(r#", "default_policy": "api""#, "");
    let plugin = format!("{{\"policy\": {unlimited}}}");
    let directory = Directory::with(&[("policy.json", &unlimited), ("plugin.json", &plugin)]);
    let checked = lockkeeper(&directory, &["check", "policy.json"]);
    assert_eq!(checked.code, 0);
    let lines: Vec<&str> = checked.stdout.lines().collect();
    assert!(lines[0].starts_with("policy.json:1:29: warning: $.policies.api: is never used"), "{}", checked.stdout);
    assert_eq!(lines.last(), Some(&"policy.json: 2 warnings (1 policy, 1 limit, 0 routes)"));
    let denied = lockkeeper(&directory, &["check", "--deny-warnings", "plugin.json"]);
    assert_eq!(denied.code, 1);
    assert!(denied.stdout.starts_with("plugin.json:1:40: warning: $.policy.policies.api: "), "{}", denied.stdout);
}

#[test]
fn json_has_the_same_findings() {
    let directory = Directory::with(&[("good.json", GOOD), ("bad.json", BAD)]);
    let checked = lockkeeper(&directory, &["check", "--json", "good.json", "bad.json", "none.json"]);
    let outcome: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!((&outcome["errors"], &outcome["warnings"]), (&json!(6), &json!(0)));
    assert_eq!(
        outcome["files"][0],
        json!({ "file": "good.json", "findings": [],
        "holds": { "policies": 1, "limits": 1, "routes": 0 } })
    );
    assert_eq!(
        outcome["files"][1]["findings"][0],
        json!({ "severity": "error", "line": 4, "column": 61,
        "path": "$.policies.login.limits[0].capacity",
        "message": "found 0, expected a whole number from 1 to 1000000000000" })
    );
    assert!(outcome["files"][2]["unreadable"].as_str().unwrap().starts_with("cannot be read: "));
    assert_eq!(checked.code, 2, "a file that cannot be read is worse than one with faults");
}

#[test]
fn a_plugin_configuration_is_checked_as_one() {
    let plugin = format!(r#"{{"host": {{"deadline": "1h"}}, "policy": {GOOD}}}"#);
    let directory = Directory::with(&[("plugin.json", &plugin)]);
    let checked = lockkeeper(&directory, &["check", "plugin.json"]);
    assert!(checked.stdout.starts_with("plugin.json:1:23: error: $.host.deadline: found \"1h\""), "{}", checked.stdout);
}

#[test]
fn no_line_shows_a_password() {
    let host = |credentials: &str| {
        format!(r#"{{"host": {{"deadline": "1h", "credentials": {credentials}}}, "policy": {GOOD}}}"#)
    };
    let cut = r#"{"host": {"credentials": {"password": "TOP-SECRET" "#;
    let rows = [
        host(r#"{"password": "TOP-SECRET", "passwd": "TOP-SECRET"}"#),
        host(r#"{"password": "TOP-SECRET", "password": "TOP-SECRET"}"#),
        host(r#""redis://me:TOP-SECRET@store""#),
        cut.to_owned(),
    ];
    for text in rows {
        let directory = Directory::with(&[("plugin.json", &text)]);
        for options in [&["check", "plugin.json"][..], &["check", "--json", "plugin.json"]] {
            let checked = lockkeeper(&directory, options);
            assert_eq!(checked.code, 1, "{text}");
            assert!(!checked.stdout.contains("TOP-SECRET"), "{}", checked.stdout);
        }
    }
}

#[test]
fn what_is_no_json_is_shown_where_it_breaks() {
    let rows = [("{\n  \"a\": é1}", "x.json:2:8: "), ("", "x.json:1:1: "), ("{\"a\": 1", "x.json:1:7: ")];
    for (text, place) in rows {
        let directory = Directory::with(&[("x.json", text)]);
        let checked = lockkeeper(&directory, &["check", "x.json"]);
        assert!(checked.stdout.starts_with(&format!("{place}error: $: this is no JSON: ")), "{}", checked.stdout);
        assert_eq!(checked.code, 1);
    }
}

#[test]
fn a_byte_order_mark_is_named() {
    let directory = Directory::with(&[("x.json", "\u{feff}{\"version\": 1}")]);
    let checked = lockkeeper(&directory, &["check", "x.json"]);
    assert!(
        checked.stdout.contains("x.json:1:1: error: $: this is no JSON: it begins with a byte order mark"),
        "{}",
        checked.stdout
    );
    assert_eq!(checked.code, 1);
}

#[test]
fn a_long_line_is_shown_around_the_place() {
    let text = format!(r#"{{"version": 1, "policies": {{}}, {}"é": 7}}"#, " ".repeat(300));
    let directory = Directory::with(&[("long.json", &text)]);
    let checked = lockkeeper(&directory, &["check", "long.json"]);
    let lines: Vec<&str> = checked.stdout.lines().collect();
    let column = |mark: &str, line: &str| line.find(mark).unwrap();
    assert_eq!(column("\"é\": 7}", lines[1]), column("^", lines[2]));
    assert!(lines[1].len() < 140, "{}", lines[1]);
}

#[test]
fn colours_are_for_terminals_and_bad_arguments_are_refused() {
    let directory = Directory::with(&[("bad.json", BAD)]);
    assert!(!lockkeeper(&directory, &["check", "bad.json"]).stdout.contains('\x1b'));
    let refused = lockkeeper(&directory, &["check"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("<FILE>"), "{}", refused.stderr);
    let help = lockkeeper(&directory, &["check", "--help"]);
    assert_eq!(help.code, 0);
    assert!(help.stdout.contains("Exit code"), "{}", help.stdout);
}

#[test]
fn the_schema_is_printed_as_it_is_committed() {
    let printed = lockkeeper(&Directory::with(&[]), &["schema"]);
    assert_eq!(printed.stdout, include_str!("../../docs/policy.schema.json"));
}

#[test]
fn completions_name_the_commands() {
    let directory = Directory::with(&[]);
    for shell in ["bash", "zsh", "fish"] {
        let completions = lockkeeper(&directory, &["completions", shell]);
        assert_eq!(completions.code, 0);
        assert!(completions.stdout.contains("check"), "{shell}");
    }
}
