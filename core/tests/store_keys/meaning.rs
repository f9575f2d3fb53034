//! Which edits of a policy keep its counters, and which start new ones; and that no request's text reaches a key.

use std::collections::HashSet;

use lockkeeper_core::identity::Attribute;

use crate::{engine, store_keys};

/// Texts of the policy and what stands in their place.
type Edits<'a> = &'a [(&'a str, &'a str)];

const BASE: &str = r#"{
    "version": 1, "namespace": "prod", "client_address": {"ipv4_prefix": 32, "ipv6_prefix": 64},
    "policies": {
        "api": {"limits": [
            {"name": "bucket", "algorithm": "token_bucket", "capacity": 10, "refill": "5/s", "key": ["client_address"]},
            {"name": "window", "algorithm": "fixed_window", "limit": 100, "window": "1h", "key": ["client_address", "header:x"]}
        ]},
        "other": {"limits": [
            {"name": "bucket", "algorithm": "token_bucket", "capacity": 10, "refill": "5/s", "key": ["client_address"]}
        ]}
    },
    "default_policy": "api"
}"#;

fn keys(json: &str, value: &[u8]) -> Vec<String> {
    let look_up = |attribute: &Attribute| match attribute {
        Attribute::ClientAddress => Some(b"192.0.2.1".to_vec()),
        _ => Some(value.to_vec()),
    };
    store_keys(&engine(json), ("GET", "api.example.com", "/"), look_up)
}

fn edited(edits: Edits<'_>) -> String {
    edits.iter().fold(BASE.to_owned(), |json, (from, to)| {
        assert!(json.contains(from), "{from} is not in the policy");
        json.replace(from, to)
    })
}

#[test]
fn cfg_04_two_gateways_that_load_the_same_file_count_together() {
    assert_eq!(keys(BASE, b"v"), keys(BASE, b"v"));
}

#[test]
fn cfg_05_an_edit_that_changes_no_meaning_keeps_the_counters() {
    let rows: [Edits; 8] = [
        &[("\"capacity\": 10", "\"capacity\": 1000"), ("5/s", "1000/m")],
        &[("\"limit\": 100", "\"limit\": 5")],
        &[("\"1h\"", "\"60m\"")],
        &[("\"limit\": 100", "\"limit\": 100, \"cost\": 7, \"enforce\": false, \"on_missing_key\": \"skip\"")],
        &[("header:x", "header:X")],
        &[("\"version\": 1", "\"version\": 1, \"rate_limit_headers\": \"off\"")],
        &[("\"other\": {\"limits\"", "\"other\": {\"limits_on_store_failure\": \"deny\", \"limits\"")],
        &[("\"default_policy\": \"api\"", "\"routes\": [{\"match\": {\"path\": \"/*\"}, \"policy\": \"api\"}]")],
    ];
    let base = keys(BASE, b"v");
    for edits in rows {
        assert_eq!(keys(&edited(edits), b"v"), base, "{edits:?}");
    }
}

#[test]
fn an_edit_that_changes_the_meaning_starts_new_counters() {
    let rows: [(Edits, [bool; 2]); 11] = [
        (&[("\"prod\"", "\"test\"")], [true, true]),
        (&[("\"api\"", "\"api2\"")], [true, true]),
        (&[("\"name\": \"window\"", "\"name\": \"window2\"")], [false, true]),
        (&[("\"1h\"", "\"2h\"")], [false, true]),
        (&[("\"fixed_window\"", "\"sliding_window\"")], [false, true]),
        (&[("\"fixed_window\"", "\"sliding_window_counter\"")], [false, true]),
        (&[("header:x", "header:y")], [false, true]),
        (&[("header:x", "metadata:x.y")], [false, true]),
        (&[("\"client_address\", \"header:x\"", "\"header:x\", \"client_address\"")], [false, true]),
        (&[("\"ipv4_prefix\": 32", "\"ipv4_prefix\": 24")], [true, true]),
        (&[("\"ipv6_prefix\": 64", "\"ipv6_prefix\": 56")], [true, true]),
    ];
    let base = keys(BASE, b"v");
    for (edits, changed) in rows {
        let keys = keys(&edited(edits), b"v");
        let differs: Vec<bool> = keys.iter().zip(&base).map(|(new, old)| new != old).collect();
        assert_eq!(differs, changed, "{edits:?}");
    }
}

#[test]
fn cfg_04_two_policies_with_the_same_numbers_and_key_count_apart() {
    let other = edited(&[("\"default_policy\": \"api\"", "\"default_policy\": \"other\"")]);
    assert_ne!(keys(&other, b"v")[0], keys(BASE, b"v")[0]);
}

#[test]
fn the_order_of_policies_and_limits_changes_no_key() {
    let limits = |order: [usize; 3]| {
        let limit = |index: &usize| {
            format!(
                r#"{{"name": "l{index}", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["header:x"]}}"#
            )
        };
        let limits: Vec<String> = order.iter().map(limit).collect();
        let policy = format!(r#"{{"limits": [{}]}}"#, limits.join(","));
        let json = format!(
            r#"{{"version": 1, "policies": {{"p{}": {policy}, "p": {policy}}}, "default_policy": "p"}}"#,
            order[0]
        );
        keys(&json, b"v").into_iter().collect::<HashSet<_>>()
    };
    assert_eq!(limits([0, 1, 2]).len(), 3);
    assert_eq!(limits([0, 1, 2]), limits([2, 0, 1]));
}

#[test]
fn prf_02_keys_are_short_and_hold_nothing_that_a_client_sent() {
    let name = "n".repeat(64);
    let json = format!(
        r#"{{"version": 1, "namespace": "{name}", "policies": {{"{name}": {{"limits": [
            {{"name": "{name}", "algorithm": "fixed_window", "limit": 1, "window": "366d", "key": ["header:x"]}}]}}}},
            "default_policy": "{name}"}}"#
    );
    let long = vec![b'a'; 60 * 1024];
    let mut longer = long.clone();
    longer.push(b'b');
    let values: [&[u8]; 9] =
        [b"secret-key-1", b"secret-key-2", b"{}{", b"\0", b"\r\nDEL x\r\n", b"\xff\xfe", b" ", &long, &longer];
    let mut seen = HashSet::new();
    for value in values {
        let key = keys(&json, value).remove(0);
        assert_eq!(key.len(), 3 * 64 + 4 + 8 + 2 + 32, "{key}");
        let (prefix, identity) = key.split_once('{').expect("a hash tag");
        let allowed = |char: char| char.is_ascii_alphanumeric() || ":.-_".contains(char);
        assert!(prefix.chars().all(allowed), "{key}");
        let digits = identity.strip_suffix('}').expect("a hash tag");
        assert!(digits.chars().all(|char| char.is_ascii_hexdigit() && !char.is_ascii_uppercase()), "{key}");
        assert!(seen.insert(key.clone()), "{key} for two values");
    }
}

#[test]
fn one_identity_has_one_hash_tag_whatever_the_limit() {
    let json = edited(&[(", \"header:x\"", "")]);
    let keys = keys(&json, b"v");
    let tag = |key: &str| key.split_once('{').expect("a hash tag").1.to_owned();
    assert_eq!(tag(&keys[0]), tag(&keys[1]), "so that a cluster keeps them in one slot");
}
