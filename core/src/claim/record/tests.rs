//! The state machine row by row: beginning, while it runs, the end.

#![allow(clippy::arithmetic_side_effects, reason = "a test may overflow, loudly")]

use super::*;

const NOW_US: u64 = 1_796_083_200_123_456;
const LEASE_US: u64 = 30_000_000;
const LATER_US: u64 = NOW_US + 10_000_000;
const LAPSED_US: u64 = NOW_US + LEASE_US;

fn owner(byte: u8) -> Owner {
    Owner::new([byte; 16])
}

fn fingerprint(head: &str, body: &str) -> Fingerprint {
    Fingerprint { head: head.into(), body: body.into(), recipe: "1".into() }
}

fn ask(on_unknown: OnUnknown, head: &str, body: &str) -> Ask {
    Ask {
        kind: ClaimKind::Idempotency,
        record_key: "r".into(),
        fence_key: "f".into(),
        fingerprint: fingerprint(head, body),
        lease_us: LEASE_US,
        ttl_ms: 86_400_000,
        on_unknown,
        floor: 0,
    }
}

fn lock() -> Ask {
    Ask { kind: ClaimKind::Lock, fingerprint: Fingerprint::default(), ..ask(OnUnknown::Reject, "", "") }
}

fn done() -> Kept {
    Kept::Done { status: 201, headers: b"h".to_vec(), body: b"b".to_vec(), encoding: Encoding::Plain }
}

fn sealed() -> Kept {
    Kept::Sealed { status: 200, headers: Vec::new(), reason: "too-large".into() }
}

fn completion(by: u8, fence: u64, kept: Kept) -> Completion {
    Completion {
        owner: owner(by),
        record_key: "r".into(),
        fence_key: "f".into(),
        fence,
        attempt: 1,
        ttl_ms: 86_400_000,
        fingerprint: fingerprint("h", ""),
        kept,
    }
}

fn begin_one(place: &mut Place, ask: &Ask, by: u8, now_us: u64) -> Admission {
    begin(std::slice::from_mut(place), std::slice::from_ref(ask), owner(by), now_us)
}

fn granted(fence: u64, attempt: u64, is_again: bool) -> Admission {
    Admission::Granted { claims: vec![Granted { fence, attempt }], is_again }
}

/// Claimed by owner 1 at [`NOW_US`], head `h`, body `b`.
fn running() -> Place {
    let mut place = Place::default();
    begin_one(&mut place, &ask(OnUnknown::Reject, "h", "b"), 1, NOW_US);
    place
}

fn finished(kept: Kept) -> Place {
    let mut place = running();
    assert_eq!(place.complete(&completion(1, NOW_US, kept), NOW_US), Word::Ok);
    place
}

fn record(place: &Place) -> &Record {
    match &place.stored {
        Stored::Record(record) => record,
        other => panic!("no record but {other:?}"),
    }
}

#[test]
fn a_request_begins_by_what_it_finds() {
    use OnUnknown::{Reject, RetryAfterLease};
    let busy = Admission::Busy { claim: 0, remaining_us: LAPSED_US - LATER_US };
    let mismatch = Admission::Mismatch { claim: 0 };
    let corrupt = Place { stored: Stored::Corrupt, sibling: None };
    let rows = [
        ("B1", Place::default(), LATER_US, ask(Reject, "h", "b"), 2, granted(LATER_US, 1, false)),
        ("B2", running(), LATER_US, ask(Reject, "h", "b"), 1, granted(NOW_US, 1, true)),
        ("B2 lapsed", running(), LAPSED_US, ask(Reject, "h", "b"), 1, granted(NOW_US, 1, true)),
        ("B3 head", running(), LATER_US, ask(Reject, "x", "b"), 2, mismatch.clone()),
        ("B3 body", running(), LATER_US, ask(Reject, "h", "x"), 2, mismatch.clone()),
        ("B4", running(), LATER_US, ask(Reject, "h", "b"), 2, busy.clone()),
        ("B4 body unknown", running(), LATER_US, ask(Reject, "h", ""), 2, busy),
        ("B5", running(), LAPSED_US, ask(RetryAfterLease, "h", "x"), 2, mismatch.clone()),
        ("B6", running(), LAPSED_US, ask(RetryAfterLease, "h", "b"), 2, granted(LAPSED_US, 2, false)),
        ("B7", running(), LAPSED_US, ask(Reject, "h", "b"), 2, Admission::Unknown { claim: 0 }),
        ("B8", finished(done()), LATER_US, ask(Reject, "h", "b"), 2, Admission::Kept(done())),
        ("B8 own", finished(done()), LATER_US, ask(Reject, "h", "b"), 1, Admission::Kept(done())),
        ("B9", finished(done()), LATER_US, ask(Reject, "h", "x"), 2, mismatch.clone()),
        ("B9 sealed", finished(sealed()), LATER_US, ask(Reject, "x", "b"), 2, mismatch),
        ("B10", finished(sealed()), LATER_US, ask(Reject, "h", "b"), 2, Admission::Kept(sealed())),
        ("B11", corrupt.clone(), LATER_US, ask(RetryAfterLease, "h", "b"), 2, Admission::Corrupt { claim: 0 }),
        ("lock free", Place::default(), LATER_US, lock(), 2, granted(LATER_US, 1, false)),
        ("lock held", running(), LATER_US, lock(), 2, Admission::Busy { claim: 0, remaining_us: 20_000_000 }),
        ("lock own", running(), LATER_US, lock(), 1, granted(NOW_US, 1, true)),
        ("lock lapsed", running(), LAPSED_US, lock(), 2, granted(LAPSED_US, 2, false)),
        ("lock finished", finished(done()), LATER_US, lock(), 2, Admission::Corrupt { claim: 0 }),
        ("lock corrupt", corrupt, LATER_US, lock(), 2, Admission::Corrupt { claim: 0 }),
    ];
    for (row, mut place, now_us, ask, by, expected) in rows {
        let before = place.clone();
        assert_eq!(begin_one(&mut place, &ask, by, now_us), expected, "{row}");
        match expected {
            Admission::Granted { .. } => {
                assert_eq!(record(&place).owner, owner(by), "{row}");
                assert_eq!(record(&place).deadline_us, now_us + LEASE_US, "{row}");
            }
            _ => assert_eq!(place, before, "{row}: an answer changes nothing"),
        }
    }
}

