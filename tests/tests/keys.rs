//! What the gateway leaves in Redis: short keys of one length that say nothing about the client, each with a TTL; and what it does with state that is not its own.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::raw::flood;
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis};
use redis::Connection;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const CLIENTS: usize = 200_000;

/// Walks all keys. Returns how many there are, how many never expire, the shortest and the longest name, how many names hold the text, and the longest life in milliseconds.
const AUDIT: &str = "
local count, immortal, shortest, longest, telling, life = 0, 0, 1e9, 0, 0, 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  local ttl = redis.call('PTTL', key)
  count, life = count + 1, math.max(life, ttl)
  if ttl < 0 then immortal = immortal + 1 end
  if string.find(key, ARGV[1], 1, true) then telling = telling + 1 end
  shortest, longest = math.min(shortest, #key), math.max(longest, #key)
end
return { count, immortal, shortest, longest, telling, life }";

const ALGORITHMS: [&str; 4] = ["bucket", "fixed", "log", "counter"];

/// A policy for each algorithm, at `/<algorithm>`, with a limit of 10 for each `x-user`.
fn policy() -> Value {
    let numbers = [
        json!({ "algorithm": "token_bucket", "capacity": 10, "refill": "1/10m" }),
        json!({ "algorithm": "fixed_window", "limit": 10, "window": "1h" }),
        json!({ "algorithm": "sliding_window", "limit": 10, "window": "1m" }),
        json!({ "algorithm": "sliding_window_counter", "limit": 10, "window": "1h" }),
    ];
    let limits = numbers.map(|mut limit| {
        limit["name"] = json!("per-user");
        limit["key"] = json!(["header:x-user"]);
        json!({ "limits": [limit], "limits_on_store_failure": "deny" })
    });
    let policies: serde_json::Map<_, _> = ALGORITHMS.iter().map(|name| name.to_string()).zip(limits).collect();
    let routes = ALGORITHMS.map(|name| json!({ "match": { "path": format!("/{name}") }, "policy": name }));
    json!({ "version": 1, "policies": policies, "routes": routes })
}

fn start() -> (Redis, Envoy) {
    let redis = Redis::start().expect("Redis starts");
    let config = EnvoyConfig::shipped().concurrency(2).redis(redis.address()).direct_response().without_access_log();
    let config = config.policy(policy()).deadline(Duration::from_secs(5));
    (redis, Envoy::start(&config).expect("Envoy starts"))
}

fn send(envoy: &Envoy, algorithm: &str, user: &str) -> u16 {
    let request = Request::get(&format!("/{algorithm}")).header("x-user", user);
    envoy.client().send(&request).expect("an answer").status
}

fn all_keys(connection: &mut Connection) -> Vec<String> {
    redis::cmd("KEYS").arg("*").query(connection).expect("Redis lists its keys")
}

fn ttl_ms(connection: &mut Connection, key: &str) -> i64 {
    redis::cmd("PTTL").arg(key).query(connection).expect("Redis tells a TTL")
}

#[test]
fn a_flood_of_clients_leaves_short_keys_that_expire_and_tell_nothing() {
    let (redis, envoy) = start();
    let mut connection = redis.connection();
    let used_bytes = |connection: &mut Connection| -> u64 {
        let info: String = redis::cmd("INFO").arg("memory").query(connection).expect("Redis tells its memory");
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("used_memory");
        line.trim().parse().expect("a number of bytes")
    };
    let before = used_bytes(&mut connection);
    let start = std::time::Instant::now();
    let statuses = flood(envoy.address(), 64, CLIENTS, |number| {
        // The same first characters for all, and lengths from 20 to 220.
        let padding = "x".repeat(number % 200);
        format!("GET /bucket HTTP/1.1\r\nhost: example.com\r\nx-user: credential-{number:06}{padding}\r\n\r\n")
            .into_bytes()
    });
    println!("{CLIENTS} clients in {:?}: {statuses:?}", start.elapsed());
    assert_eq!(statuses, BTreeMap::from([(200, CLIENTS)]));
    let audit = redis::cmd("EVAL").arg(AUDIT).arg(0).arg("credential").query(&mut connection);
    let [count, immortal, shortest, longest, telling, life_ms]: [i64; 6] = audit.expect("Redis audits its keys");
    println!("keys of {shortest} to {longest} bytes that live for up to {life_ms} ms");
    println!("{} bytes of Redis memory for each client", (used_bytes(&mut connection) - before) / CLIENTS as u64);
    assert_eq!(
        (count, immortal, telling),
        (CLIENTS as i64, 0, 0),
        "keys, keys without TTL, keys that hold a credential"
    );
    assert!(shortest == longest && longest <= 96, "keys of {shortest} to {longest} bytes");
    assert!(
        // Expiry is renewed to three seconds beyond the time to full, rounded up to a millisecond.
        (1..=603_001).contains(&life_ms),
        "a key lives for {life_ms} ms, though the bucket is full after ten minutes"
    );
}

#[test]
fn foreign_or_immortal_state_is_healed_by_the_next_request() {
    let (redis, envoy) = start();
    let mut connection = redis.connection();
    let planted = [
        vec!["SET", "KEY", "99"],
        vec!["SET", "KEY", "abc"],
        vec!["SET", "KEY", ""],
        vec!["SET", "KEY", "-1:-1:-1"],
        vec!["SET", "KEY", "99999999999999999999:1:1"],
        vec!["RPUSH", "KEY", "1", "2", "3"],
        vec!["HSET", "KEY", "tokens", "0"],
        vec!["SADD", "KEY", "a"],
        vec!["ZADD", "KEY", "1", "a"],
        vec!["PERSIST", "KEY"],
    ];
    for algorithm in ALGORITHMS {
        redis::cmd("FLUSHALL").exec(&mut connection).expect("Redis forgets all");
        assert_eq!(send(&envoy, algorithm, "one"), 200);
        let [key] = all_keys(&mut connection).try_into().expect("one key");
        for command in &planted {
            if command[0] != "PERSIST" {
                redis::cmd("DEL").arg(&key).exec(&mut connection).expect("Redis forgets a key");
            }
            let words = command.iter().map(|word| if *word == "KEY" { key.as_str() } else { word });
            let mut plant = redis::Cmd::new();
            words.for_each(|word| {
                plant.arg(word);
            });
            plant.exec(&mut connection).expect("Redis takes the plant");
            assert_eq!(ttl_ms(&mut connection, &key), -1, "{algorithm}: {command:?} leaves a key without TTL");
            assert_eq!(send(&envoy, algorithm, "one"), 200, "{algorithm} after {command:?}");
            assert!(ttl_ms(&mut connection, &key) > 0, "{algorithm} after {command:?}: no TTL");
        }
        // A denial heals too.
        let denied = (0..20).filter(|_| send(&envoy, algorithm, "one") == 429).count();
        assert!(denied >= 10, "{algorithm}: {denied} of 20 denied");
        redis::cmd("PERSIST").arg(&key).exec(&mut connection).expect("Redis takes the TTL off");
        assert_eq!(send(&envoy, algorithm, "one"), 429, "{algorithm}");
        assert!(ttl_ms(&mut connection, &key) > 0, "{algorithm}: a denial left no TTL");
    }
}

#[test]
fn refusals_cost_no_memory_and_requests_of_one_moment_are_counted_one_by_one() {
    let (redis, envoy) = start();
    let mut connection = redis.connection();
    let storm = |requests: usize| {
        let request = b"GET /log HTTP/1.1\r\nhost: example.com\r\nx-user: one\r\n\r\n";
        flood(envoy.address(), 20, requests, |_| request.to_vec())
    };
    assert_eq!(storm(20), BTreeMap::from([(200, 10), (429, 10)]));
    let [key] = all_keys(&mut connection).try_into().expect("one key");
    let mut measure = || -> (u64, u64) {
        let entries = redis::cmd("LLEN").arg(&key).query(&mut connection).expect("Redis counts entries");
        (entries, redis::cmd("MEMORY").arg("USAGE").arg(&key).query(&mut connection).expect("Redis measures a key"))
    };
    let before = measure();
    assert_eq!(storm(2_000), BTreeMap::from([(429, 2_000)]));
    println!("{} entries in {} bytes after 10 admitted and 2,010 refused requests", before.0, before.1);
    assert_eq!((measure(), before.0), (before, 10), "entries and bytes after 2,000 more refusals");
}
