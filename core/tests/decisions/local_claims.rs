//! Claims that this instance protects by itself: what the table's word leads to, beside the limits and the store.

use crate::support::{answer, begin, call, decision, engine_of, header, limit, local, parse};
use lockkeeper_core::admission::Arrival;
use lockkeeper_core::algorithm::{self, Verdict};
use lockkeeper_core::claim::{Admission, Command, Granted};
use lockkeeper_core::decision::{Action, Claimed, DecidedBy, Decision, Outcome};
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::lease::{Act, Keeper};
use lockkeeper_core::local::LocalDecision;
use lockkeeper_core::local_claims::{LocalClaimCall, Taken};
use lockkeeper_core::store::StoreFailure;

const GRANTED: Granted = Granted { fence: 7, attempt: 1 };
const BUSY: Admission = Admission::Busy { claim: 0, remaining_us: 2_000_000 };

/// A lock that the instance holds by itself when the store fails, and one limit of 10 a minute.
fn engine(on_limits: &str) -> Engine {
    let lock = r#"{"key": ["constant:r"], "on_store_failure": "local", "per_instance_protection": true}"#;
    engine_of(&limit("all"), &format!(r#", "lock": {lock}, "limits_on_store_failure": "{on_limits}""#))
}

fn local_claims(step: Step) -> LocalClaimCall {
    match step {
        Step::LocalClaims(claims) => claims,
        other => panic!("expected the table to be asked, got {other:?}"),
    }
}

/// The step after the store has failed and the table has said this.
fn after_failure(engine: &Engine, failure: StoreFailure, taken: Taken) -> Step {
    local_claims(call(begin(engine, &[])).resume(Err(failure))).resume(taken)
}

fn claimed(decision: &Decision) -> &Claimed {
    decision.claimed.as_deref().expect("something about claims")
}

fn judged(admitted: bool) -> LocalDecision {
    let retry_us = if admitted { 0 } else { 1_000_000 };
    let verdict = Verdict { admitted, remaining: 0, reset_us: 1, retry_us };
    LocalDecision {
        decision: algorithm::Decision { allowed: admitted, verdicts: vec![verdict] },
        overflowed: 0,
        mismatches: 0,
        contended: false,
        lost_refunds: 0,
    }
}

#[test]
fn a_grant_of_the_table_has_no_fence_and_is_the_instances_own() {
    let engine = engine("local");
    let granted = after_failure(&engine, StoreFailure::NotSent, Taken::Granted(vec![GRANTED]));
    let decision = decision(local(granted).resume(&judged(true)));
    assert_eq!((decision.report.outcome, decision.report.decided_by), (Outcome::Allowed, DecidedBy::Local));
    let Claimed { upstream, lease, releases } = claimed(&decision);
    assert!(upstream.once && upstream.set.is_empty(), "{upstream:?}");
    assert!(releases.is_empty());
    let lease = lease.as_ref().expect("a lease");
    assert_eq!(lease.renew().keeper(), Keeper::Instance);
    assert_eq!(lease.claims()[0].held.fence, Some(GRANTED.fence), "the table compares it");
}

#[test]
fn what_a_limit_denies_claims_nothing_in_the_table_either() {
    for (mode, outcome) in [("local", Outcome::Denied), ("deny", Outcome::Unavailable)] {
        let engine = engine(mode);
        let step = after_failure(&engine, StoreFailure::NotSent, Taken::Granted(vec![GRANTED]));
        let decision = decision(match step {
            Step::Local(local) => local.resume(&judged(false)),
            step => step,
        });
        assert_eq!(decision.report.outcome, outcome);
        let Claimed { lease, releases, .. } = claimed(&decision);
        assert!(lease.is_none());
        let [release] = &releases[..] else { panic!("one release: {releases:?}") };
        assert_eq!((release.act(), release.keeper()), (Act::Release, Keeper::Instance));
    }
}

#[test]
fn limits_that_allow_leave_the_decision_to_the_table() {
    let engine = engine("allow");
    let decision = decision(after_failure(&engine, StoreFailure::NotSent, Taken::Granted(vec![GRANTED])));
    assert_eq!((decision.report.outcome, decision.report.decided_by), (Outcome::Allowed, DecidedBy::Local));
    assert!(claimed(&decision).lease.is_some());
}

#[test]
fn what_the_table_knows_is_answered_and_what_it_cannot_hold_is_refused() {
    let engine = engine("local");
    let rows = [
        (Taken::Answered(BUSY), 423, Outcome::Locked, DecidedBy::Local),
        (Taken::NoRoom, 503, Outcome::Unavailable, DecidedBy::FailureMode),
        (Taken::Answered(Admission::Corrupt { claim: 0 }), 503, Outcome::Unavailable, DecidedBy::FailureMode),
    ];
    for (taken, status, outcome, decided_by) in rows {
        let decision = decision(after_failure(&engine, StoreFailure::NotSent, taken));
        assert_eq!(answer(&decision).status, status);
        assert_eq!((decision.report.outcome, decision.report.decided_by), (outcome, decided_by));
        assert!(header(&answer(&decision).headers, "retry-after").is_some());
        assert!(claimed(&decision).lease.is_none() && claimed(&decision).releases.is_empty());
    }
}

#[test]
fn what_an_unanswered_command_may_have_taken_in_the_store_is_given_back() {
    let engine = engine("allow");
    let again = call(begin(&engine, &[])).resume(Err(StoreFailure::Unknown));
    let claims = local_claims(call(again).resume(Err(StoreFailure::Unknown)));
    let decision = decision(claims.resume(Taken::Granted(vec![GRANTED])));
    let [release] = &claimed(&decision).releases[..] else { panic!("one release") };
    assert_eq!((release.act(), release.keeper()), (Act::Release, Keeper::Store));
    assert!(claimed(&decision).lease.is_some());
}

#[test]
fn the_table_notes_what_the_store_grants_or_has_it_given_back() {
    let engine = engine("local");
    let reply = parse("*8\r\n$1\r\nt\r\n$3\r\nnew\r\n$16\r\n1796083200123456\r\n:1\r\n:1\r\n:9\r\n:60\r\n:0\r\n");
    let rows = [
        (Taken::Granted(vec![GRANTED]), Outcome::Allowed, Some(Keeper::Both)),
        (Taken::NoRoom, Outcome::Allowed, Some(Keeper::Store)),
        (Taken::Answered(BUSY), Outcome::Locked, None),
    ];
    for (taken, outcome, keeper) in rows {
        let decision = decision(local_claims(call(begin(&engine, &[])).resume(Ok(reply.clone()))).resume(taken));
        assert_eq!(decision.report.outcome, outcome);
        let Claimed { lease, upstream, releases } = claimed(&decision);
        assert_eq!(lease.as_ref().map(|lease| lease.renew().keeper()), keeper);
        assert_eq!(header(&upstream.set, "fencing-token"), keeper.map(|_| "1796083200123456"));
        let given_back = releases.iter().map(|call| (call.keeper(), call.command()));
        for (keeper, command) in given_back {
            let Command::Release { holdings, .. } = command else { panic!("{command:?}") };
            assert_eq!((keeper, holdings.claims.len()), (Keeper::Store, 1));
        }
        assert_eq!(releases.len(), usize::from(keeper.is_none()));
        assert_eq!(matches!(decision.action, Action::Forward { .. }), keeper.is_some());
    }
}

#[test]
fn a_request_without_an_owner_is_not_taken_for_another() {
    let engine = engine("local");
    let selection = engine.select("GET", "api.example.com", "/");
    let decision = decision(engine.begin_arrived(&selection, &[], &Arrival::default()));
    assert_eq!(decision.report.outcome, Outcome::Unavailable);
}
