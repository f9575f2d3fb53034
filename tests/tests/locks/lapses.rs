//! Leases that outlast slow upstreams, and leases that do not: the next holder takes over, and the last one's late word
//! changes nothing.

use crate::world::{World, lock, put, until_status};
use lockkeeper_tests::gated_upstream::Go;
use lockkeeper_tests::poll;
use lockkeeper_tests::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

const LEASE_US: u64 = 1_000_000;

#[test]
fn lck_01_a_lock_is_renewed_while_its_holder_runs_and_each_renewal_lasts_one_lease() {
    let world = World::start(lock(json!({ "lease": "1s" })));
    let holder = world.begin(0, &put("/a"));
    world.upstream.arrived(1);
    let first = world.record();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(world.send(1, &put("/a")).status, 423, "after {:?}", start.elapsed());
        let deadline_us: u64 = world.record()["d"].parse().expect("a time");
        assert!(deadline_us <= world.now_us() + LEASE_US, "a renewal does not add up");
        std::thread::sleep(Duration::from_millis(50));
    }
    let now = world.record();
    assert_eq!((&now["o"], &now["f"], &now["t"]), (&first["o"], &first["f"], &first["t"]));
    world.upstream.let_go(0, Go::Answer(200));
    assert_eq!(holder.join().expect("an answer").status, 200);
    world.free();
}

#[test]
fn lck_01_a_holder_that_stood_still_is_replaced_and_its_late_end_releases_nothing() {
    let world = World::start(lock(json!({ "lease": "1s" })));
    let stalled = world.begin(0, &put("/a"));
    world.upstream.arrived(1);
    world.gateways[0].process().signal(Signal::Stop);
    let next = std::thread::scope(|scope| {
        let taking = scope.spawn(|| until_status(200, || world.send(1, &put("/a"))));
        let seen = world.upstream.arrived(2);
        assert!(seen[0].header("fencing-token") < seen[1].header("fencing-token"));
        let record = world.record();
        // The first one's upstream answers at last, and its gateway wakes up: its client is served.
        world.upstream.let_go(0, Go::Answer(200));
        world.gateways[0].process().signal(Signal::Continue);
        assert_eq!(stalled.join().expect("an answer").status, 200);
        world.await_counted(0, "outcome.lost", 1);
        let now = world.record();
        assert_eq!((&now["o"], &now["f"]), (&record["o"], &record["f"]), "the second one's record is intact");
        assert_eq!(world.send(0, &put("/a")).status, 423);
        world.upstream.let_go(1, Go::Answer(200));
        taking.join().expect("an answer")
    });
    assert_eq!(next.status, 200);
    world.free();
}

#[test]
fn a_grant_that_lapsed_while_its_gateway_stood_still_is_not_forwarded() {
    let world = World::start_with(lock(json!({ "lease": "1s" })), |config| config.deadline(Duration::from_secs(10)));
    world.upstream.open(Go::Answer(200));
    assert_eq!(world.send(0, &put("/a")).status, 200, "the pipe is open");
    world.free();
    world.upstream.close();
    // The gateway asks, and stands still before it can read the grant.
    world.redis.pause();
    let stalled = world.begin(0, &put("/a"));
    world.await_active(0, 1);
    world.gateways[0].process().signal(Signal::Stop);
    world.redis.resume();
    poll::until("the lock is granted", crate::world::SOON, || (world.keys("}:r").len() == 1).then_some(()))
        .expect("granted");
    let next = std::thread::scope(|scope| {
        let taking = scope.spawn(|| until_status(200, || world.send(1, &put("/a"))));
        world.upstream.arrived(2);
        world.gateways[0].process().signal(Signal::Continue);
        let refused = stalled.join().expect("an answer");
        assert!([423, 503].contains(&refused.status), "the next holder's, or not known in time: {refused:?}");
        world.upstream.let_go(1, Go::Answer(200));
        taking.join().expect("an answer")
    });
    assert_eq!((next.status, world.upstream.count()), (200, 2), "two ran, one at a time");
    world.free();
}

#[test]
fn a_holder_whose_lock_is_lost_is_cut_off_where_the_policy_says_so() {
    let world = World::start(lock(json!({ "lease": "1s", "on_lease_lost": "cancel" })));
    let holder = world.begin_raw(0, "/a");
    world.upstream.arrived(1);
    // An operator clears it.
    redis::cmd("FLUSHALL").query::<()>(&mut world.redis.connection()).expect("flushed");
    let mut holder = holder;
    assert!(holder.receive().is_err(), "the stream is reset");
    world.upstream.let_go(0, Go::Close);
    assert_eq!(world.counted(0, "lockkeeper_lease_events.event.lost"), 1);
}

#[test]
fn a_store_whose_clock_steps_back_holds_a_lock_no_longer_than_its_lease() {
    let world = World::start(lock(json!({ "lease": "1s" })));
    let holder = world.begin_raw(0, "/a");
    world.upstream.arrived(1);
    let key = &world.keys("}:r")[0];
    let mut connection = world.redis.connection();
    // What a step of an hour leaves behind, of a holder that died with its gateway.
    world.gateways[0].process().signal(Signal::Stop);
    let ahead = world.now_us() + 3_600_000_000;
    redis::cmd("HSET").arg(key).arg("d").arg(ahead).query::<()>(&mut connection).expect("written");
    let start = Instant::now();
    world.upstream.open(Go::Answer(200));
    until_status(200, || world.send(1, &put("/a")));
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    world.gateways[0].process().signal(Signal::Continue);
    drop(holder);
}
