//! A lock, an idempotency key and limits in one policy: a request gets all of them, or none.

use crate::world::{World, lock, put};
use lockkeeper_tests::gated_upstream::Go;
use lockkeeper_tests::http::Request;
use serde_json::{Value, json};

/// One request of each kind at a time, three a day for each path, and one for each key.
fn members() -> Value {
    let mut members = lock(json!({ "key": ["header:x-account"], "fence_header": "lock-fencing-token", "lease": "1s" }));
    members["idempotency"] =
        json!({ "scope": ["header:authorization"], "on_unknown": "reject", "replay_limit": false });
    members["limits"] =
        json!([{ "name": "daily", "algorithm": "fixed_window", "limit": 3, "window": "1d", "key": ["host"] }]);
    members["concurrency"] = json!({ "limit": 5, "key": ["host"] });
    members
}

fn start() -> World {
    World::start_with(members(), lockkeeper_tests::EnvoyConfig::reads_bodies)
}

fn transfer(key: &str, account: &str) -> Request {
    let request = Request::new("POST", "/transfers").header("authorization", "Bearer a").header("host", "a.example");
    request.header("idempotency-key", key).header("x-account", account).body("{}")
}

fn spent(world: &World) -> u64 {
    let keys = world.keys("");
    let windows = keys.iter().filter(|key| key.contains(".daily:"));
    let counts = windows.map(|key| {
        let text: String = redis::cmd("GET").arg(key).query(&mut world.redis.connection()).expect("a window");
        text.rsplit(':').next().and_then(|count| count.parse::<u64>().ok()).expect("a count")
    });
    counts.sum()
}

#[test]
fn a_request_whose_lock_is_taken_claims_no_key_and_charges_no_limit() {
    let world = start();
    let holder = world.begin(0, &transfer("k1", "1"));
    let seen = world.upstream.arrived(1);
    let tokens = ["fencing-token", "lock-fencing-token"].map(|name| seen[0].header(name).len());
    assert_eq!((tokens, world.keys("}:r").len(), world.slots(), spent(&world)), ([16, 16], 2, 1, 1));
    let refused = world.send(1, &transfer("k2", "1"));
    assert_eq!(refused.status, 423, "{refused:?}");
    assert_eq!((world.keys("}:r").len(), world.slots(), spent(&world)), (2, 1, 1));
    world.upstream.let_go(0, Go::Answer(200));
    assert_eq!(holder.join().expect("an answer").status, 200);
    world.await_slots(0);
    // Its key was never used, so it runs now.
    world.upstream.open(Go::Answer(200));
    let after = crate::world::until_status(200, || world.send(1, &transfer("k2", "1")));
    assert_eq!((after.header("idempotent-replayed"), world.upstream.count(), spent(&world)), (None, 2, 2));
}

#[test]
fn a_replay_or_a_duplicate_takes_no_lock_and_charges_no_limit() {
    let world = start();
    let first = world.begin(0, &transfer("k1", "1"));
    world.upstream.arrived(1);
    // The same key for another account: what comes of the key is decided first, and the other lock stays free.
    let duplicate = world.send(1, &transfer("k1", "2"));
    assert_eq!(duplicate.status, 409, "{duplicate:?}");
    let other = world.begin(1, &transfer("k2", "2"));
    world.upstream.arrived(2);
    world.upstream.open(Go::Answer(200));
    assert_eq!((first.join().expect("an answer").status, other.join().expect("an answer").status), (200, 200));
    world.await_slots(0);
    for gateway in [0, 1] {
        let replay = world.send(gateway, &transfer("k1", "1"));
        assert_eq!((replay.status, replay.header("idempotent-replayed")), (200, Some("true")));
    }
    assert_eq!((world.upstream.count(), spent(&world), world.slots()), (2, 2, 0));
}

#[test]
fn a_denied_request_claims_nothing() {
    let world = start();
    world.upstream.open(Go::Answer(200));
    for number in 0..3 {
        assert_eq!(world.send(0, &transfer(&format!("k{number}"), &number.to_string())).status, 200);
    }
    world.await_slots(0);
    let records = world.keys("}:r").len();
    let denied = world.send(1, &transfer("k9", "9"));
    assert_eq!(denied.status, 429, "{denied:?}");
    assert_eq!((world.keys("}:r").len(), world.slots(), world.upstream.count()), (records, 0, 3));
}

#[test]
fn a_lost_upstream_leaves_both_claims_to_lapse_and_the_slot_free() {
    let world = start();
    let lost = world.begin(0, &transfer("k1", "1"));
    world.upstream.arrived(1);
    world.upstream.let_go(0, Go::Close);
    assert_eq!(lost.join().expect("an answer").status, 503);
    world.await_slots(0);
    assert_eq!(world.keys("}:r").len(), 2);
    assert_eq!(world.send(1, &transfer("k1", "1")).status, 409);
    assert_eq!(world.send(1, &transfer("k2", "1")).status, 423);
    // The lock lapses; the key stays refused.
    world.upstream.open(Go::Answer(200));
    crate::world::until_status(200, || world.send(1, &transfer("k2", "1")));
    assert_eq!(world.send(1, &transfer("k1", "1")).status, 409);
    assert_eq!(world.send(0, &put("/other")).status, 400, "a lock's key must be there");
}
