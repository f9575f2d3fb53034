//! What each answer of the store leads to.

use lockkeeper_core::call::Call;
use lockkeeper_core::decision::{DecidedBy, Outcome};
use lockkeeper_core::engine::Step;
use lockkeeper_core::script;

use crate::support::*;

#[test]
fn one_command_looks_counts_and_claims() {
    let call = call(begin(&engine(&[LIMIT, SLOTS, IDEMPOTENCY, LOCK])));
    let words = command(&call);
    assert_eq!(words[..3], ["EVALSHA", script::ADMIT.sha1, "6"]);
    let keys = &words[3..9];
    assert!(keys[2].ends_with(":r") && keys[3].ends_with(":f") && keys[4].ends_with(":r") && keys[5].ends_with(":f"));
    assert!(keys[2].contains("p.idempotency:{") && keys[4].contains("p.lock:{"), "{keys:?}");
    let arguments = &words[9..];
    assert_eq!(arguments[0], "t");
    assert_eq!(arguments[1..8].join(" "), "window 1 1 10 60000000 0 0");
    assert_eq!(arguments[8..15].join(" "), format!("slots 1 1 3 30000000 {OWNER} 0"));
    assert_eq!([&arguments[15], &arguments[16]], ["idem", OWNER]);
    assert_eq!(arguments[20..24].join(" "), "30000000 86400000 reject 5");
    assert_eq!([&arguments[24], &arguments[25]], ["lock", OWNER]);
    assert_eq!(arguments[29..].join(" "), "30000000 86400000 retry 5 2 2");
}

#[test]
fn a_grant_passes_with_fence_and_attempt_and_holds_everything() {
    let engine = engine(&[LIMIT, SLOTS, IDEMPOTENCY, LOCK]);
    let rows = "1 9 60000000 0 1 2 30000000 0";
    let words = format!("$new ${FENCE} 2 $1796083200123999 1 {rows}");
    let decision = decision(call(begin(&engine)).resume(Ok(reply(&words))));
    assert!(forwards(&decision));
    assert_eq!((decision.report.outcome, decision.report.decided_by), (Outcome::Allowed, DecidedBy::Store));
    let claimed = claimed(&decision);
    let set: Vec<_> = claimed.upstream.set.iter().map(|(name, value)| (name.as_ref(), value.as_str())).collect();
    let expected = [("idempotency-attempt", "2"), ("fencing-token", FENCE), ("lock-token", "1796083200123999")];
    assert_eq!(set, expected);
    assert!(claimed.upstream.once && claimed.releases.is_empty());
    let lease = claimed.lease.as_ref().expect("a lease");
    let renewal = told(&lease.renew());
    assert_eq!(renewal[..3], ["EVALSHA", script::RENEW.sha1, "5"]);
    assert_eq!(renewal[8..10], ["t", "2"]);
    assert_eq!(renewal[10..14].join(" "), format!("{OWNER} {FENCE} 30000000 86400000"));
    assert_eq!(renewal[14..18].join(" "), format!("{OWNER} 1796083200123999 30000000 86400000"));
    assert_eq!(renewal[18..].join(" "), format!("{OWNER} 30000000"));
    assert_eq!(
        (lease.renew_every_us(), lease.shortest_us(), lease.renewed_for_us()),
        (10_000_000, 30_000_000, 600_000_000)
    );
}

#[test]
fn a_small_fence_is_padded_so_that_texts_compare_like_numbers() {
    let decision = decision(call(begin(&engine(&[IDEMPOTENCY]))).resume(Ok(reply("$new $17 1"))));
    let set = &claimed(&decision).upstream.set;
    assert!(set.contains(&("fencing-token".into(), "0000000000000017".into())), "{set:?}");
}

#[test]
fn a_request_that_was_here_before_passes_with_its_fence_and_no_quota_fields() {
    let engine = engine(&[LIMIT, IDEMPOTENCY]);
    let decision = decision(call(begin(&engine)).resume(Ok(reply(&format!("$mine ${FENCE} 1")))));
    assert!(forwards(&decision));
    assert!(claimed(&decision).lease.is_some() && claimed(&decision).releases.is_empty());
    assert_eq!(decision.reset_in_s, None);
}

