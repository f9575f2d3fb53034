//! What a request is charged: costs that a header tells, and other numbers for some.

use lockkeeper_core::decision::{GrpcStatus, Outcome};
use lockkeeper_core::engine::Engine;
use lockkeeper_core::store::StoreFailure;

use crate::support::*;

fn engine_with(more: &str) -> Engine {
    let keyed = limit("w").replace("\"key\"", &format!("{more}, \"key\""));
    engine_of(&keyed, "")
}

const COST: &str = r#""cost": {"header": "X-Cost", "default": 2, "max": 8}"#;

const PLANS: &str = r#""overrides": [
    {"when": {"header:x-plan": "pro", "header:x-region": "eu"}, "limit": 40},
    {"when": {"header:x-plan": "pro"}, "limit": 30},
    {"when": {"header:x-plan": "pro*"}, "limit": 20},
    {"when": {"header:x-plan": "proper"}, "limit": 99}]"#;

/// Words of a charge: algorithm, enforced, cost, four numbers.
fn charge(engine: &Engine, values: &[Option<&[u8]>]) -> String {
    let words = command(&call(begin(engine, values)), "t");
    let texts: Vec<String> = words.into_iter().skip(5).map(|word| String::from_utf8(word).expect("UTF-8")).collect();
    texts.join(" ")
}

#[test]
fn a_header_tells_the_cost_within_its_bounds() {
    let engine = engine_with(COST);
    let rows: [(Option<&[u8]>, u64); 5] =
        [(None, 2), (Some(b""), 2), (Some(b"5"), 5), (Some(b"0"), 1), (Some(b"9"), 8)];
    for (value, cost) in rows {
        assert_eq!(charge(&engine, &[value]), format!("window 1 {cost} 10 60000000 0 0"), "{value:?}");
    }
}

#[test]
fn a_cost_that_is_no_number_is_a_bad_request() {
    for value in [&b"-1"[..], b"1.5", b"one", b"1,1"] {
        let decision = decision(begin(&engine_with(COST), &[Some(value)]));
        assert_eq!((decision.report.outcome, decision.report.limit), (Outcome::Rejected, Some(0)));
        let answer = answer(&decision);
        assert_eq!((answer.status, answer.grpc_status), (400, GrpcStatus::InvalidArgument));
        assert_eq!(answer.grpc_message, "The request header x-cost must be a whole number");
    }
}

#[test]
fn a_limit_that_only_measures_takes_the_default_for_a_cost_that_is_no_number() {
    let engine = engine_with(&format!("{COST}, \"enforce\": false"));
    assert_eq!(charge(&engine, &[Some(b"one")]), "window 0 2 10 60000000 0 0");
}

#[test]
fn the_first_override_that_applies_gives_the_numbers_and_the_counter_stays() {
    let engine = engine_with(PLANS);
    let rows: [([Option<&[u8]>; 2], u64); 8] = [
        ([None, None], 10),
        ([Some(b"free"), None], 10),
        ([Some(b""), Some(b"eu")], 10),
        ([Some(b"pro"), None], 30),
        ([Some(b"pro"), Some(b"eu")], 40),
        ([Some(b"pro"), Some(b"us")], 30),
        ([Some(b"proper"), None], 20),
        ([Some(b"pr"), None], 10),
    ];
    let key = |values: &[Option<&[u8]>]| call(begin(&engine, values)).counted()[0].store_key.clone();
    for (plan_and_region, limit) in rows {
        let charge = charge(&engine, &plan_and_region);
        assert_eq!(charge, format!("window 1 1 {limit} 60000000 0 0"), "{plan_and_region:?}");
        assert_eq!(key(&plan_and_region), key(&[None, None]));
    }
}

#[test]
fn clients_are_told_the_numbers_that_apply_to_them() {
    let decision = decided(&engine_with(PLANS), &[Some(b"pro"), None], &[(true, 29, 1, 0)]);
    assert_eq!(header(response_headers(&decision), "ratelimit-policy"), Some(r#""w";q=30;w=60"#));
}

#[test]
fn the_local_limiter_takes_the_same_numbers_and_cost() {
    let engine = engine_with(&format!("{COST}, {PLANS}"));
    let call = call(begin(&engine, &[Some(b"pro"), None, Some(b"3")]));
    let local = local(call.resume(Err(StoreFailure::NotSent)));
    let charge = local.charges()[0].charge;
    assert_eq!((charge.cost, charge.algorithm.allowance()), (3, 30));
}

#[test]
fn a_part_that_only_an_override_names_is_looked_up() {
    let engine =
        engine_with(r#""overrides": [{"when": {"method": "GET", "path": "/cheap", "host": "a"}, "limit": 20}]"#);
    let needs = engine.line_needs();
    assert!(needs.method && needs.target && needs.authority);
    let cheap = engine.begin(&engine.select("GET", "a", "/cheap"), &[]);
    assert_eq!(call(cheap).counted()[0].override_index, Some(0));
    assert_eq!(call(begin(&engine, &[])).counted()[0].override_index, None);
}

#[test]
fn a_file_that_enforces_nothing_only_measures() {
    let json = format!(
        r#"{{"version": 1, "enforce": false, "policies": {{"p": {{"limits": [{}]}}}}, "default_policy": "p"}}"#,
        limit("w")
    );
    let engine = engine(&json);
    let decision = decided(&engine, &[], &[(false, 0, 1, 1)]);
    assert_eq!((decision.report.outcome, decision.report.shadow_denials.len()), (Outcome::Allowed, 1));
    assert_eq!(response_headers(&decision), []);
    assert_eq!(charge(&engine, &[]), "window 0 1 10 60000000 0 0");
}
