//! What happens before any limit counts: blocked clients, exempt requests, preflights.

use lockkeeper_core::decision::{Action, DecidedBy, Decision, GrpcStatus, Outcome};
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::identity::Attribute;

use crate::support::*;

/// A request by its method, address and further headers.
type Request<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

fn begin_request(engine: &Engine, (method, address, headers): Request<'_>) -> Step {
    let selection = engine.select(method, "api.example.com", "/");
    let value = |attribute: &Attribute| match attribute {
        Attribute::ClientAddress => Some(address.as_bytes().to_vec()),
        Attribute::Header(name) => {
            headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_bytes().to_vec())
        }
        Attribute::Metadata(_) => None,
    };
    let values: Vec<_> = engine.attributes(&selection).iter().map(value).collect();
    engine.begin(&selection, &values)
}

/// What came out without a call, or `None` when the request is counted.
fn uncounted(engine: &Engine, request: Request<'_>) -> Option<Decision> {
    match begin_request(engine, request) {
        Step::Call(_) => None,
        step => Some(decision(step)),
    }
}

fn outcome(engine: &Engine, request: Request<'_>) -> Option<Outcome> {
    uncounted(engine, request).map(|decision| {
        assert_eq!(decision.report.decided_by, DecidedBy::Policy);
        assert!(decision.report.limit.is_none());
        decision.report.outcome
    })
}

fn file(more: &str, policy: &str) -> Engine {
    engine(&format!(
        r#"{{"version": 1{more}, "policies": {{"p": {{"limits": [{}]{policy}}}}}, "default_policy": "p"}}"#,
        limit("w")
    ))
}

#[test]
fn blocked_clients_are_turned_away_by_the_file_or_the_policy() {
    let block = r#", "block": ["203.0.113.0/24", "2001:db8::1"]"#;
    for engine in [file(block, ""), file("", block)] {
        for address in ["203.0.113.9:4711", "::ffff:203.0.113.9", "[2001:db8:0::1]:80"] {
            let decision = uncounted(&engine, ("GET", address, &[])).expect("blocked");
            assert_eq!((decision.report.outcome, decision.report.policy), (Outcome::Blocked, Some(0)), "{address}");
            let answer = answer(&decision);
            assert_eq!((answer.status, answer.grpc_status), (403, GrpcStatus::PermissionDenied));
            assert_eq!(header(&answer.headers, "cache-control"), Some("no-store"));
            let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
            assert_eq!(body, serde_json::json!({"type": "about:blank", "title": "Forbidden", "status": 403}));
        }
        assert_eq!(outcome(&engine, ("GET", "203.0.114.1", &[])), None);
        assert_eq!(outcome(&engine, ("GET", "/run/client.sock", &[])), None);
    }
}

#[test]
fn the_file_blocks_requests_without_a_policy_too() {
    let json = format!(
        r#"{{"version": 1, "block": ["203.0.113.0/24"], "policies": {{"p": {{"limits": [{}]}}}},
            "routes": [{{"match": {{"path": "/p"}}, "policy": "p"}}]}}"#,
        limit("w")
    );
    let engine = engine(&json);
    assert_eq!(outcome(&engine, ("GET", "203.0.113.9", &[])), Some(Outcome::Blocked));
    let decision = uncounted(&engine, ("GET", "192.0.2.1", &[])).expect("no policy");
    assert_eq!((decision.report.outcome, decision.report.policy), (Outcome::Allowed, None));
}