/// Outcome, status, Retry-After.
type Row = (&'static str, Outcome, u16, Option<&'static str>);

#[test]
fn every_other_answer_is_final_and_holds_nothing() {
    let replay_limit = IDEMPOTENCY.replace("false}", r#"{"capacity": 5, "refill": "1/s"}}"#);
    let engine = engine(&[LIMIT, &replay_limit, LOCK]);
    let row = "1 9 0 0";
    let rows: [Row; 9] = [
        ("$denied 0 0 7000000 7000000", Outcome::Denied, 429, Some("7")),
        ("$limited 0 0 1000000 2000000", Outcome::ReplayLimited, 429, Some("2")),
        ("$busy 0 2500000 ROW", Outcome::InFlight, 409, Some("3")),
        ("$busy 1 2500000", Outcome::Locked, 423, Some("3")),
        ("$mismatch 0 ROW", Outcome::Mismatch, 422, None),
        ("$unknown 0 ROW", Outcome::OutcomeUnknown, 409, None),
        ("$sealed $201 $ $too-large ROW", Outcome::NotRetained, 409, None),
        ("$done $201 $ $hello $ ROW", Outcome::Replayed, 201, None),
        ("$corrupt 0", Outcome::Unavailable, 503, Some("1")),
    ];
    for (words, outcome, status, retry_after) in rows {
        let decision = decision(call(begin(&engine)).resume(Ok(reply(&words.replace("ROW", row)))));
        assert_eq!(decision.report.outcome, outcome, "{words}");
        assert_eq!(answer(&decision).status, status, "{words}");
        assert_eq!(header(&decision, "retry-after").is_some(), retry_after.is_some(), "{words}");
        if outcome != Outcome::Unavailable {
            assert_eq!(header(&decision, "retry-after"), retry_after, "{words}");
        }
        let claimed = claimed(&decision);
        assert!(claimed.lease.is_none() && claimed.releases.is_empty(), "{words}");
        assert!(claimed.upstream.set.is_empty() && !claimed.upstream.once, "{words}");
    }
}

#[test]
fn a_waiter_asks_again_a_little_later_each_time_until_its_time_is_up_and_holds_nothing() {
    let waiting = LOCK.replace("\"key\"", "\"wait\": \"300ms\", \"key\"");
    let engine = engine(&[&waiting]);
    let mut call = call(begin(&engine));
    let first = command(&call);
    let mut waits_us = Vec::new();
    let decision = loop {
        match call.resume(Ok(reply("$busy 0 30000000"))) {
            Step::WaitUntil(wait) => {
                waits_us.push(wait.after_us());
                assert!(wait.abandon().is_none(), "a waiter holds nothing");
                call = self::call(wait.resume());
                assert_eq!(command(&call), first, "the same request");
            }
            other => break decision(other),
        }
    };
    assert_eq!(waits_us.iter().sum::<u64>(), 300_000);
    assert!(waits_us.len() > 2 && waits_us[0] < waits_us[1], "{waits_us:?}");
    assert_eq!((decision.report.outcome, answer(&decision).status), (Outcome::Locked, 423));
    assert!(claimed(&decision).lease.is_none() && claimed(&decision).releases.is_empty());
}

#[test]
fn a_call_asks_for_a_fence_above_what_its_host_has_seen_meanwhile() {
    let mut call = call(begin(&engine(&[IDEMPOTENCY])));
    let floor = |call: &Call| command(call).iter().rev().nth(2).cloned();
    assert_eq!(floor(&call), Some("5".to_owned()));
    call.raise_floor(1_796_083_200_123_456);
    assert_eq!(floor(&call).as_deref(), Some(FENCE));
    call.raise_floor(7);
    assert_eq!(floor(&call).as_deref(), Some(FENCE), "it never falls");
}
