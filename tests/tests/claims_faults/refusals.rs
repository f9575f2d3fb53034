//! A store that refuses, or holds something else at our keys (reference §4.3 B11, B12, list 40, 43): never taken for absent.

use crate::world::{World, await_counted, counted, pay, payment, told};
use lockkeeper_core::script::{ADMIT, COMPLETE, RELEASE, RENEW};
use lockkeeper_tests::faulty_store::{Fault, FaultyStore};
use lockkeeper_tests::origin::{self, Piece};
use lockkeeper_tests::{Envoy, poll};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// What stores say, bare as Redis 7 does and wrapped as older ones do.
const ERRORS: [&str; 15] = [
    "READONLY You can't write against a read only replica. script: 0, on @user_script:1.",
    "ERR Error running script (call to f_0): @user_script:3: -READONLY You can't write against a read only replica.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS Not enough good replicas to write.",
    "CLUSTERDOWN The cluster is down",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "NOAUTH Authentication required.",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "ERR max number of clients reached",
];
/// Replies that are none of the script's.
const GARBAGE: [&[u8]; 7] = [
    b":5\r\n",
    b"$-1\r\n",
    b"*0\r\n",
    b"+OK\r\n",
    b"*2\r\n$1\r\nx\r\n$3\r\nnew\r\n",
    b"*3\r\n$1\r\nx\r\n$4\r\nbusy\r\n:0\r\n",
    b"<html>no store\r\n",
];

fn start(store_of: impl Fn(&World) -> FaultyStore) -> (World, FaultyStore, Envoy) {
    let world = World::start();
    let store = store_of(&world);
    let envoy = world.envoy_at(store.address(), json!({ "lease": "3s" }));
    serves(&envoy, "warm");
    (world, store, envoy)
}

fn faulty(world: &World) -> FaultyStore {
    FaultyStore::start(world.redis.address()).expect("a loopback port is free")
}

/// Waits until claims are taken again: the breaker may have opened.
fn serves(envoy: &Envoy, key: &str) {
    let serves = || (pay(envoy, key).status == 200).then_some(());
    poll::until("claims are taken", Duration::from_secs(5), serves).expect("claims are taken");
}

#[test]
fn idm_08_a_nothing_passes_without_its_claim_whatever_the_store_says() {
    let (world, store, envoy) = start(faulty);
    let faults = ERRORS.iter().map(|error| Fault::Refused((*error).to_owned()));
    let faults = faults.chain(GARBAGE.iter().map(|bytes| Fault::Garbled(bytes.to_vec())));
    for (number, fault) in faults.enumerate() {
        serves(&envoy, &format!("before-{number}"));
        let runs = world.origin.count();
        store.fail(ADMIT, fault.clone());
        let answer = pay(&envoy, &format!("k{number}"));
        assert_eq!((told(&answer).as_str(), world.origin.count()), ("503 store-unavailable", runs), "{fault:?}");
        assert!(answer.header("retry-after").is_some(), "{fault:?}: {answer:?}");
        store.heal();
    }
}

#[test]
fn a_completion_that_is_refused_is_repeated_whatever_the_store_says() {
    let (world, store, envoy) = start(faulty);
    for (number, error) in ERRORS.iter().enumerate() {
        serves(&envoy, &format!("before-{number}"));
        let runs = world.origin.count();
        store.fail_once(COMPLETE, Fault::Refused((*error).to_owned()));
        let key = format!("k{number}");
        assert_eq!(told(&pay(&envoy, &key)), "200", "{error}");
        let is_replayed = || (told(&pay(&envoy, &key)) == "replayed 200").then_some(());
        poll::until("it is replayed", Duration::from_secs(5), is_replayed).unwrap_or_else(|_| panic!("{error}"));
        assert_eq!(world.origin.count(), runs + 1, "{error}");
    }
    assert_eq!(counted(&envoy, "lease_events.event.given_up"), 0);
}

#[test]
fn a_release_that_is_refused_is_repeated_whatever_the_store_says() {
    let (world, store, envoy) = start(faulty);
    world.origin.behave(Arc::new(|_| vec![Piece::Bytes(origin::response(409, "{}"))]));
    for (number, error) in ERRORS.iter().enumerate() {
        let key = format!("k{number}");
        store.fail_once(RELEASE, Fault::Refused((*error).to_owned()));
        let runs = world.origin.count();
        let runs_again = || {
            pay(&envoy, &key);
            (world.origin.count() >= runs + 2).then_some(())
        };
        poll::until("it runs again", Duration::from_secs(5), runs_again).unwrap_or_else(|_| panic!("{error}"));
    }
}

#[test]
fn a_renewal_that_is_refused_is_repeated_whatever_the_store_says_while_the_lease_lasts() {
    let (world, store, envoy) = start(faulty);
    world.origin.behave(origin::numbered_after(Duration::from_millis(3_800)));
    let client = envoy.client();
    std::thread::scope(|scope| {
        let runs = world.origin.count();
        let sender = scope.spawn(|| client.send(&payment("k")).expect("an answer"));
        world.await_runs(runs + 1);
        store.forget_counts();
        for (number, error) in ERRORS.iter().enumerate() {
            store.fail(RENEW, Fault::Refused((*error).to_owned()));
            let is_told = || (store.count(RENEW) > number as u64).then_some(());
            poll::until("a renewal", Duration::from_secs(3), is_told).expect("a renewal");
        }
        store.heal();
        assert_eq!(told(&sender.join().expect("a client does not panic")), "200");
    });
    assert_eq!(counted(&envoy, "lease_events.event.lost"), 0);
    assert_eq!(told(&pay(&envoy, "k")), "replayed 200");
}

