//! What requests hold until they are settled: keys, locks, slots.

use crate::world::{DEADLINE, limiter, send, telling, told};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::{Redis, paths, poll};
use serde_json::{Value, json};

#[test]
fn what_a_request_with_a_key_was_settled_with_is_replayed() {
    let redis = Redis::start().expect("Redis starts");
    let directory = telling(&paths::built_worker(paths::worker()));
    let rules = json!({ "scope": ["header:authorization"], "on_unknown": "reject" });
    let policy = json!({ "version": 1, "policies": { "p": { "idempotency": rules } }, "default_policy": "p" });
    let workerd = limiter(directory.path(), &redis, &policy);
    let keyed = |path: &str, key: &str, body: &str| {
        let request = Request::new("POST", path).header("authorization", "Bearer a").header("idempotency-key", key);
        send(&workerd, &request.body(body))
    };
    let run = keyed("/", "k", "one");
    assert_eq!((run.status, run.header("idempotent-replayed")), (200, None), "{run:?}");
    let told: Value = serde_json::from_str(&run.body).expect("what the Worker tells");
    assert_eq!((&told["outcome"], &told["sent"]), (&json!("allowed"), &json!("one")));
    let replay = keyed("/", "k", "one");
    assert_eq!((replay.status, replay.header("idempotent-replayed")), (200, Some("true")), "{replay:?}");
    assert_eq!(replay.body, run.body);
    assert_eq!(keyed("/", "k", "another").status, 422);
    let broken = keyed("/broken", "b", "one");
    assert_eq!((broken.status, broken.header("idempotency-outcome")), (502, Some("unknown")), "{broken:?}");
    let again = keyed("/broken", "b", "one");
    assert_eq!((again.status, again.header("idempotent-replayed")), (409, None), "{again:?}");
}

#[test]
fn a_lock_is_held_until_its_request_is_settled() {
    let redis = Redis::start().expect("Redis starts");
    let directory = telling(&paths::built_worker(paths::worker()));
    let policy = json!({ "version": 1, "default_policy": "p",
                         "policies": { "p": { "lock": { "key": ["header:x-account"] } } } });
    let workerd = limiter(directory.path(), &redis, &policy);
    let ask = |path: &str| told(&workerd, &Request::get(path).header("x-account", "7"));
    let fence = |seen: &Value| seen["fence"].as_str().map(str::to_owned).unwrap_or_else(|| panic!("no token: {seen}"));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| ask("/slow"));
        poll::until("the lock is taken", DEADLINE, || {
            let keys: usize = redis::cmd("DBSIZE").query(&mut redis.connection()).expect("Redis answers");
            (keys > 0).then_some(())
        })
        .expect("the lock is taken");
        let refused = ask("/");
        assert_eq!((&refused["outcome"], &refused["answer"]), (&json!("locked"), &json!(423)), "{refused}");
        let earlier = fence(&slow.join().expect("the Worker answers"));
        let next =
            poll::until("the lock is free", DEADLINE, || Some(ask("/")).filter(|seen| seen["outcome"] == "allowed"));
        assert!(fence(&next.expect("the lock is given back")) > earlier);
    });
}

/// Two at once, whatever the client.
fn two_at_once() -> Value {
    let slots = json!({ "limit": 2, "lease": "1s", "key": ["constant:all"] });
    json!({ "version": 1, "policies": { "p": { "concurrency": slots } }, "default_policy": "p" })
}

fn slots_taken(redis: &Redis) -> usize {
    let mut redis = redis.connection();
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis).expect("Redis answers");
    names.iter().map(|name| redis::cmd("ZCARD").arg(name).query(&mut redis).unwrap_or(0)).sum()
}

fn is_denied(seen: &Value) -> bool {
    (&seen["outcome"], &seen["answer"], &seen["limit"]) == (&json!("denied"), &json!(429), &json!("concurrency"))
}

#[test]
fn as_many_run_at_once_as_there_are_slots_and_settling_gives_back() {
    let redis = Redis::start().expect("Redis starts");
    let directory = telling(&paths::built_worker(paths::worker()));
    let workerd = limiter(directory.path(), &redis, &two_at_once());
    let ask = |path: &str| told(&workerd, &Request::get(path));
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let running = [(); 2].map(|()| scope.spawn(|| ask("/slow")));
            poll::until("both run", DEADLINE, || (slots_taken(&redis) == 2).then_some(())).expect("both run");
            let third = ask("/");
            assert!(is_denied(&third), "{third}");
            assert!(running.into_iter().all(|one| one.join().expect("an answer")["outcome"] == "allowed"));
        });
        poll::until("both are free", DEADLINE, || (slots_taken(&redis) == 0).then_some(()))
            .expect("settling gives back");
    }
}

#[test]
fn what_is_never_settled_comes_back_when_its_lease_ends() {
    let redis = Redis::start().expect("Redis starts");
    let directory = telling(&paths::built_worker(paths::worker()));
    let forgetful = limiter(directory.path(), &redis, &two_at_once());
    for _ in 0..2 {
        assert_eq!(told(&forgetful, &Request::get("/forgotten"))["outcome"], "allowed");
    }
    let other = limiter(directory.path(), &redis, &two_at_once());
    let ask = || told(&other, &Request::get("/"));
    assert!(is_denied(&ask()));
    // As the platform ends what goes on for too long after its response.
    drop(forgetful);
    let free = poll::until("a slot is free", DEADLINE, || (ask()["outcome"] == "allowed").then_some(()));
    free.unwrap_or_else(|error| panic!("{error:#}\n{}", other.process().log_tail()));
}
