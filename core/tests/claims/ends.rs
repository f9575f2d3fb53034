//! How a request ends what it holds.

use lockkeeper_core::capture::{End, RecordEnd};
use lockkeeper_core::idempotency::outcome::{Dispatched, SealReason};
use lockkeeper_core::idempotency::stored::Stored;
use lockkeeper_core::lease::{Act, Lease, LeaseStep, Word};
use lockkeeper_core::script;
use lockkeeper_core::store::{Refusal, StoreFailure};

use crate::support::*;

fn held(members: &[&str]) -> Lease {
    let claims = members.iter().filter(|member| !member.contains("concurrency")).count();
    let words = format!("$new {}{}", format!("${FENCE} 1 ").repeat(claims), "1 2 0 0".repeat(members.len() - claims));
    let decision = decision(call(begin(&engine(members))).resume(Ok(reply(&words))));
    claimed(&decision).lease.clone().expect("a lease")
}

fn stored() -> Stored {
    Stored { status: 201, headers: Vec::new(), body: b"hello".to_vec() }
}

fn end(record: RecordEnd, is_over: bool) -> End {
    End { record, is_over }
}

fn acts(lease: &Lease, end: &End) -> Vec<String> {
    let script = |sha1: &str| if sha1 == script::COMPLETE.sha1 { "complete" } else { "release" };
    let describe = |words: Vec<String>| format!("{} {}", script(&words[1]), words[2]);
    lease.end(end).iter().map(|call| describe(told(call))).collect()
}

#[test]
fn each_end_completes_or_gives_back_and_a_lock_stays_while_the_upstream_may_work() {
    let lease = held(&[SLOTS, IDEMPOTENCY, LOCK]);
    let rows: [(End, &[&str]); 6] = [
        (end(RecordEnd::Keep(stored()), true), &["complete 2", "release 3"]),
        (end(RecordEnd::Seal(stored(), SealReason::TooLarge), true), &["complete 2", "release 3"]),
        (End::RELEASED, &["release 5"]),
        (End::cut(Dispatched::Never), &["release 5"]),
        (End::cut(Dispatched::Maybe), &["release 1"]),
        (end(RecordEnd::LeaveUnknown, true), &["release 3"]),
    ];
    for (end, expected) in rows {
        assert_eq!(acts(&lease, &end), expected, "{end:?}");
    }
}

#[test]
fn a_completion_names_owner_fence_outcome_and_fingerprint() {
    let lease = held(&[IDEMPOTENCY]);
    let calls = lease.end(&end(RecordEnd::Keep(stored()), true));
    let [complete] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((complete.act(), complete.bytes() >= 5, complete.is_bulky()), (Act::Complete, true, false));
    let words = told(complete);
    assert_eq!(words[5..11].join(" "), format!("t {OWNER} {FENCE} 86400000 D 201"));
    assert_eq!([&words[12], &words[13], &words[14]], ["hello", "", ""]);
    assert_eq!(words.last().map(String::as_str), Some("1"), "the attempt");
    let begun = command(&call(begin(&engine(&[IDEMPOTENCY]))));
    assert_eq!(words[15..18], begun[8..11], "the fingerprint that it began with");
}

#[test]
fn a_body_that_becomes_known_on_the_way_is_stored_with_the_outcome() {
    let mut lease = held(&[IDEMPOTENCY]);
    lease.bind_body("ab".repeat(32));
    let calls = lease.end(&end(RecordEnd::Keep(stored()), true));
    assert_eq!(told(&calls[0])[16], "ab".repeat(32));
}

#[test]
fn an_attempt_that_never_reached_the_upstream_does_not_count() {
    let lease = held(&[IDEMPOTENCY]);
    let uncounted = |end: &End| told(&lease.end(end)[0]).last().cloned();
    assert_eq!(uncounted(&End::cut(Dispatched::Never)), Some("1".to_owned()));
    assert_eq!(uncounted(&End::RELEASED), Some("0".to_owned()));
}

#[test]
fn a_command_about_what_is_held_is_sent_whole_once_and_again_after_a_failure() {
    let no_script = || Err(StoreFailure::Refused(Refusal::NoScript));
    let renew = held(&[IDEMPOTENCY, LOCK]).renew();
    let LeaseStep::Call(whole) = renew.resume(no_script()) else { panic!("it is not sent whole") };
    assert_eq!(told(&whole)[0], "EVAL");
    let LeaseStep::Failed(again, StoreFailure::Refused(Refusal::NoScript)) = whole.resume(no_script()) else {
        panic!("a second NOSCRIPT is a failure")
    };
    assert_eq!(told(&again)[0], "EVALSHA", "later, by its hash again");
    let LeaseStep::Failed(again, StoreFailure::Unknown) = again.resume(Err(StoreFailure::Unknown)) else {
        panic!("it may be sent again")
    };
    let LeaseStep::Done(words) = again.resume(Ok(reply("$ok $lost"))) else { panic!("it is done") };
    assert_eq!(words, [Word::Ok, Word::Lost]);
}

#[test]
fn a_reply_of_another_shape_is_a_failure() {
    for words in ["$ok", "$ok $ok $ok", "$ok $OK", "1 1"] {
        let step = held(&[IDEMPOTENCY, LOCK]).renew().resume(Ok(reply(words)));
        assert!(matches!(step, LeaseStep::Failed(..)), "{words}: {step:?}");
    }
}
