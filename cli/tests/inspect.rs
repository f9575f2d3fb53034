//! `lockkeeper inspect` and `lockkeeper reset` against a real Redis that holds what the real script wrote.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::script;
use lockkeeper_tests::Redis;
use serde_json::{Value, json};
use support::{Directory, Run, lockkeeper};

const POLICY: &str = r#"{ "version": 1, "default_policy": "p", "policies": { "p": { "limits": [
  { "name": "bucket", "algorithm": "token_bucket", "capacity": 3, "refill": "1/1h", "key": ["header:x-user"] },
  { "name": "log", "algorithm": "sliding_window", "limit": 5, "window": "1h", "cost": 2, "key": ["header:x-user"] },
  { "name": "counter", "algorithm": "sliding_window_counter", "limit": 9, "window": "1h", "key": ["header:x-user"] },
  { "name": "window", "algorithm": "fixed_window", "limit": 4, "window": "366d", "key": ["method"] } ] } } }"#;

struct World {
    redis: Redis,
    directory: Directory,
}

impl World {
    fn new() -> World {
        World { redis: Redis::start().unwrap(), directory: Directory::with(&[("policy.json", POLICY)]) }
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Run {
        let store = format!("redis://{}/", self.redis.address());
        let fixed = [command, "policy.json", "--store", &store, "--url", "/", "-H", "x-user: bob"];
        lockkeeper(&self.directory, &[&fixed[..], arguments].concat())
    }

    fn inspect(&self) -> Value {
        let run = self.run("inspect", &["--json"]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        serde_json::from_str(&run.stdout).unwrap()
    }

    /// Runs the script as a gateway does for the same request.
    fn charge(&self) {
        let engine = Engine::new(PolicySet::from_json(POLICY.as_bytes(), LoadOptions::default()).unwrap());
        let selection = engine.select("GET", "", "/");
        let Step::Call(call) = engine.begin(&selection, &[Some(b"bob".to_vec())]) else { panic!("no call") };
        let mut command = redis::cmd("EVAL");
        command.arg(script::DECIDE.text()).arg(call.counted().len());
        command.arg(call.counted().iter().map(|one| one.store_key.as_str()).collect::<Vec<_>>());
        command.arg(script::arguments(b"tag", &call.charges()));
        command.query::<redis::Value>(&mut self.redis.connection()).unwrap();
    }

    /// Everything the store holds: values and expiry times.
    fn dump(&self) -> Vec<(String, Vec<u8>, i64)> {
        let mut connection = self.redis.connection();
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        keys.sort();
        let mut one = |key: String| {
            let value = redis::cmd("DUMP").arg(&key).query(&mut connection).unwrap();
            (key.clone(), value, redis::cmd("PEXPIRETIME").arg(&key).query(&mut connection).unwrap())
        };
        keys.into_iter().map(&mut one).collect()
    }
}

#[test]
fn levels_are_those_that_the_script_left() {
    let world = World::new();
    let remaining = |world: &World| {
        let levels = world.inspect()["limits"].as_array().unwrap().clone();
        levels.iter().map(|level| level["remaining"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(remaining(&world), [3, 5, 9, 4]);
    world.charge();
    world.charge();
    assert_eq!(remaining(&world), [1, 1, 7, 2]);
    let levels = world.inspect();
    let log = &levels["limits"][1];
    assert_eq!((&log["limit"], &log["allowance"]), (&json!("log"), &json!(5)));
    let waits = ["next_refill_us", "retry_us"].map(|field| log[field].as_u64().unwrap());
    assert!(waits.iter().all(|us| (3_590_000_000..=3_600_000_000).contains(us)), "{waits:?}");
    assert!((3_590_000..=7_200_000).contains(&log["ttl_ms"].as_u64().unwrap()), "{log}");
}

#[test]
fn inspecting_writes_nothing_and_says_what_will_be_healed() {
    let world = World::new();
    world.charge();
    let key = world.inspect()["limits"][0]["store_key"].as_str().unwrap().to_owned();
    redis::cmd("PERSIST").arg(&key).query::<i64>(&mut world.redis.connection()).unwrap();
    let before = world.dump();
    let shown = world.run("inspect", &[]).stdout;
    assert!(shown.contains(&format!("bucket {key}\n  remaining  2 of 3\n  more in    3")), "{shown}");
    assert!(shown.contains("expires    never: "), "{shown}");
    assert_eq!(world.inspect()["limits"][0]["never_expires"], true);
    assert_eq!(world.dump(), before);
}

#[test]
fn a_foreign_value_counts_as_none() {
    let world = World::new();
    let keys: Vec<String> = world.inspect()["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|level| level["store_key"].as_str().unwrap().to_owned())
        .collect();
    let mut connection = world.redis.connection();
    redis::cmd("RPUSH").arg(&keys[0]).arg("x").query::<()>(&mut connection).unwrap();
    redis::cmd("SET").arg(&keys[1]).arg(b"\xff").query::<()>(&mut connection).unwrap();
    redis::cmd("SADD").arg(&keys[2]).arg("x").query::<()>(&mut connection).unwrap();
    let levels = world.inspect();
    assert_eq!([0, 1, 2].map(|index| levels["limits"][index]["remaining"].as_u64().unwrap()), [3, 5, 9]);
}

#[test]
fn reset_deletes_only_after_a_yes() {
    let world = World::new();
    world.charge();
    let before = world.dump();
    let unasked = world.run("reset", &[]);
    assert_eq!(unasked.code, 2);
    assert!(unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    assert_eq!(world.dump(), before);

    let one = world.run("reset", &["--limit", "log", "--yes"]);
    assert_eq!(one.code, 0);
    assert!(one.stdout.ends_with("deleted: 1 of 1\n"), "{}", one.stdout);
    assert_eq!(world.dump().len(), 3);
    assert!(world.run("reset", &["--yes"]).stdout.ends_with("deleted: 3 of 4\n"));
    assert_eq!(world.dump(), []);
    let unknown = world.run("reset", &["--limit", "none", "--yes"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("those that do: "), "{}", unknown.stderr);
}

#[test]
fn a_store_that_cannot_be_reached_is_named_without_its_password() {
    let world = World::new();
    let port = lockkeeper_tests::ports::free().port();
    let request = ["--url", "/", "-H", "x-user: bob"];
    for store in [format!("redis://user:sesame@127.0.0.1:{port}/"), "sesame".into()] {
        let run =
            lockkeeper(&world.directory, &[&["inspect", "policy.json", "--store", &store], &request[..]].concat());
        assert_eq!(run.code, 2);
        assert!(run.stderr.contains("store") && !run.stderr.contains("sesame"), "{}", run.stderr);
    }
    let run = lockkeeper(&world.directory, &[&["inspect", "policy.json"], &request[..]].concat());
    assert_eq!(run.code, 2, "without --store");
}
