//! Every way in which a request ends: what it held is given back, or left to lapse where the upstream may be at work.

use crate::world::{SOON, World, config, lock, put};
use lockkeeper_tests::gated_upstream::Go;
use lockkeeper_tests::{Envoy, poll, ports};
use serde_json::{Value, json};

/// A lock and a slot for each resource.
fn both() -> Value {
    let mut members = lock(json!({ "lease": "1s" }));
    members["concurrency"] = json!({ "limit": 1, "key": ["path"] });
    members
}

/// What becomes of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Free,
    Lapses,
}

fn write(text: &str) -> Go {
    Go::Write(text.as_bytes().to_vec())
}

#[test]
fn locks_and_slots_are_given_back_at_every_end_and_a_lock_only_when_the_upstream_is_done() {
    let world = World::start(both());
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n";
    let rows: [(&str, &[Go], bool, Lock); 9] = [
        ("an answer", &[Go::Answer(200)], false, Lock::Free),
        ("a refusal", &[Go::Answer(403)], false, Lock::Free),
        ("a failure", &[Go::Answer(503)], false, Lock::Free),
        ("an answer without content", &[write("HTTP/1.1 204 No Content\r\n\r\n"), Go::Close], false, Lock::Free),
        ("content in pieces", &[write(head), write("done "), write("now\n"), Go::Close], false, Lock::Free),
        ("no answer", &[Go::Close], false, Lock::Lapses),
        ("half an answer", &[write(head), write("half"), Go::Close], false, Lock::Lapses),
        ("a client that goes away before the answer", &[], true, Lock::Lapses),
        ("a client that goes away during the answer", &[write(head), write("half")], true, Lock::Lapses),
    ];
    for (number, (what, goes, client_leaves, lock)) in rows.into_iter().enumerate() {
        let path = format!("/{number}");
        let mut client = world.begin_raw(number % 2, &path);
        world.upstream.arrived(number + 1);
        assert_eq!((world.slots(), world.keys("}:r").len()), (1, 1), "{what}");
        for go in goes {
            world.upstream.let_go(number, go.clone());
            poll::until("the upstream goes on", SOON, || world.upstream.has_gone(number).then_some(())).expect(what);
        }
        if client_leaves && !goes.is_empty() {
            client.receive_head().expect("the head of an answer");
        }
        if client_leaves {
            drop(client);
        } else if lock == Lock::Free {
            client.receive().expect("an answer");
        }
        world.await_slots(0);
        if lock == Lock::Lapses {
            assert_eq!(world.record()["s"], "R", "{what}: the upstream may be at work");
            assert_eq!(world.send(number % 2, &put(&path)).status, 423, "{what}");
            redis::cmd("FLUSHALL").query::<()>(&mut world.redis.connection()).expect("flushed");
        }
        world.free();
        world.upstream.let_go(number, Go::Close);
    }
}

#[test]
fn a_request_that_never_reaches_an_upstream_gives_everything_back() {
    let world = World::start(both());
    let config = config(&both(), world.redis.address(), ports::free());
    let gateway = Envoy::start(&config).expect("Envoy starts");
    let refused = gateway.client().send(&put("/a")).expect("an answer");
    assert_eq!(refused.status, 503, "{refused:?}");
    world.await_slots(0);
    world.free();
    world.upstream.open(Go::Answer(200));
    assert_eq!(world.send(0, &put("/a")).status, 200);
}

#[test]
fn a_client_that_goes_away_while_the_store_is_asked_holds_nothing() {
    let world = World::start(both());
    world.upstream.open(Go::Answer(200));
    assert_eq!(world.send(0, &put("/a")).status, 200, "the pipe is open");
    world.free();
    world.await_slots(0);
    world.redis.pause();
    let client = world.begin_raw(0, "/a");
    world.await_active(0, 1);
    drop(client);
    world.await_active(0, 0);
    let released = world.counted(0, "release.outcome.ok");
    world.redis.resume();
    world.await_counted(0, "release.outcome.ok", released + 2);
    world.free();
    world.await_slots(0);
    assert_eq!(world.upstream.count(), 1, "it never reached the upstream");
}
