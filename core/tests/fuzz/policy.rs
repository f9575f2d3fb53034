//! Policy files: bytes, look-alikes and good files with a few changes. What does not load says where; what loads decides
//! every request without panic.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::host_config::PluginConfig;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::error::PolicyErrors;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::resp::Reply;
use lockkeeper_core::selection::GatewayRoute;
use lockkeeper_core::store::StoreFailure;
use serde_json::Value;

use crate::{budget_ms, json, pieces};

const GOOD: [&str; 2] = [
    include_str!("../../../envoy/policy.json"),
    r#"{ "version": 1, "namespace": "n", "client_address": { "source": "x-forwarded-for", "trusted_hops": 2, "ipv4_prefix": 24 },
      "paths": { "trailing_slash": "distinct", "case": "insensitive" }, "policy_from_route_metadata": true,
      "rate_limit_headers": "legacy", "retry_after_jitter": "5s", "cors": { "allow_origins": ["https://a.example"] },
      "block": ["192.0.2.7"], "exempt": { "client_addresses": ["2001:db8::/32"] }, "denied": { "status": 420, "body": "no" }, "policies": {
        "a": { "limits": [
          { "name": "b", "algorithm": "token_bucket", "capacity": 100, "refill": "10/s", "key": ["client_address"],
            "cost": { "header": "x-cost", "max": 9, "min": 2, "default": 3 },
            "overrides": [ { "when": { "header:x": "7*" }, "capacity": 50 }, { "when": { "host": "api", "query:q": "1" }, "refill": "1/s" } ] },
          { "name": "l", "algorithm": "sliding_window", "limit": 100, "window": "1m", "key": ["header:x", "query:q"], "on_missing_key": "skip" },
          { "name": "c", "algorithm": "sliding_window_counter", "limit": 100, "window": "1h", "key": ["metadata:m.a", "path:id"], "on_missing_key": { "fallback": "client_address" } },
          { "name": "f", "algorithm": "fixed_window", "limit": 1, "window": "1d", "key": ["constant:all", "method"], "enforce": false }
        ], "limits_on_store_failure": "deny", "block": ["10.0.0.0/8"], "exempt": { "methods": ["PUT"], "headers": { "y": "7" } } },
        "p": { "limits": [
          { "name": "f", "algorithm": "fixed_window", "limit": 1, "window": "1ms", "key": ["method"] } ] } },
      "routes": [ { "match": { "host": "*.example.com", "path": "/v1/{id}/*", "methods": ["GET", "POST"] }, "policy": "a" },
                  { "match": { "path": "/a", "headers": { "x": "7", "y": true } }, "policy": "p" },
                  { "match": { "path": "/{id}", "route_name": "r" }, "policies": ["p", "a"] } ], "default_policy": "a" }"#,
];

#[test]
fn any_bytes_load_or_are_refused_with_a_place() {
    arbtest(|input| {
        let bytes = input.bytes(input.len())?;
        check_refusal(PolicySet::from_json(bytes, LoadOptions::default()).err());
        check_refusal(PluginConfig::from_json(bytes).err());
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn what_looks_like_a_policy_loads_or_is_refused_with_a_place() {
    arbtest(|input| {
        let text = json::value(input, 0)?.to_string();
        check_refusal(PolicySet::from_json(text.as_bytes(), LoadOptions::default()).err());
        check_refusal(PluginConfig::from_json(text.as_bytes()).err());
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn a_changed_policy_is_refused_or_decides_every_request() {
    let good = GOOD.map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
    for document in &good {
        let loaded = PolicySet::from_json(document.to_string().as_bytes(), LoadOptions::default());
        loaded.unwrap_or_else(|errors| panic!("{errors}"));
    }
    arbtest(|input| {
        let mut document = input.choose(&good)?.clone();
        json::mutate(input, &mut document)?;
        let options = LoadOptions { local_share: *input.choose(&[1.0, 0.5, 0.001])? };
        match PolicySet::from_json(document.to_string().as_bytes(), options) {
            Err(errors) => check_refusal(Some(errors)),
            Ok(policies) => decide(input, &Engine::new(policies))?,
        }
        Ok(())
    })
    .budget_ms(budget_ms() * 2)
    .run();
}

fn check_refusal(errors: Option<PolicyErrors>) {
    let Some(errors) = errors else { return };
    assert!(!errors.0.is_empty(), "refused without a reason");
    for error in &errors.0 {
        assert!(error.path.starts_with('$'), "{error}");
        assert!(!error.found.is_empty() && !error.expected.is_empty(), "{error}");
        assert!(error.to_string().len() < 4_000, "a message is for people: {error}");
    }
}

/// One request with any values and any reply of the store.
fn decide(input: &mut Unstructured<'_>, engine: &Engine) -> Result<()> {
    let method = *input.choose(&["GET", "HEAD", "POST", "", "é"])?;
    let host = pieces(input, &["api", ".", "example", ".com", ":80", "A"], 6)?;
    let path = pieces(input, &["/", "v1", "a", "%2e", "?", "..", "orders"], 8)?;
    let gateway = GatewayRoute {
        name: *input.choose(&[None, Some("r")])?,
        policy: *input.choose(&[None, Some("p"), Some("q")])?,
    };
    let selection = engine.select_routed(method, &host, &path, gateway);
    let value = |input: &mut Unstructured<'_>| {
        let values: [Option<&[u8]>; 6] =
            [None, Some(b""), Some(b"192.0.2.1"), Some(b"[::1]:9"), Some(b"\xff\0"), Some(b"7")];
        Ok(input.choose(&values)?.map(<[u8]>::to_vec))
    };
    let headers = engine.route_headers(&selection).iter().map(|_| value(input)).collect::<Result<Vec<_>>>()?;
    let selection = engine.select_by_headers(selection, &headers);
    let values = engine.attributes(&selection).iter().map(|_| value(input)).collect::<Result<Vec<_>>>()?;
    let mut step = engine.begin(&selection, &values);
    while let Step::Call(call) = step {
        call.write("tag", &mut Vec::new());
        let limits = call.counted().len();
        step = call.resume(match input.int_in_range(0..=4)? {
            0 => Err(StoreFailure::NotSent),
            1 => Err(StoreFailure::of_error("NOSCRIPT")),
            2 => Ok(Reply::Integer(7)),
            _ => Ok(reply(input, limits)?),
        });
    }
    Ok(())
}

fn reply(input: &mut Unstructured<'_>, limits: usize) -> Result<Reply> {
    let mut elements = vec![Reply::BulkString(b"tag".to_vec())];
    for _ in 0..limits {
        elements.push(Reply::Integer(input.int_in_range(0..=1)?));
        for _ in 0..3 {
            elements.push(Reply::Integer(*input.choose(&[0, 1, 999_999, 1_000_000, i64::MAX])?));
        }
    }
    Ok(Reply::Array(elements))
}
