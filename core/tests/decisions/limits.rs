//! Several limits of one decision: which of them decides, which only measure.

use lockkeeper_core::decision::{DecidedBy, Outcome};

use crate::support::*;

const SECOND_US: u64 = 1_000_000;

#[test]
fn the_denying_limit_with_the_longest_wait_is_reported() {
    let engine = engine_of(&[limit("a"), limit("b"), limit("c"), limit("d")].join(","), "");
    let admits = (true, 5, 90 * SECOND_US, 0);
    let denies = |seconds: u64| (false, 0, seconds * SECOND_US, seconds * SECOND_US);
    let rows = [
        ([admits; 4], None),
        ([admits, denies(1), admits, admits], Some(1)),
        ([denies(3), denies(1), admits, denies(2)], Some(0)),
        ([denies(1), denies(2), denies(3), admits], Some(2)),
        ([admits, denies(2), denies(2), denies(1)], Some(1)),
        ([denies(0), admits, admits, admits], Some(0)),
    ];
    for (verdicts, limit) in rows {
        let decision = decided(&engine, &[], &verdicts);
        assert_eq!(decision.report.policy, Some(0));
        assert_eq!(decision.report.limit, limit, "{verdicts:?}");
        let outcome = if limit.is_some() { Outcome::Denied } else { Outcome::Allowed };
        assert_eq!((decision.report.outcome, decision.report.decided_by), (outcome, DecidedBy::Store));
    }
}

#[test]
fn a_limit_that_only_measures_never_denies_and_is_reported_when_it_would() {
    let engine = engine_of(&[shadow("s1"), limit("w"), shadow("s2")].join(","), "");
    let admits = (true, 5, SECOND_US, 0);
    let denies = (false, 0, 90 * SECOND_US, 90 * SECOND_US);
    let rows = [
        ([admits, admits, admits], Outcome::Allowed, vec![]),
        ([denies, admits, admits], Outcome::Allowed, vec![0]),
        ([denies, admits, denies], Outcome::Allowed, vec![0, 2]),
        ([admits, denies, denies], Outcome::Denied, vec![2]),
    ];
    for (verdicts, outcome, shadow_denials) in rows {
        let decision = decided(&engine, &[], &verdicts);
        assert_eq!(decision.report.outcome, outcome, "{verdicts:?}");
        let shadows: Vec<usize> = decision.report.shadow_denials.iter().map(|id| id.limit).collect();
        assert_eq!(shadows, shadow_denials, "{verdicts:?}");
        assert_eq!(decision.report.limit, (outcome == Outcome::Denied).then_some(1), "{verdicts:?}");
    }
}

#[test]
fn clients_do_not_see_limits_that_only_measure() {
    let engine = engine_of(&[shadow("s1"), limit("w"), shadow("s2")].join(","), "");
    let denies = (false, 0, 90 * SECOND_US, 90 * SECOND_US);
    let denied = decided(&engine, &[], &[denies, (false, 0, 2 * SECOND_US, 2 * SECOND_US), denies]);
    let answer = answer(&denied);
    assert_eq!(header(&answer.headers, "retry-after"), Some("2"));
    assert_eq!(header(&answer.headers, "ratelimit"), Some(r#""w";r=0;t=2"#));
    assert!(!format!("{answer:?}").contains("s1"), "{answer:?}");
    let only_shadow = engine_of(&shadow("s1"), "");
    assert_eq!(response_headers(&decided(&only_shadow, &[], &[denies])), []);
}

#[test]
fn a_request_that_no_policy_names_passes_without_a_call() {
    let engine = engine(&format!(
        r#"{{"version": 1, "policies": {{"p": {{"limits": [{}]}}}},
            "routes": [{{"match": {{"path": "/limited"}}, "policy": "p"}}]}}"#,
        limit("w")
    ));
    let decision = decision(begin(&engine, &[]));
    assert_eq!(response_headers(&decision), []);
    assert_eq!((decision.report.policy, decision.report.decided_by), (None, DecidedBy::Policy));
    let limited = engine.select("GET", "x", "/limited");
    call(engine.begin(&limited, &[]));
}