fn record_key(world: &World) -> String {
    let mut connection = world.redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:r").query(&mut connection).expect("Redis answers");
    keys.into_iter().next().expect("a record")
}

fn command(world: &World, arguments: &[&str]) {
    redis::cmd(arguments[0]).arg(&arguments[1..]).exec(&mut world.redis.connection()).expect("Redis answers");
}

#[test]
fn a_store_without_memory_replays_and_takes_no_claim() {
    let (world, _store, envoy) = start(faulty);
    // More than there is, less than the check of a command without any growth needs.
    command(&world, &["CONFIG", "SET", "maxmemory", "100kb"]);
    assert_eq!(told(&pay(&envoy, "warm")), "replayed 200");
    let runs = world.origin.count();
    assert_eq!(told(&pay(&envoy, "k")), "503 store-unavailable");
    assert_eq!(told(&pay(&envoy, "warm")), "replayed 200");
    assert_eq!(world.origin.count(), runs);
    command(&world, &["CONFIG", "SET", "maxmemory", "0"]);
    serves(&envoy, "k");
}

#[test]
fn idm_08_c_where_the_policy_says_allow_requests_pass_unprotected_and_are_counted_so() {
    let world = World::start();
    let store = faulty(&world);
    store.fail(ADMIT, Fault::Refused("LOADING Redis is loading the dataset in memory".to_owned()));
    let envoy = world.envoy_with(json!({ "on_store_failure": "allow" }), |config| {
        config.redis(store.address()).host(json!({ "degraded_header": "x-degraded" }))
    });
    for runs in 1..=2 {
        let answer = pay(&envoy, "k");
        assert_eq!((told(&answer).as_str(), world.origin.count()), ("200", runs));
        assert_eq!(answer.header("x-degraded"), Some("failure_mode"), "{answer:?}");
    }
    let run = world.origin.seen().pop().expect("it ran");
    assert_eq!((run.header("fencing-token"), run.header("idempotency-attempt")), (None, None));
    await_counted(&envoy, "decided_by.failure_mode", 2);
    assert_eq!(world.state(), None);
}

/// What does not belong at the key of a record.
fn foreign(key: &str) -> Vec<Vec<String>> {
    let rows = [
        format!("SET {key} text"),
        format!("RPUSH {key} element"),
        format!("HSET {key} v 2"),
        format!("HSET {key} s X"),
        format!("HSET {key} o short"),
        format!("HSET {key} f -1"),
        format!("HSET {key} d soon"),
        format!("HSET {key} l 1.5"),
        format!("HSET {key} c abc"),
        format!("HSET {key} e zip"),
        format!("HDEL {key} v"),
        format!("HDEL {key} o"),
        format!("HDEL {key} d"),
        format!("HDEL {key} b"),
        format!("HDEL {key} h"),
    ];
    rows.iter().map(|row| row.split(' ').map(str::to_owned).collect()).collect()
}

#[test]
fn a_foreign_or_corrupt_record_is_never_taken_for_absent_and_is_left_alone() {
    let (world, _store, envoy) = start(faulty);
    let key = record_key(&world);
    let whole: Vec<String> =
        redis::cmd("HGETALL").arg(&key).query(&mut world.redis.connection()).expect("a record is a hash");
    let runs = world.origin.count();
    for row in foreign(&key) {
        let row: Vec<&str> = row.iter().map(String::as_str).collect();
        command(&world, &["DEL", &key]);
        if row[0].starts_with('H') {
            let fields: Vec<&str> = whole.iter().map(String::as_str).collect();
            command(&world, &[&["HSET", &key], fields.as_slice()].concat());
        }
        command(&world, &row);
        let dump =
            || redis::cmd("DUMP").arg(&key).query::<Vec<u8>>(&mut world.redis.connection()).expect("it is there");
        let before = dump();
        let answer = pay(&envoy, "warm");
        assert_eq!((told(&answer).as_str(), world.origin.count()), ("503 store-unavailable", runs), "{row:?}");
        assert_eq!(dump(), before, "{row:?}");
    }
    // The rest of the record tells that the rows above fail for what they change alone.
    command(&world, &["DEL", &key]);
    let fields: Vec<&str> = whole.iter().map(String::as_str).collect();
    command(&world, &[&["HSET", &key], fields.as_slice()].concat());
    assert_eq!(told(&pay(&envoy, "warm")), "replayed 200");
}

#[test]
fn a_record_that_becomes_corrupt_while_its_request_runs_costs_the_client_nothing() {
    let (world, _store, envoy) = start(faulty);
    command(&world, &["FLUSHALL"]);
    world.origin.behave(origin::numbered_after(Duration::from_millis(1_500)));
    let client = envoy.client();
    std::thread::scope(|scope| {
        let runs = world.origin.count();
        let sender = scope.spawn(|| client.send(&payment("k")).expect("an answer"));
        world.await_runs(runs + 1);
        let key = record_key(&world);
        command(&world, &["HSET", &key, "d", "soon"]);
        await_counted(&envoy, "event.renew.outcome.corrupt", 1);
        assert_eq!(told(&sender.join().expect("a client does not panic")), "200");
        await_counted(&envoy, "event.complete.outcome.corrupt", 1);
        assert_eq!(world.record()["d"], "soon");
        assert_eq!(told(&pay(&envoy, "k")), "503 store-unavailable");
        // A foreign fence is only a memory that is lost.
        command(&world, &["DEL", &key]);
        let fence = key.replace(":r", ":f");
        command(&world, &["DEL", &fence]);
        command(&world, &["RPUSH", &fence, "element"]);
        assert_eq!(told(&pay(&envoy, "k")), "200");
    });
}
