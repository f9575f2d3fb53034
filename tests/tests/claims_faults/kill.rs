//! Gateways that die at each step of a claimed request (reference list 34; case IDM-06): what the retry through another gateway gets.

use crate::world::{DEADLINE, World, pay, payment_bytes, told};
use lockkeeper_core::script;
use lockkeeper_tests::faulty_store::{Fault, FaultyStore};
use lockkeeper_tests::origin::{self, Act};
use lockkeeper_tests::process::Signal;
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{Envoy, poll};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// What a test does to bring its gateway to the step at which it dies.
struct Step {
    /// What the store does wrong for the first gateway, until it has died.
    fault: Option<(script::Script, Fault)>,
    /// How the upstream answers the first run.
    answer: Vec<Act>,
    /// Whether the step is reached.
    is_reached: fn(&World, &FaultyStore) -> bool,
}

/// Shorter than a lease, so that what goes on without its gateway has ended when the lease has.
const WORK: Duration = Duration::from_millis(700);

/// The claim is taken, and the gateway dies before it hears of that.
fn before_begins_reply() -> Step {
    Step {
        fault: Some((script::ADMIT, Fault::Unanswered)),
        answer: Vec::new(),
        is_reached: |world, _| world.state().as_deref() == Some("R"),
    }
}

/// The upstream works on the request.
fn after_dispatch() -> Step {
    Step { fault: None, answer: vec![Act::Wait(WORK)], is_reached: |world, _| world.origin.count() == 1 }
}

/// Half of the response has come.
fn while_the_response_is_held() -> Step {
    let half = origin::response(200, "{\"run\":0}\n");
    Step {
        fault: None,
        answer: vec![Act::Send(half[..half.len() - 4].to_vec()), Act::Wait(WORK)],
        // The upstream has written it; what is left of the way to the gateway is short.
        is_reached: |world, _| world.origin.count() == 1 && world.origin.is_at_work(),
    }
}

/// The response has come whole, and the command that completes never arrives.
fn before_complete() -> Step {
    Step {
        fault: Some((script::COMPLETE, Fault::Ignored)),
        answer: vec![Act::Send(origin::response(200, "{\"run\":0}\n"))],
        is_reached: |_, store| store.count(script::COMPLETE) > 0,
    }
}

/// The record is complete, and the client has not got a byte.
fn after_complete() -> Step {
    Step {
        fault: Some((script::COMPLETE, Fault::Unanswered)),
        answer: vec![Act::Send(origin::response(200, "{\"run\":0}\n"))],
        is_reached: |world, _| world.state().as_deref() == Some("D"),
    }
}

/// Kills a gateway at that step of a payment. Returns what is left, and another gateway.
fn killed_at(step: Step, on_unknown: &str) -> (World, Envoy) {
    let answer = step.answer;
    let world = World::start_with(Arc::new(move |arrived| match arrived.number {
        0 if !answer.is_empty() => answer.clone(),
        number => vec![Act::Send(origin::response(200, &format!("{{\"run\":{number}}}\n")))],
    }));
    let store = FaultyStore::start(world.redis.address()).expect("a loopback port is free");
    let more = json!({ "on_unknown": on_unknown, "lease": "2s" });
    let dying = world.envoy_at(store.address(), more.clone());
    let other = world.envoy(more);
    // Both have their pipes: what follows is in time.
    assert_eq!([pay(&dying, "").status, pay(&other, "").status], [400; 2]);
    if let Some((script, fault)) = step.fault {
        store.fail(script, fault);
    }
    let mut client = RawConnection::open(dying.address()).expect("Envoy accepts");
    client.send(&payment_bytes("k")).expect("Envoy reads");
    let is_reached = || (step.is_reached)(&world, &store).then_some(());
    poll::until("the step is reached", DEADLINE, is_reached).expect("the step is reached");
    dying.process().signal(Signal::Kill);
    assert!(client.receive().is_err(), "the client gets nothing");
    drop((dying, store));
    (world, other)
}

fn let_it_lapse() {
    std::thread::sleep(Duration::from_millis(2_200));
}

/// At most once: whatever the step was, the retry runs nothing that may have run.
fn is_unknown_ever_after(step: Step, runs: usize) {
    let (world, other) = killed_at(step, "reject");
    assert_eq!(told(&pay(&other, "k")), "409 idempotency-in-progress");
    let_it_lapse();
    for _ in 0..2 {
        let answer = pay(&other, "k");
        assert_eq!(told(&answer), "409 idempotency-outcome-unknown");
        assert_eq!(answer.header("retry-after"), None, "a retry would be of no use");
    }
    assert_eq!(world.origin.count(), runs, "{:?}", world.origin.arrived());
}

/// One at a time: the retry runs when the lease has lapsed, as the second attempt and with a higher fence.
fn runs_again_after_the_lease(step: Step, runs_before: usize) {
    let (world, other) = killed_at(step, "retry_after_lease");
    let fence: u64 = world.record()["f"].parse().expect("a fence is a number");
    assert_eq!(told(&pay(&other, "k")), "409 idempotency-in-progress");
    assert_eq!(world.origin.count(), runs_before);
    let_it_lapse();
    assert_eq!(told(&pay(&other, "k")), "200");
    assert_eq!(told(&pay(&other, "k")), "replayed 200");
    let runs = world.origin.arrived();
    assert_eq!((runs.len(), world.origin.most_at_work()), (runs_before + 1, 1), "{runs:?}");
    let last = &runs[runs_before];
    assert_eq!(last.header("idempotency-attempt"), Some("2"), "{last:?}");
    let later: u64 = last.header("fencing-token").and_then(|token| token.parse().ok()).expect("a token is a number");
    assert!(later > fence, "{later} after {fence}");
}

fn is_replayed(step: Step, on_unknown: &str) {
    let (world, other) = killed_at(step, on_unknown);
    for _ in 0..2 {
        let answer = pay(&other, "k");
        assert_eq!((told(&answer).as_str(), answer.body.as_str()), ("replayed 200", "{\"run\":0}\n"));
    }
    assert_eq!(world.origin.count(), 1);
}

#[test]
fn idm_06_killed_before_begins_reply_at_most_once() {
    is_unknown_ever_after(before_begins_reply(), 0);
}

#[test]
fn idm_06_killed_before_begins_reply_one_at_a_time() {
    runs_again_after_the_lease(before_begins_reply(), 0);
}

#[test]
fn idm_06_killed_after_dispatch_at_most_once() {
    is_unknown_ever_after(after_dispatch(), 1);
}

#[test]
fn idm_06_killed_after_dispatch_one_at_a_time() {
    runs_again_after_the_lease(after_dispatch(), 1);
}

#[test]
fn idm_06_killed_while_the_response_is_held_at_most_once() {
    is_unknown_ever_after(while_the_response_is_held(), 1);
}

#[test]
fn idm_06_killed_while_the_response_is_held_one_at_a_time() {
    runs_again_after_the_lease(while_the_response_is_held(), 1);
}

#[test]
fn idm_06_killed_before_complete_at_most_once() {
    is_unknown_ever_after(before_complete(), 1);
}

#[test]
fn idm_06_killed_before_complete_one_at_a_time() {
    runs_again_after_the_lease(before_complete(), 1);
}

#[test]
fn idm_06_killed_after_complete_the_outcome_is_replayed() {
    is_replayed(after_complete(), "reject");
    is_replayed(after_complete(), "retry_after_lease");
}
