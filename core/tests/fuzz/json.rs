//! Generates JSON that looks like policies: the known fields and plausible values, in and out of place.

use arbtest::arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

const NAMES: &[&str] = &[
    "paths",
    "trailing_slash",
    "case",
    "trusted_hops",
    "policy_from_route_metadata",
    "client_addresses",
    "cors",
    "allow_origins",
    "denied",
    "unavailable",
    "status",
    "body",
    "content_type",
    "grpc_status",
    "retry_after_jitter",
    "preflights",
    "policies",
    "version",
    "namespace",
    "client_address",
    "source",
    "ipv4_prefix",
    "ipv6_prefix",
    "rate_limit_headers",
    "policies",
    "policy",
    "host",
    "routes",
    "match",
    "path",
    "methods",
    "headers",
    "route_name",
    "default_policy",
    "limits",
    "limits_on_store_failure",
    "name",
    "algorithm",
    "capacity",
    "refill",
    "limit",
    "window",
    "key",
    "on_missing_key",
    "fallback",
    "reject",
    "cost",
    "header",
    "min",
    "max",
    "overrides",
    "when",
    "enforce",
    "exempt",
    "block",
    "a b",
    "",
];
const TEXTS: &[&str] = &[
    "x-forwarded-for",
    "legacy",
    "pro*",
    "https://app.example.com",
    "count",
    "distinct",
    "insensitive",
    "route",
    "/a/{x}/b/*",
    "token_bucket",
    "sliding_window",
    "sliding_window_counter",
    "fixed_window",
    "5/s",
    "1/12s",
    "10/sec",
    "1m",
    "60",
    "366d",
    "1ms",
    "client_address",
    "method",
    "host",
    "path",
    "header:x-user",
    "metadata:jwt_authn.sub",
    "path:id",
    "cookie:s",
    "query:q",
    "constant:all",
    "skip",
    "reject",
    "local",
    "allow",
    "deny",
    "rt",
    "off",
    "/v1/*",
    "/orders/{id}",
    "/%2e/{",
    "*.example.com",
    "10.0.0.0/8",
    "GET",
    "p",
    "é\u{0}",
];
const NUMBERS: [f64; 14] =
    [0.0, 1.0, 2.0, -1.0, 0.5, 10.0, 64.0, 401.0, 10_000.0, 1e12, 1e15, 9_007_199_254_740_993.0, 1e300, -0.0];
const DEPTH_MAX: usize = 7;

/// Any value.
pub fn value(input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    let kinds = if depth < DEPTH_MAX { 7 } else { 4 };
    Ok(match input.int_in_range(0..=kinds)? {
        0 | 1 => json!(input.choose(TEXTS)?),
        2 => json!(input.choose(&NUMBERS)?),
        3 => json!(input.arbitrary::<bool>()?),
        4 => Value::Null,
        5 => Value::Array(values(input, depth + 1)?),
        _ => Value::Object(members(input, depth + 1)?),
    })
}

fn values(input: &mut Unstructured<'_>, depth: usize) -> Result<Vec<Value>> {
    (0..input.int_in_range(0..=4)?).map(|_| value(input, depth)).collect()
}

fn members(input: &mut Unstructured<'_>, depth: usize) -> Result<Map<String, Value>> {
    let count = input.int_in_range(0..=6)?;
    (0..count).map(|_| Ok(((*input.choose(NAMES)?).to_owned(), value(input, depth)?))).collect()
}

/// Changes one to four places of a document.
pub fn mutate(input: &mut Unstructured<'_>, document: &mut Value) -> Result<()> {
    for _ in 0..input.int_in_range(1..=4)? {
        let place = place(input, document)?;
        match (input.int_in_range(0..=3)?, place) {
            (0, Value::Object(members)) => {
                let added = value(input, DEPTH_MAX - 1)?;
                members.insert((*input.choose(NAMES)?).to_owned(), added);
            }
            (1, Value::Object(members)) => {
                let name = members.keys().nth(input.choose_index(members.len().max(1))?).cloned();
                drop(name.and_then(|name| members.remove(&name)));
            }
            (0 | 1, Value::Array(items)) => {
                let copies: Vec<Value> = items.clone();
                items.extend(copies);
            }
            (_, place) => *place = value(input, DEPTH_MAX - 2)?,
        }
    }
    Ok(())
}

/// Some place of a document: goes down until a coin says stop.
fn place<'v>(input: &mut Unstructured<'_>, document: &'v mut Value) -> Result<&'v mut Value> {
    let is_container = |value: &Value| match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    let mut place = document;
    while is_container(place) && input.ratio(6, 7)? {
        place = match place {
            Value::Object(members) => {
                let index = input.choose_index(members.len())?;
                members.values_mut().nth(index).expect("the index is in range")
            }
            Value::Array(items) => {
                let index = input.choose_index(items.len())?;
                &mut items[index]
            }
            scalar => scalar,
        };
    }
    Ok(place)
}
