//! What a request comes to hold, how long it waits for it, and when a grant comes too late.

use lockkeeper_core::admission::Arrival;
use lockkeeper_core::call::Call;
use lockkeeper_core::claim::Owner;
use lockkeeper_core::decision::{Decision, Outcome};
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::resp::Reply;

use crate::support::*;

const KEYED: &str = r#""idempotency": { "scope": ["header:authorization"], "on_unknown": "reject",
    "fingerprint": { "body": "ignored" } WAIT }"#;

fn policy(members: &str) -> Engine {
    engine(&format!(r#"{{"version": 1, "policies": {{"p": {{{members}}}}}, "default_policy": "p"}}"#))
}

/// A POST by `owner`, each of its headers being `v`.
fn post(engine: &Engine, owner: u8) -> Call {
    let selection = engine.select("POST", "api.example.com", "/");
    let values = vec![Some(b"v".to_vec()); engine.attributes(&selection).len()];
    let arrival = Arrival { owner: Some(Owner::new([owner; 16])), ..Arrival::default() };
    call(engine.begin_arrived(&selection, &values, &arrival))
}

fn busy(claim: usize, rows: &str) -> Reply {
    let count = 4 + rows.matches(':').count();
    parse(format!("*{count}\r\n$1\r\nt\r\n$4\r\nbusy\r\n:{claim}\r\n:9000000\r\n{rows}"))
}

/// A row of the limit on replays.
const REPLAY_ROW: &str = ":1\r\n:19\r\n:1\r\n:0\r\n";

/// Finds its claim busy until it is answered; how long it has waited in all, and how often.
fn waited(mut call: Call, reply: impl Fn(usize) -> Reply) -> (u64, usize, Decision) {
    let (mut total_us, mut waits) = (0, 0);
    loop {
        match call.resume(Ok(reply(waits))) {
            Step::WaitUntil(wait) => {
                total_us += wait.after_us();
                waits += 1;
                call = self::call(wait.resume());
            }
            step => return (total_us, waits, decision(step)),
        }
    }
}

#[test]
fn a_request_waits_for_each_claim_as_long_as_that_claims_rules_say() {
    let lock = r#""lock": { "key": ["header:x"], "wait": "1s", "fence_header": "lock-token" }"#;
    let engine = policy(&format!("{}, {lock}", KEYED.replace("WAIT", "")));
    let (us, waits, duplicate) = waited(post(&engine, 1), |_| busy(0, REPLAY_ROW));
    assert_eq!((us, waits, duplicate.report.outcome), (0, 0, Outcome::InFlight));
    let (us, waits, locked) = waited(post(&engine, 1), |_| busy(1, ""));
    assert_eq!((us, locked.report.outcome), (1_000_000, Outcome::Locked));
    assert!((5..=20).contains(&waits), "{waits} times");
}

#[test]
fn two_that_wait_for_one_lock_come_back_at_different_times() {
    let engine = policy(r#""lock": { "key": ["header:x"], "wait": "1s" }"#);
    let first_us = |owner| match post(&engine, owner).resume(Ok(busy(0, ""))) {
        Step::WaitUntil(wait) => wait.after_us(),
        other => panic!("{other:?}"),
    };
    let times: std::collections::BTreeSet<u64> = (0..16).map(|owner| first_us(owner * 0x11)).collect();
    assert_eq!(times.len(), 16, "{times:?}");
    assert!(times.iter().all(|us| (20_000..=50_000).contains(us)), "{times:?}");
}

#[test]
fn the_limit_on_replays_counts_a_duplicate_that_waits_once() {
    let engine = policy(&KEYED.replace("WAIT", r#", "wait": "1s""#));
    let first = post(&engine, 1);
    let keys = |call: &Call| command(call, "t")[2].clone();
    assert_eq!(keys(&first), b"3", "the limit's, the record's and the fence's");
    let Step::WaitUntil(wait) = first.resume(Ok(busy(0, REPLAY_ROW))) else { panic!("no wait") };
    let second = call(wait.resume());
    assert_eq!(keys(&second), b"2");
    let (_, _, answered) = waited(second, |_| busy(0, ""));
    assert_eq!(answered.report.outcome, Outcome::InFlight);
}

#[test]
fn a_request_without_a_slot_passes_a_limit_that_only_measures_and_holds_nothing() {
    let engine = policy(r#""concurrency": { "limit": 1, "key": ["header:x"], "enforce": false }"#);
    let slots = |admitted| {
        let decision = decision(post(&engine, 1).resume(Ok(reply(&[(admitted, 0, 5, 0)]))));
        decision.claimed.and_then(|claimed| claimed.lease).is_some()
    };
    assert_eq!([slots(true), slots(false)], [true, false]);
}

#[test]
fn a_grant_is_worth_nothing_after_the_shortest_lease_that_was_asked_for() {
    let slots = r#""concurrency": { "limit": 1, "key": ["header:x"], "lease": "7s" }"#;
    let lock = r#""lock": { "key": ["header:x"], "lease": "9s" }"#;
    let rows = [(slots.to_owned(), 7_000_000), (lock.to_owned(), 9_000_000), (format!("{slots}, {lock}"), 7_000_000)];
    for (members, us) in rows {
        assert_eq!(post(&policy(&members), 1).lapses_after_us(), us, "{members}");
    }
    assert_eq!(call(begin(&engine_of(&limit("w"), ""), &[])).lapses_after_us(), u64::MAX);
}
