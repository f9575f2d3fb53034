//! What is looked up for a request, and what happens when a part of a key is missing.

use lockkeeper_core::decision::{DecidedBy, GrpcStatus, Outcome};
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::identity::Attribute;

use crate::support::*;

fn keyed(key: &str, more: &str) -> Engine {
    let keyed = limit("w").replace(r#"["constant:all"]"#, &format!("{key}{more}"));
    engine_of(&keyed, "")
}

#[test]
fn each_attribute_is_looked_up_once_and_only_where_a_key_needs_it() {
    let with = |key: &str, name: &str| limit(name).replace(r#""constant:all""#, key);
    let limits = [
        with(r#""client_address", "header:X-Org""#, "a"),
        with(r#""header:x-org", "method", "host", "path", "metadata:auth.sub""#, "b"),
    ];
    let engine = engine_of(&limits.join(","), "");
    let selection = engine.select("GET", "a", "/");
    let expected = [
        Attribute::ClientAddress,
        Attribute::Header("x-org".into()),
        Attribute::Metadata(vec!["auth".into(), "sub".into()]),
    ];
    assert_eq!(engine.attributes(&selection), expected);
}

#[test]
fn a_missing_part_is_rejected_and_only_a_header_is_named() {
    let rows: [(&str, Option<&[u8]>, &str); 8] = [
        (r#"["header:X-Api-Key"]"#, None, "The request header x-api-key is required"),
        (r#"["header:X-Api-Key"]"#, Some(b""), "The request header x-api-key is required"),
        (r#"["metadata:auth.sub"]"#, None, "The request lacks an identity"),
        (r#"["metadata:auth.sub"]"#, Some(b""), "The request lacks an identity"),
        (r#"["client_address"]"#, None, "The request lacks an identity"),
        (r#"["client_address"]"#, Some(b""), "The request lacks an identity"),
        (r#"["client_address"]"#, Some(b"\xff\xfe"), "The request lacks an identity"),
        (r#"["client_address"]"#, Some(b"unix:/run/x"), "The request lacks an identity"),
    ];
    for (key, value, title) in rows {
        let decision = decision(begin(&keyed(key, ""), &[value]));
        assert_eq!((decision.report.policy, decision.report.limit), (Some(0), Some(0)), "{key}");
        assert_eq!((decision.report.outcome, decision.report.decided_by), (Outcome::Rejected, DecidedBy::Policy));
        let answer = answer(&decision);
        let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(body, serde_json::json!({"type": "about:blank", "title": title, "status": 400}), "{key}");
        assert_eq!((answer.status, answer.grpc_status), (400, GrpcStatus::InvalidArgument));
        assert_eq!(answer.grpc_message, title);
        assert_eq!(header(&answer.headers, "content-type"), Some("application/problem+json"));
        assert_eq!(header(&answer.headers, "cache-control"), Some("no-store"));
    }
}

#[test]
fn a_request_without_a_host_lacks_that_part() {
    let engine = keyed(r#"["host"]"#, "");
    let decision = decision(engine.begin(&engine.select("GET", "", "/"), &[]));
    assert_eq!(decision.report.outcome, Outcome::Rejected);
}

#[test]
fn a_missing_part_skips_the_limit_where_the_policy_says_so() {
    let skipping = keyed(r#"["header:x"]"#, r#", "on_missing_key": "skip""#);
    let decision = decision(begin(&skipping, &[None]));
    assert_eq!((decision.report.outcome, decision.report.decided_by), (Outcome::Allowed, DecidedBy::Policy));
    assert_eq!(response_headers(&decision), []);
    call(begin(&skipping, &[Some(b"v")]));
}

#[test]
fn a_limit_that_only_measures_is_skipped_when_its_key_is_missing() {
    let engine = engine_of(&format!("{}, {}", shadow("s").replace("constant:all", "header:x"), limit("w")), "");
    let call = call(begin(&engine, &[None]));
    assert_eq!(call.counted().iter().map(|counted| counted.limit).collect::<Vec<_>>(), [1]);
}

#[test]
fn too_few_values_are_missing_values() {
    let engine = keyed(r#"["header:a", "header:b"]"#, "");
    let selection = engine.select("GET", "a", "/");
    assert!(matches!(engine.begin(&selection, &[Some(b"v".to_vec())]), Step::Decide(_)));
    assert!(matches!(engine.begin(&selection, &[]), Step::Decide(_)));
}
