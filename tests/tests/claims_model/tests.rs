//! The worlds, and what the checker says of them.

use std::time::Instant;

use lockkeeper_core::claim::ClaimKind;
use lockkeeper_core::policy::OnUnknown;
use stateright::{Checker, HasDiscoveries, Model};

use crate::protocol::*;
use crate::store::Guard;

/// Two requests with one key: time for one to hold, lapse and be overtaken, and for all its commands to come late.
const KEY: World = World {
    kind: ClaimKind::Idempotency,
    on_unknown: OnUnknown::RetryAfterLease,
    requests: 2,
    lease_us: 2,
    end_us: 3,
    renewals: 1,
    failovers: 0,
    clock_after_failover_us: 0,
    clock_steps: 0,
    clock_step_us: -1,
    is_one_gateway: false,
    late_replies: false,
    asks_again: true,
    has_resource: false,
    broken: None,
};
const LOCK: World = World { kind: ClaimKind::Lock, ..KEY };
const AT_MOST_ONE_RUN: World = World { on_unknown: OnUnknown::Reject, ..KEY };
/// A third request can come in between what two do.
const THREE: World = World { requests: 3, end_us: 2, renewals: 0, asks_again: false, ..LOCK };
const LATE_REPLIES: World = World { late_replies: true, end_us: 2, renewals: 0, ..LOCK };
const RESOURCE: World = World { has_resource: true, renewals: 0, ..LOCK };
const CLOCK_STEPS_BACK: World = World { clock_steps: 1, renewals: 0, ..LOCK };
const CLOCK_STEPS_FORWARD: World = World { clock_steps: 1, clock_step_us: 3, renewals: 0, end_us: 1, ..KEY };
/// The lease is longer than the failover takes.
const FAILOVER: World = World { failovers: 1, lease_us: 4, renewals: 0, end_us: 1, ..KEY };
/// Further back than the failover takes.
const FAILOVER_TO_A_CLOCK_BEHIND: World = World { clock_after_failover_us: -6, ..FAILOVER };

/// Visits the whole world. Returns what does not hold in it.
fn broken(name: &str, world: World) -> Vec<&'static str> {
    search(name, world, HasDiscoveries::All)
}

/// Visits the world until the property is seen not to hold.
fn breaks(name: &str, world: World, property: &'static str) -> bool {
    search(name, world, HasDiscoveries::AllOf([property].into())).contains(&property)
}

fn search(name: &str, world: World, until: HasDiscoveries) -> Vec<&'static str> {
    let started = Instant::now();
    let checker = world.checker().finish_when(until).threads(2).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    eprintln!("{name}: {states} states, up to {depth} steps, in {:?}", started.elapsed());
    let mut found: Vec<_> = checker.discoveries().into_iter().collect();
    found.sort_unstable_by_key(|(property, _)| *property);
    for (property, path) in &found {
        eprintln!("  not {property}: {:?}", path.clone().into_actions());
    }
    found.into_iter().map(|(property, _)| property).collect()
}

#[test]
fn whatever_is_late_lost_or_doubled_the_protocol_holds() {
    let worlds = [
        ("a key that is retried", KEY),
        ("a key that is run at most once", AT_MOST_ONE_RUN),
        ("a lock", LOCK),
        ("three for a lock", THREE),
        ("late replies", LATE_REPLIES),
        ("a resource", RESOURCE),
    ];
    for (name, world) in worlds {
        assert_eq!(broken(name, world), [""; 0], "{name}");
    }
}

#[test]
fn a_clock_that_steps_back_breaks_nothing() {
    assert_eq!(broken("the clock steps back", CLOCK_STEPS_BACK), [""; 0]);
}

#[test]
fn a_clock_that_steps_forward_ends_leases_early_and_breaks_nothing_else() {
    assert_eq!(broken("the clock steps forward", CLOCK_STEPS_FORWARD), [ONE_AT_A_TIME]);
    let once = World { on_unknown: OnUnknown::Reject, ..CLOCK_STEPS_FORWARD };
    assert_eq!(broken("the clock steps forward, at most once", once), [""; 0], "nobody takes over at all");
}

#[test]
fn a_failover_that_loses_a_grant_lets_two_run_and_fences_still_rise() {
    assert_eq!(broken("failover", FAILOVER), [ONE_AT_A_TIME]);
    let once = World { on_unknown: OnUnknown::Reject, ..FAILOVER };
    assert_eq!(broken("failover, at most once", once), [AT_MOST_ONCE, ONE_AT_A_TIME]);
}

#[test]
fn fences_rise_over_a_failover_to_a_clock_behind_if_the_gateway_knows_them() {
    let one_gateway = World { is_one_gateway: true, ..FAILOVER_TO_A_CLOCK_BEHIND };
    assert_eq!(broken("failover, one gateway", one_gateway), [ONE_AT_A_TIME]);
    let strangers = FAILOVER_TO_A_CLOCK_BEHIND;
    assert_eq!(broken("failover, gateways that know nothing", strangers), [FENCES_RISE, ONE_AT_A_TIME]);
}

#[test]
fn each_broken_guard_is_noticed() {
    let rows = [
        (Guard::CompletionByOwner, KEY, STALE_IS_POWERLESS),
        (Guard::CompletionByFence, KEY, STALE_IS_POWERLESS),
        (Guard::ReleaseByOwner, KEY, STALE_IS_POWERLESS),
        (Guard::ReleaseByOwner, LOCK, STALE_IS_POWERLESS),
        (Guard::RenewalByOwner, KEY, STALE_IS_POWERLESS),
        (Guard::FenceRemembered, LOCK, FENCES_RISE),
        (Guard::TakeoverAfterLapse, KEY, ONE_AT_A_TIME),
        (Guard::FinishedIsKept, KEY, FINISHED_STAYS),
        (Guard::UnknownIsRejected, AT_MOST_ONE_RUN, AT_MOST_ONCE),
        (Guard::LeaseFromSending, LATE_REPLIES, ONE_AT_A_TIME),
        (Guard::ResourceChecks, RESOURCE, RESOURCE_NEVER_FALLS),
        (Guard::FenceFloor, World { is_one_gateway: true, ..FAILOVER_TO_A_CLOCK_BEHIND }, FENCES_RISE),
    ];
    for (guard, world, property) in rows {
        let world = World { broken: Some(guard), ..world };
        assert!(breaks(&format!("without {guard:?}"), world, property), "nobody notices that {guard:?} is gone");
    }
}