#[test]
fn other_rules_make_no_mismatch() {
    let mut newer = ask(OnUnknown::Reject, "x", "x");
    newer.fingerprint.recipe = "2".into();
    assert_eq!(begin_one(&mut finished(done()), &newer, 2, LATER_US), Admission::Kept(done()));
}

#[test]
fn all_claims_are_taken_or_none() {
    let asks = [ask(OnUnknown::Reject, "h", "b"), lock()];
    let mut places = [Place::default(), running()];
    let busy = Admission::Busy { claim: 1, remaining_us: LAPSED_US - LATER_US };
    assert_eq!(begin(&mut places, &asks, owner(2), LATER_US), busy);
    assert_eq!(places, [Place::default(), running()]);

    let fence = LAPSED_US;
    let claims = vec![Granted { fence, attempt: 1 }, Granted { fence, attempt: 2 }];
    let taken = Admission::Granted { claims: claims.clone(), is_again: false };
    assert_eq!(begin(&mut places, &asks, owner(2), LAPSED_US), taken);
    let again = Admission::Granted { claims, is_again: true };
    assert_eq!(begin(&mut places, &asks, owner(2), LAPSED_US), again);
    places[0] = Place::default();
    let Admission::Granted { claims, is_again: true } = begin(&mut places, &asks, owner(2), LATER_US) else {
        panic!("what was lost is taken again")
    };
    assert_eq!(claims.iter().map(|one| one.attempt).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_fence_is_above_everything_that_is_known() {
    let ahead_us = NOW_US + FENCE_AHEAD_US;
    let sibling = |fence| Some(Sibling { fence, attempt: 4 });
    let rows = [
        ("clock", None, 0, NOW_US, 1),
        ("remembered", sibling(NOW_US + 5), 0, NOW_US + 6, 5),
        ("remembered before", sibling(NOW_US - 5), 0, NOW_US, 5),
        ("remembered now", sibling(NOW_US), 0, NOW_US + 1, 5),
        ("floor", sibling(NOW_US + 5), NOW_US + 9, NOW_US + 10, 5),
        ("floor a year ahead", None, ahead_us, ahead_us + 1, 1),
        ("floor too far ahead", None, ahead_us + 1, NOW_US, 1),
        ("remembered too far ahead", sibling(ahead_us + 1), 0, NOW_US, 5),
        ("floor beyond numbers", None, u64::MAX, NOW_US, 1),
    ];
    for (row, sibling, floor, fence, attempt) in rows {
        let mut place = Place { stored: Stored::Absent, sibling };
        let ask = Ask { floor, ..ask(OnUnknown::Reject, "h", "b") };
        assert_eq!(begin_one(&mut place, &ask, 1, NOW_US), granted(fence, attempt, false), "{row}");
        assert_eq!(place.sibling, Some(Sibling { fence, attempt }), "{row}");
    }
}

#[test]
fn a_takeover_is_above_the_record_when_nothing_is_remembered_and_the_clock_stepped_back() {
    let mut place = running();
    place.sibling = None;
    let early_us = NOW_US - 3_600_000_000;
    assert_eq!(
        begin_one(&mut place, &lock(), 2, early_us),
        Admission::Busy { claim: 0, remaining_us: LEASE_US },
        "the holder keeps no more than its lease"
    );
    let admission = begin_one(&mut place, &lock(), 2, early_us + LEASE_US);
    assert_eq!(admission, granted(NOW_US + 1, 2, false));
}

#[test]
fn a_renewal_lasts_from_now_and_never_shortens() {
    let rows = [
        ("R1", 1, Some(NOW_US), LATER_US, LEASE_US, Word::Ok, LATER_US + LEASE_US),
        ("R1 by owner alone", 1, None, LATER_US, LEASE_US, Word::Ok, LATER_US + LEASE_US),
        ("R1 lapsed, nobody took over", 1, None, LAPSED_US, LEASE_US, Word::Ok, LAPSED_US + LEASE_US),
        ("shorter", 1, None, LATER_US, 1_000_000, Word::Ok, LAPSED_US),
        ("longer", 1, None, LATER_US, 60_000_000, Word::Ok, LATER_US + 60_000_000),
        ("clock stepped back", 1, None, NOW_US - 1_000_000, LEASE_US, Word::Ok, NOW_US - 1_000_000 + LEASE_US),
        ("R2 another's", 2, None, LATER_US, LEASE_US, Word::Lost, LAPSED_US),
        ("R2 another fence", 1, Some(NOW_US - 1), LATER_US, LEASE_US, Word::Lost, LAPSED_US),
    ];
    for (row, by, fence, now_us, lease_us, word, deadline_us) in rows {
        let mut place = running();
        assert_eq!(place.renew(owner(by), fence, lease_us, now_us), word, "{row}");
        assert_eq!(record(&place).deadline_us, deadline_us, "{row}");
    }
    assert_eq!(Place::default().renew(owner(1), None, LEASE_US, NOW_US), Word::Gone);
    assert_eq!(finished(done()).renew(owner(1), None, LEASE_US, NOW_US), Word::Done);
    assert_eq!(finished(done()).renew(owner(2), None, LEASE_US, NOW_US), Word::Lost);
    let mut corrupt = Place { stored: Stored::Corrupt, sibling: None };
    assert_eq!(corrupt.renew(owner(1), None, LEASE_US, NOW_US), Word::Corrupt);
}

#[test]
fn a_renewal_brings_back_what_was_remembered() {
    let mut place = running();
    place.sibling = None;
    place.renew(owner(1), None, LEASE_US, LATER_US);
    assert_eq!(place, {
        let mut whole = running();
        whole.renew(owner(1), None, LEASE_US, LATER_US);
        whole
    });
}

#[test]
fn only_the_holder_finishes_and_what_is_finished_stays() {
    let taken_over = || {
        let mut place = running();
        begin_one(&mut place, &ask(OnUnknown::RetryAfterLease, "h", "b"), 2, LAPSED_US);
        place
    };
    let gone = |sibling| Place { stored: Stored::Absent, sibling };
    let remembers = |fence| Some(Sibling { fence, attempt: 1 });
    let by_other_fence = completion(1, NOW_US - 1, done());
    let rows = [
        ("E1", running(), completion(1, NOW_US, done()), Word::Ok, Some(done())),
        ("E2", running(), completion(1, NOW_US, sealed()), Word::Ok, Some(sealed())),
        ("E8 another's", taken_over(), completion(1, NOW_US, done()), Word::Busy, None),
        ("E8 another's that lapsed", running(), completion(2, NOW_US, done()), Word::Lost, None),
        ("E8 another fence", running(), by_other_fence, Word::Lost, None),
        ("E8 another finished", finished(done()), completion(2, NOW_US, sealed()), Word::Lost, Some(done())),
        ("E9 nothing known", gone(None), completion(1, NOW_US, done()), Word::Ok, Some(done())),
        ("E9 own fence", gone(remembers(NOW_US)), completion(1, NOW_US, done()), Word::Ok, Some(done())),
        ("E9 newer fence", gone(remembers(NOW_US + 1)), completion(1, NOW_US, done()), Word::Lost, None),
        ("E10", finished(done()), completion(1, NOW_US, sealed()), Word::Ok, Some(done())),
    ];
    for (row, mut place, completion, word, kept) in rows {
        let before = place.clone();
        assert_eq!(place.complete(&completion, LAPSED_US), word, "{row}");
        let found = if let Stored::Record(record) = &place.stored { record.kept.clone() } else { None };
        assert_eq!(found, kept, "{row}");
        if word != Word::Ok {
            assert_eq!(place, before, "{row}: a stale owner changes nothing");
        }
    }
    let mut given_back = taken_over();
    let pushed = completion(1, LAPSED_US + 1_000_000, done());
    assert_eq!(given_back.complete(&pushed, LAPSED_US), Word::Busy);
    assert_eq!(given_back.release(owner(2), None, true, LAPSED_US), Word::Ok);
    assert_eq!(given_back.complete(&pushed, LAPSED_US), Word::Ok);
    let mut corrupt = Place { stored: Stored::Corrupt, sibling: None };
    assert_eq!(corrupt.complete(&completion(1, NOW_US, done()), NOW_US), Word::Corrupt);
}

#[test]
fn a_completion_keeps_the_fingerprint_and_may_bring_the_body() {
    let place = finished(done());
    assert_eq!((&record(&place).fingerprint, record(&place).attempt), (&fingerprint("h", "b"), 1));
    let mut unknown = Place::default();
    begin_one(&mut unknown, &ask(OnUnknown::Reject, "h", ""), 1, NOW_US);
    let completion = Completion { fingerprint: fingerprint("h", "late"), ..completion(1, NOW_US, done()) };
    unknown.complete(&completion, NOW_US);
    assert_eq!(record(&unknown).fingerprint, fingerprint("h", "late"));
}

#[test]
fn only_the_holder_gives_back_and_the_next_fence_is_higher() {
    let rows = [
        ("E3", 1, Some(NOW_US), false, Word::Ok, 1),
        ("E5 never dispatched", 1, Some(NOW_US), true, Word::Ok, 0),
        ("reply lost: by owner", 1, None, true, Word::Ok, 0),
        ("another's", 2, None, false, Word::Lost, 1),
        ("another fence", 1, Some(NOW_US + 1), false, Word::Lost, 1),
    ];
    for (row, by, fence, is_uncounted, word, attempt) in rows {
        let mut place = running();
        assert_eq!(place.release(owner(by), fence, is_uncounted, LATER_US), word, "{row}");
        assert_eq!(place.stored == Stored::Absent, word == Word::Ok, "{row}");
        assert_eq!(place.sibling, Some(Sibling { fence: NOW_US, attempt }), "{row}");
        if word == Word::Ok {
            assert_eq!(place.release(owner(by), fence, is_uncounted, LATER_US), Word::Gone, "{row} again");
            let next = begin_one(&mut place, &lock(), 2, NOW_US);
            assert_eq!(next, granted(NOW_US + 1, attempt + 1, false), "{row}");
        }
    }
    assert_eq!(finished(done()).release(owner(1), None, false, LATER_US), Word::Done);
    assert_eq!(finished(done()).release(owner(2), None, false, LATER_US), Word::Lost);
}

#[test]
fn records_are_read_whole_or_not_at_all() {
    let digits = "ab".repeat(16);
    let whole: Vec<(&str, &str)> = vec![
        ("v", "1"),
        ("s", "D"),
        ("o", &digits),
        ("f", "7"),
        ("d", "9"),
        ("l", "5"),
        ("p", "h"),
        ("q", ""),
        ("pv", "1"),
        ("n", "2"),
        ("t", "3"),
        ("c", "201"),
        ("h", "lines"),
        ("b", "body"),
        ("e", "base64"),
    ];
    let read = |fields: &[(&str, &str)]| {
        Record::parse(|name| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes()))
    };
    let record = read(&whole).unwrap();
    assert_eq!((record.owner, record.fence, record.attempt), (owner(0xab), 7, 2));
    for index in 0..whole.len() {
        let mut fields = whole.clone();
        fields.remove(index);
        assert_eq!(read(&fields), None, "without {:?}", whole[index].0);
    }
    let broken = [
        ("v", "2"),
        ("s", "X"),
        ("o", "me"),
        ("f", "-1"),
        ("d", ""),
        ("l", "1e3"),
        ("n", "9007199254740992"),
        ("t", "x"),
        ("c", "20"),
        ("e", "gzip"),
    ];
    for (name, value) in broken {
        let fields: Vec<_> =
            whole.iter().map(|(known, held)| (*known, if *known == name { value } else { *held })).collect();
        assert_eq!(read(&fields), None, "{name} {value:?}");
    }
}

#[test]
fn what_is_remembered_is_two_numbers() {
    assert_eq!(Sibling::parse(b"17:2"), Some(Sibling { fence: 17, attempt: 2 }));
    for foreign in [&b""[..], b"17", b"17:", b":2", b"17:2:1", b"-1:2", b"1.5:2", b"9007199254740992:1"] {
        assert_eq!(Sibling::parse(foreign), None);
    }
}
