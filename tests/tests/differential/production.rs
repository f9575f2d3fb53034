//! The scripts as they are shipped, on the store's own clock.

use lockkeeper_core::algorithm::{Algorithm, Charge, FixedWindow, SlidingWindow, SlidingWindowCounter, TokenBucket};
use lockkeeper_core::script::{self, DECIDE, PROBE};

use crate::store::Store;
use crate::wire::{Words, texts, words};

const HOUR_US: u64 = 3_600_000_000;

fn every(limit: u64) -> [Algorithm; 4] {
    [
        FixedWindow::new(limit, HOUR_US).expect("a window").into(),
        SlidingWindow::new(limit, HOUR_US).expect("a log").into(),
        SlidingWindowCounter::new(limit, HOUR_US).expect("a counter").into(),
        TokenBucket::new(limit, 1, HOUR_US).expect("a bucket").into(),
    ]
}

fn call(key: &str, algorithm: &Algorithm) -> Words {
    let charge = Charge { algorithm, cost: 1, enforce: true };
    let mut call = words(&["EVALSHA", DECIDE.sha1, "1", key]);
    call.extend(script::arguments(b"tag", &[charge]));
    call
}

fn loaded() -> Store {
    let mut store = Store::start();
    for script in [DECIDE, PROBE] {
        let reply = store.run(&[words(&["SCRIPT", "LOAD", &script.text()])]);
        assert_eq!(texts(&reply[0]), [script.sha1]);
    }
    store
}

fn admitted(reply: &redis::Value) -> bool {
    match reply {
        redis::Value::Array(parts) => parts[1] == redis::Value::Int(1),
        other => panic!("not an answer: {other:?}"),
    }
}

#[test]
fn the_store_admits_exactly_the_limit_on_its_own_clock() {
    let mut store = loaded();
    for (index, algorithm) in every(25).iter().enumerate() {
        let calls: Vec<Words> = vec![call(&index.to_string(), algorithm); 100];
        let replies = store.run(&calls);
        let count = replies.iter().filter(|reply| admitted(reply)).count();
        assert_eq!(count, 25, "{algorithm:?}");
    }
}

#[test]
fn the_probe_writes_and_echoes_its_tag() {
    let mut store = loaded();
    let replies = store.run(&[words(&["EVALSHA", PROBE.sha1, "1", "probe", "tag"]), words(&["PTTL", "probe"])]);
    assert_eq!(texts(&replies[0]), ["tag"]);
    let redis::Value::Int(lifetime_ms) = replies[1] else { panic!("PTTL said {:?}", replies[1]) };
    assert!((1..=1000).contains(&lifetime_ms), "{lifetime_ms}");
}

#[test]
fn a_store_without_memory_refuses_and_changes_nothing() {
    let mut store = loaded();
    for (index, algorithm) in every(25).iter().enumerate() {
        let (used, foreign) = (format!("used:{index}"), format!("foreign:{index}"));
        let plant = words(&["HSET", &foreign, "field", "1"]);
        store.run(&[call(&used, algorithm), plant]);
        let dump = [words(&["DUMP", &used]), words(&["DUMP", &foreign])];
        let before = store.run(&dump);
        store.run(&[words(&["CONFIG", "SET", "maxmemory", "1"])]);
        let refused = store.run(&[
            call(&used, algorithm),
            call(&foreign, algorithm),
            call("new", algorithm),
            words(&["EVALSHA", PROBE.sha1, "1", "probe", "tag"]),
        ]);
        store.run(&[words(&["CONFIG", "SET", "maxmemory", "0"])]);
        for reply in &refused {
            assert!(format!("{reply:?}").contains("OOM"), "{reply:?}");
        }
        assert_eq!(store.run(&dump), before, "{algorithm:?}");
        assert_eq!(store.run(&[words(&["EXISTS", "new"])]), [redis::Value::Int(0)]);
    }
}
