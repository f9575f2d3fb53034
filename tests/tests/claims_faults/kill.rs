//! Gateways that die at each step of a claimed request (reference list 34; case IDM-06): what the retry through another gateway gets.

use crate::world::{DEADLINE, World, pay, payment_bytes, told};
use lockkeeper_core::script::{self, Script};
use lockkeeper_tests::faulty_store::{Fault, FaultyStore};
use lockkeeper_tests::origin::{self, Piece, Seen};
use lockkeeper_tests::process::Signal;
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::{Envoy, poll};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Long enough for a retry in time, with a gateway that was renewing when it died.
const LEASE: Duration = Duration::from_secs(3);
/// Shorter than the lease, so that what goes on without its gateway has ended when the lease has.
const WORK: Duration = Duration::from_millis(700);

/// Where a gateway dies: also the key of its request.
struct Step {
    name: &'static str,
    /// What the store does wrong for that gateway.
    fault: Option<(Script, Fault)>,
    /// Whether it has got there.
    is_reached: fn(&World, &FaultyStore) -> bool,
    /// Whether the upstream was asked by then.
    has_run: bool,
}

fn steps() -> [Step; 4] {
    [
        Step {
            name: "before-begins-reply",
            fault: Some((script::ADMIT, Fault::Unanswered)),
            is_reached: |_, store| store.count(script::ADMIT) > 0,
            has_run: false,
        },
        Step { name: "after-dispatch", fault: None, is_reached: |world, _| world.origin.is_at_work(), has_run: true },
        Step { name: "while-held", fault: None, is_reached: |world, _| world.origin.is_at_work(), has_run: true },
        Step {
            name: "before-complete",
            fault: Some((script::COMPLETE, Fault::Ignored)),
            is_reached: |_, store| store.count(script::COMPLETE) > 0,
            has_run: true,
        },
    ]
}

/// First runs last until the gateway that asked is dead; later ones are answered at once.
fn first_runs_are_slow(seen: &Seen) -> Vec<Piece> {
    let whole = origin::response(200, &format!("{{\"run\":{}}}\n", seen.number));
    let is_first = seen.header("idempotency-attempt") == Some("1");
    match seen.header("idempotency-key") {
        Some("after-dispatch") if is_first => vec![Piece::Pause(WORK)],
        Some("while-held") if is_first => vec![Piece::Bytes(whole[..whole.len() - 4].to_vec()), Piece::Pause(WORK)],
        _ => vec![Piece::Bytes(whole)],
    }
}

/// Lets a gateway die at that step.
fn kill_at(step: &Step, world: &World, policy: &Value) {
    let store = FaultyStore::start(world.redis.address()).expect("a loopback port is free");
    let dying = world.envoy_at(store.address(), policy.clone());
    // Its pipe is open and knows the scripts: what follows takes no time.
    assert_eq!(pay(&dying, "warm").status, 200);
    await_quiet(world);
    if let Some((script, fault)) = &step.fault {
        store.forget_counts();
        store.fail(*script, fault.clone());
    }
    let mut client = RawConnection::open(dying.address()).expect("Envoy accepts");
    client.send(&payment_bytes(step.name)).expect("Envoy reads");
    let is_reached = || (step.is_reached)(world, &store).then_some(());
    poll::until(step.name, DEADLINE, is_reached).expect("the step is reached");
    dying.process().signal(Signal::Kill);
    assert!(client.receive().is_err(), "the client gets nothing");
}

fn await_quiet(world: &World) {
    let is_quiet = || (!world.origin.is_at_work()).then_some(());
    poll::until("the upstream rests", DEADLINE, is_quiet).expect("the upstream rests");
}

/// Lets gateways die at every step, while another one lives on. In time its retries are told to come back.
fn killed_everywhere(on_unknown: &str) -> (World, Envoy) {
    let world = World::start_with(Arc::new(first_runs_are_slow));
    let policy = json!({ "on_unknown": on_unknown, "lease": format!("{}s", LEASE.as_secs()) });
    let other = world.envoy(policy.clone());
    assert_eq!(pay(&other, "warm").status, 200);
    for step in steps() {
        kill_at(&step, &world, &policy);
        assert_eq!(told(&pay(&other, step.name)), "409 idempotency-in-progress", "{}", step.name);
        await_quiet(&world);
    }
    std::thread::sleep(LEASE + Duration::from_millis(200));
    (world, other)
}

fn runs(world: &World, step: &Step) -> Vec<Seen> {
    let mut runs = world.origin.seen();
    runs.retain(|run| run.header("idempotency-key") == Some(step.name));
    runs
}

#[test]
fn idm_06_a_wherever_its_gateway_dies_a_request_runs_at_most_once() {
    let (world, other) = killed_everywhere("reject");
    for step in steps() {
        for _ in 0..2 {
            let answer = pay(&other, step.name);
            assert_eq!(told(&answer), "409 idempotency-outcome-unknown", "{}", step.name);
            assert_eq!(answer.header("retry-after"), None, "a retry is of no use");
        }
        assert_eq!(runs(&world, &step).len(), usize::from(step.has_run), "{}", step.name);
    }
}

#[test]
fn idm_06_a_wherever_its_gateway_dies_a_request_runs_again_after_the_lease_and_never_twice_at_a_time() {
    let (world, other) = killed_everywhere("retry_after_lease");
    for step in steps() {
        assert_eq!(told(&pay(&other, step.name)), "200", "{}", step.name);
        assert_eq!(told(&pay(&other, step.name)), "replayed 200", "{}", step.name);
        let runs = runs(&world, &step);
        assert_eq!(runs.len(), 1 + usize::from(step.has_run), "{}: {runs:?}", step.name);
        let attempts: Vec<_> = runs.iter().filter_map(|run| run.header("idempotency-attempt")).collect();
        assert_eq!(attempts, if step.has_run { vec!["1", "2"] } else { vec!["2"] }, "{}", step.name);
        let fences: Vec<_> = runs.iter().filter_map(|run| run.header("fencing-token")).collect();
        assert!(fences.is_sorted_by(|before, after| before < after), "{}: {fences:?}", step.name);
    }
    assert_eq!(world.origin.most_at_work(), 1);
}

#[test]
fn idm_06_a_killed_between_complete_and_the_answer_the_outcome_is_replayed() {
    let world = World::start();
    let step = Step {
        name: "after-complete",
        fault: Some((script::COMPLETE, Fault::Unanswered)),
        is_reached: |_, store| store.count(script::COMPLETE) > 0,
        has_run: true,
    };
    let policy = json!({ "lease": "1h", "max_lease": "1h" });
    kill_at(&step, &world, &policy);
    let other = world.envoy(policy);
    for _ in 0..2 {
        let answer = pay(&other, step.name);
        assert_eq!((told(&answer).as_str(), answer.body.as_str()), ("replayed 200", "{\"run\":1}\n"));
    }
    assert_eq!(world.origin.count(), 2);
}
