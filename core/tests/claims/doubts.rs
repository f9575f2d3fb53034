//! Replies that do not come: a begin is sent again, once, by the same owner; and a request that ends without a grant
//! gives back, by owner, whatever an unanswered command may have taken.

use lockkeeper_core::call::Call;
use lockkeeper_core::decision::{DecidedBy, Decision, Outcome};
use lockkeeper_core::engine::Step;
use lockkeeper_core::script;
use lockkeeper_core::store::{Refusal, StoreFailure};

use crate::support::*;

/// A begin that was sent twice, for a key and a lock.
fn sent_again() -> Call {
    let first = call(begin(&engine(&[LIMIT, IDEMPOTENCY, LOCK])));
    let before = command(&first);
    let second = call(first.resume(Err(StoreFailure::Unknown)));
    assert_eq!(command(&second), before, "the same owner, the same arguments");
    second
}

/// The request gives back its key, its lock and `slots`, by owner alone, and its attempt does not count.
fn assert_given_back(decision: &Decision, what: &str) {
    let [release] = &*claimed(decision).releases else { panic!("{what}: not one release") };
    let words = told(release);
    assert_eq!(words[..3], ["EVALSHA", script::RELEASE.sha1, "4"], "{what}");
    assert!(words[3].contains("p.idempotency:{") && words[5].contains("p.lock:{"), "{what}");
    assert_eq!(words[7..], ["t", "2", OWNER, "", "1", OWNER, "", "1"], "{what}");
    assert!(claimed(decision).lease.is_none(), "{what}");
}

#[test]
fn conc_25_a_begin_whose_reply_is_lost_is_sent_again_and_granted_without_more() {
    let words = format!("$mine ${FENCE} 1 ${FENCE} 1");
    let decision = decision(sent_again().resume(Ok(reply(&words))));
    assert!(forwards(&decision));
    assert!(claimed(&decision).lease.is_some() && claimed(&decision).releases.is_empty());
}

#[test]
fn a_begin_that_was_sent_again_and_is_not_granted_gives_back_by_owner() {
    let words = [
        ("$denied 0 0 7000000 7000000", Outcome::Denied),
        ("$busy 0 2500000", Outcome::InFlight),
        ("$busy 1 2500000", Outcome::Locked),
        ("$mismatch 0", Outcome::Mismatch),
        ("$unknown 0", Outcome::OutcomeUnknown),
        ("$sealed $201 $ $too-large", Outcome::NotRetained),
        ("$done $201 $ $hello $", Outcome::Replayed),
        ("$corrupt 1", Outcome::Unavailable),
    ];
    for (words, outcome) in words {
        let decision = decision(sent_again().resume(Ok(reply(words))));
        assert_eq!(decision.report.outcome, outcome, "{words}");
        assert_given_back(&decision, words);
    }
}

#[test]
fn a_begin_that_fails_after_a_doubt_gives_back_by_owner() {
    let failures = [
        StoreFailure::NotSent,
        StoreFailure::Unknown,
        StoreFailure::Refused(Refusal::NoScript),
        StoreFailure::of_error("READONLY You can't write against a read only replica."),
    ];
    for failure in failures {
        let what = format!("{failure:?}");
        let decision = match sent_again().resume(Err(failure)) {
            // The text goes out once more, and fails too.
            Step::Call(whole) => decision(whole.resume(Err(StoreFailure::NotSent))),
            other => decision(other),
        };
        assert_eq!(
            (decision.report.outcome, decision.report.decided_by),
            (Outcome::Unavailable, DecidedBy::FailureMode)
        );
        assert_eq!(answer(&decision).status, 503, "{what}");
        assert_given_back(&decision, &what);
    }
}

#[test]
fn a_reply_of_another_shape_is_a_doubt() {
    for words in ["$new", "$granted", "1 9 0 0", "$busy 2 1"] {
        let first = call(begin(&engine(&[LIMIT, IDEMPOTENCY, LOCK])));
        let second = call(first.resume(Ok(reply(words))));
        assert_given_back(&decision(second.resume(Ok(reply(words)))), words);
    }
}

#[test]
fn a_begin_that_was_never_sent_or_was_refused_holds_nothing() {
    for failure in [StoreFailure::NotSent, StoreFailure::of_error("OOM command not allowed")] {
        let what = format!("{failure:?}");
        let decision = decision(call(begin(&engine(&[IDEMPOTENCY, LOCK]))).resume(Err(failure)));
        assert_eq!(answer(&decision).status, 503, "{what}");
        assert!(claimed(&decision).releases.is_empty() && claimed(&decision).lease.is_none(), "{what}");
    }
}

#[test]
fn an_unprotected_request_gives_back_what_it_may_hold_before_it_passes() {
    let allow = IDEMPOTENCY.replace("\"scope\"", "\"on_store_failure\": \"allow\", \"scope\"");
    let lock = LOCK.replace("\"key\"", "\"on_store_failure\": \"allow\", \"key\"");
    let second = call(call(begin(&engine(&[&allow, &lock]))).resume(Err(StoreFailure::Unknown)));
    let decision = decision(second.resume(Err(StoreFailure::Unknown)));
    assert!(forwards(&decision));
    assert!(!claimed(&decision).upstream.once && claimed(&decision).upstream.set.is_empty());
    assert_given_back(&decision, "allow");
}

#[test]
fn quota_55_a_slot_that_may_have_been_taken_is_given_back_and_not_asked_for_twice() {
    let doubts: [fn(Call) -> Step; 2] =
        [|call| call.resume(Err(StoreFailure::Unknown)), |call| call.resume(Ok(reply("1 9 0")))];
    for doubt in doubts {
        let engine = engine(&[SLOTS, r#""limits_on_store_failure": "allow""#]);
        let decision = decision(doubt(call(begin(&engine))));
        assert!(forwards(&decision));
        let [release] = &*claimed(&decision).releases else { panic!("not one release") };
        let words = told(release);
        assert_eq!(words[..3], ["EVALSHA", script::RELEASE.sha1, "1"]);
        assert_eq!(words[4..], ["t", "0", OWNER]);
    }
}

#[test]
fn conc_35_a_client_that_goes_away_while_the_command_is_on_its_way_leaves_nothing_behind() {
    let call = call(begin(&engine(&[LIMIT, IDEMPOTENCY])));
    let release = call.abandon().expect("a release");
    assert_eq!(told(&release)[5..], ["t", "1", OWNER, "", "1"]);
    let limits_alone = self::call(begin(&engine(&[LIMIT])));
    assert!(limits_alone.abandon().is_none(), "limits are not given back");
}

#[test]
fn a_waiter_that_was_in_doubt_gives_back_when_its_client_goes_away() {
    let waiting = LOCK.replace("\"key\"", "\"wait\": \"1s\", \"key\"");
    let second = call(call(begin(&engine(&[&waiting]))).resume(Err(StoreFailure::Unknown)));
    let Step::WaitUntil(wait) = second.resume(Ok(reply("$busy 0 30000000"))) else { panic!("it does not wait") };
    let release = wait.abandon().expect("a release");
    assert_eq!(told(&release)[5..], ["t", "1", OWNER, "", "1"]);
}
