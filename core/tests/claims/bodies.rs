//! Requests whose body belongs to what they are: nothing is claimed before it is complete.

use lockkeeper_core::admission::Body;
use lockkeeper_core::decision::Outcome;
use lockkeeper_core::engine::{Collected, Engine, NeedBody, Step};

use crate::support::*;

/// Bodies are held whoever sends them.
fn held(members: &str) -> Engine {
    let fingerprint = format!(r#""fingerprint": {{"hold_limit": false{members}}}, "scope""#);
    engine(&[&IDEMPOTENCY.replace("\"scope\"", &fingerprint)])
}

fn need(engine: &Engine) -> NeedBody {
    match begin_with(engine, Body::Unknown) {
        Step::NeedBody(need) => need,
        other => panic!("expected to need the body, got {}", name(&other)),
    }
}

/// The body's part of the fingerprint in the command.
fn fingerprint(step: Step) -> String {
    command(&call(step))[9].clone()
}

#[test]
fn bodies_that_differ_have_fingerprints_that_differ_and_an_empty_one_is_like_none() {
    let engine = held("");
    let of = |body: &[u8]| fingerprint(need(&engine).resume(Collected::Whole(body)));
    assert_eq!(need(&engine).bytes_max(), 65_536);
    assert_ne!(of(b"{}"), of(b"{ }"));
    assert_eq!(of(b"{}").len(), 64);
    assert_eq!(of(b""), fingerprint(begin(&engine)), "19: empty and absent are one");
}

#[test]
fn a_body_that_is_too_large_or_does_not_come_claims_nothing() {
    let engine = held("");
    let steps = [
        (need(&engine).resume(Collected::TooLarge), 413),
        (begin_with(&engine, Body::Bytes(65_537)), 413),
        (need(&engine).resume(Collected::Failed), 503),
    ];
    for (step, status) in steps {
        let decision = decision(step);
        assert_eq!((decision.report.outcome, answer(&decision).status), (Outcome::KeyRejected, status));
        assert!(decision.claimed.is_none(), "nothing was sent, so there is nothing to give back");
    }
}

#[test]
fn a_body_that_is_too_large_may_count_as_unknown() {
    let engine = held(r#", "over_max": "unfingerprinted", "max_body_bytes": 4"#);
    assert_eq!(fingerprint(need(&engine).resume(Collected::TooLarge)), "");
    assert_eq!(fingerprint(begin_with(&engine, Body::Bytes(5))), "");
}