#[test]
fn a_file_that_only_measures_says_whom_it_would_block() {
    let engine = file(r#", "enforce": false, "block": ["203.0.113.0/24"]"#, "");
    let decision = uncounted(&engine, ("GET", "203.0.113.9", &[])).expect("not counted");
    assert_eq!(decision.report.outcome, Outcome::ShadowBlocked);
    assert!(matches!(decision.action, Action::Forward { .. }));
}

#[test]
fn exempt_requests_are_not_counted() {
    let exempt = r#", "exempt": {"client_addresses": ["10.0.0.0/8"], "methods": ["GET", "TRACE"],
        "headers": {"X-Probe": "s3cret", "user-agent": "health/*"}}"#;
    let rows: [(Request<'_>, bool); 10] = [
        (("POST", "192.0.2.1", &[]), false),
        (("POST", "10.1.2.3:99", &[]), true),
        (("GET", "192.0.2.1", &[]), true),
        (("HEAD", "192.0.2.1", &[]), true),
        (("TRACE", "192.0.2.1", &[]), true),
        (("get", "192.0.2.1", &[]), false),
        (("POST", "192.0.2.1", &[("x-probe", "s3cret")]), true),
        (("POST", "192.0.2.1", &[("x-probe", "s3cret,s3cret")]), false),
        (("POST", "192.0.2.1", &[("user-agent", "health/1.0")]), true),
        (("POST", "192.0.2.1", &[("user-agent", "x health/1.0")]), false),
    ];
    for engine in [file(exempt, ""), file("", exempt)] {
        for (request, is_exempt) in rows {
            assert_eq!(outcome(&engine, request), is_exempt.then_some(Outcome::Exempt), "{request:?}");
        }
    }
}

#[test]
fn a_block_goes_before_an_exemption() {
    let engine = file(r#", "block": ["10.0.0.1"], "exempt": {"client_addresses": ["10.0.0.0/8"]}"#, "");
    assert_eq!(outcome(&engine, ("GET", "10.0.0.1", &[])), Some(Outcome::Blocked));
    assert_eq!(outcome(&engine, ("GET", "10.0.0.2", &[])), Some(Outcome::Exempt));
}

const PREFLIGHT: &[(&str, &str)] = &[("origin", "https://app.example.com"), ("access-control-request-method", "POST")];

#[test]
fn pro_02_only_real_preflights_are_exempt() {
    let engine = file("", "");
    let rows: [(Request<'_>, bool); 7] = [
        (("OPTIONS", "192.0.2.1", PREFLIGHT), true),
        (("OPTIONS", "192.0.2.1", &PREFLIGHT[..1]), false),
        (("OPTIONS", "192.0.2.1", &PREFLIGHT[1..]), false),
        (("OPTIONS", "192.0.2.1", &[("origin", ""), PREFLIGHT[1]]), false),
        (("OPTIONS", "192.0.2.1", &[]), false),
        (("POST", "192.0.2.1", PREFLIGHT), false),
        (("options", "192.0.2.1", PREFLIGHT), false),
    ];
    for (request, is_exempt) in rows {
        assert_eq!(outcome(&engine, request), is_exempt.then_some(Outcome::Exempt), "{request:?}");
    }
    let counting = file(r#", "preflights": "count""#, "");
    assert_eq!(outcome(&counting, ("OPTIONS", "192.0.2.1", PREFLIGHT)), None);
    let blocking = file(r#", "block": ["192.0.2.1"]"#, "");
    assert_eq!(outcome(&blocking, ("OPTIONS", "192.0.2.1", PREFLIGHT)), Some(Outcome::Blocked));
}

#[test]
fn only_what_can_matter_is_looked_up() {
    let plain = file(r#", "preflights": "count""#, "");
    assert!(!plain.line_needs().method && !plain.line_needs().method_of_preflight);
    assert!(plain.attributes(&plain.select("OPTIONS", "a", "/")).is_empty());
    let engine = file("", "");
    assert!(!engine.line_needs().method && engine.line_needs().method_of_preflight);
    assert_eq!(engine.attributes(&engine.select("POST", "a", "/")), []);
    assert_eq!(engine.attributes(&engine.select("OPTIONS", "a", "/")).len(), PREFLIGHT.len());
    let exempting = file(r#", "preflights": "count""#, r#", "exempt": {"methods": ["POST"]}"#);
    assert!(exempting.line_needs().method);
}
