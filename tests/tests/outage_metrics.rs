//! An outage in the metrics and the log: every decision is counted once, apart by who made it, and no client names a label
//! or fills the log.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::load::{self, Until};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, poll};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const REQUESTS: usize = 3_000;
const MODES: [&str; 3] = ["allow", "deny", "local"];
/// Every client chooses its own identity, by this word and a number.
const CLIENT: &str = "mallory";

fn policy() -> Value {
    let limit = json!({ "name": "per-user", "algorithm": "fixed_window", "limit": 100, "window": "1d", "key": ["header:x-user"] });
    let policies: serde_json::Map<_, _> = MODES
        .iter()
        .map(|mode| (mode.to_string(), json!({ "limits": [limit], "limits_on_store_failure": mode })))
        .collect();
    let routes: Vec<_> =
        MODES.iter().map(|mode| json!({ "match": { "path": format!("/{mode}/*") }, "policy": mode })).collect();
    json!({ "version": 1, "policies": policies, "routes": routes })
}

/// The counts of decisions by policy, outcome and decider.
fn decisions(prometheus: &str) -> BTreeMap<[String; 3], u64> {
    let lines = prometheus.lines().filter(|line| line.starts_with("lockkeeper_decisions{"));
    let label = |line: &str, name: &str| {
        let value = line.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        value.unwrap_or_default().to_owned()
    };
    let mut counts = BTreeMap::new();
    for line in lines {
        let count: u64 = line.rsplit_once(' ').and_then(|(_, count)| count.parse().ok()).expect("a count");
        *counts.entry(["policy", "outcome", "decided_by"].map(|name| label(line, name))).or_default() += count;
    }
    counts.retain(|_, count| *count > 0);
    counts
}

#[test]
fn obs_01_an_outage_is_counted_apart_and_named_by_no_client() {
    let redis = Redis::start().expect("Redis starts");
    let config = EnvoyConfig::shipped().redis(redis.address()).direct_response().without_access_log();
    let envoy = Envoy::start(&config.policy(policy())).expect("Envoy starts");
    drop(redis);
    let samples = load::run(envoy.address(), 8, Until::Requests(REQUESTS), |number| {
        Request::get(&format!("/{}/{CLIENT}-{number}", MODES[number % 3]))
            .header("x-user", format!("{CLIENT}-{number}"))
    });
    let [passed, refused] = [200, 503].map(|status| load::count(&samples, status));
    assert_eq!((passed, refused), (REQUESTS / 3 * 2, REQUESTS / 3));

    let key = |policy: &str, outcome: &str, by: &str| [policy, outcome, by].map(str::to_owned);
    let third = (REQUESTS / 3) as u64;
    let expected = BTreeMap::from([
        (key("allow", "allowed", "failure_mode"), third),
        (key("deny", "unavailable", "failure_mode"), third),
        (key("local", "allowed", "local"), third),
    ]);
    let counted = || (decisions(&envoy.admin().prometheus()) == expected).then_some(());
    if poll::until("the metrics", Duration::from_secs(5), counted).is_err() {
        panic!("{:#?}", decisions(&envoy.admin().prometheus()));
    }
    let prometheus = envoy.admin().prometheus();
    assert!(!prometheus.contains(CLIENT), "a label holds what a client sent");
    let failures = prometheus.lines().filter(|line| line.starts_with("lockkeeper_store_calls{"));
    assert!(failures.clone().any(|line| line.contains("not_sent") && !line.ends_with(" 0")), "by class");
    let log = envoy.process().log();
    let lines = log.lines().filter(|line| line.contains("lockkeeper")).count();
    println!("{lines} lines of log about an outage of {REQUESTS} requests");
    assert!(lines < 30, "{log}");
    assert!(!log.contains(CLIENT), "the log holds what a client sent");
}

/// Whoever is on call hears of it before the traffic does.
#[test]
fn an_outage_is_noticed_without_traffic_and_is_a_few_lines() {
    let mut redis = Redis::start().expect("Redis starts");
    let config = EnvoyConfig::shipped().redis(redis.address()).direct_response().without_access_log();
    let envoy = Envoy::start(&config.policy(policy())).expect("Envoy starts");
    let ask = || envoy.client().send(&Request::get("/deny/x").header("x-user", "one")).expect("an answer").status;
    assert_eq!(ask(), 200);
    let is_open = |wanted: u64| {
        let is = || (envoy.admin().stat("wasmcustom.lockkeeper_breakers_open") == wanted).then_some(());
        poll::until("the breaker's gauge", Duration::from_secs(5), is).unwrap_or_else(|error| panic!("{error:#}"));
    };
    redis.kill();
    is_open(1);
    // Attempts go on.
    std::thread::sleep(Duration::from_secs(3));
    redis.restart().expect("Redis starts again");
    is_open(0);
    assert_eq!(ask(), 200);
    let log = envoy.process().log();
    for line in ["the store does not answer", "the store answers again"] {
        assert_eq!(log.matches(line).count(), 1, "{log}");
    }
    let lines = log.lines().filter(|line| line.contains("lockkeeper: ")).count();
    assert!(lines < 12, "{log}");
    assert!(log.contains("the pipe to the store closed with gRPC status 14"), "why: {log}");
}

/// What only a probe was told is told on.
#[test]
fn a_quiet_gateway_says_why_its_store_is_of_no_use() {
    let redis = Redis::start().expect("Redis starts");
    let config = EnvoyConfig::shipped().redis(redis.address()).direct_response().without_access_log().concurrency(1);
    let envoy = Envoy::start(&config.policy(policy())).expect("Envoy starts");
    let ask = || envoy.client().send(&Request::get("/deny/x").header("x-user", "one")).expect("an answer").status;
    assert_eq!(ask(), 200);
    let mut admin = redis.connection();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).exec(&mut admin).expect("Redis becomes a replica");
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut admin).expect("Redis closes");
    let is_told = || envoy.process().log().contains("it is a replica").then_some(());
    poll::until("the log", Duration::from_secs(5), is_told).unwrap_or_else(|_| panic!("{}", envoy.process().log()));
    let counted = || (envoy.admin().stat("wasmcustom.lockkeeper_store_calls.outcome.read_only") > 0).then_some(());
    poll::until("the metric", Duration::from_secs(5), counted).expect("it is counted");
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut admin).expect("Redis becomes a primary");
    let decides = || (ask() == 200).then_some(());
    poll::until("the store decides", Duration::from_secs(5), decides).expect("it is found");
}

/// However short the outage was: the log's last word is what is so.
#[test]
fn the_end_of_a_short_outage_is_told_too() {
    let redis = Redis::start().expect("Redis starts");
    let config = EnvoyConfig::shipped().redis(redis.address()).direct_response().without_access_log();
    let envoy = Envoy::start(&config.policy(policy())).expect("Envoy starts");
    let ask = || envoy.client().send(&Request::get("/deny/x").header("x-user", "one")).expect("an answer").status;
    assert_eq!(ask(), 200);
    redis.pause();
    let is_told = || {
        ask();
        envoy.process().log().contains("the store does not answer").then_some(())
    };
    poll::until("the log tells of the outage", Duration::from_secs(5), is_told).expect("the outage is noticed");
    redis.resume();
    let is_over = || envoy.process().log().contains("the store answers again").then_some(());
    if poll::until("the log tells of its end", Duration::from_secs(5), is_over).is_err() {
        panic!("{}", envoy.process().log());
    }
    assert_eq!(ask(), 200);
}

/// A Redis with a `timeout` closes what is not used: so do quiet gateways know it.
#[test]
fn a_store_that_closes_idle_connections_is_no_outage() {
    for database in [0, 1] {
        let redis = Redis::start().expect("Redis starts");
        let config = EnvoyConfig::shipped().redis(redis.address()).direct_response().without_access_log();
        let config = config.host(json!({ "database": database })).policy(policy()).concurrency(1);
        let envoy = Envoy::start(&config).expect("Envoy starts");
        let ask = || envoy.client().send(&Request::get("/deny/x").header("x-user", "one")).expect("an answer").status;
        assert_eq!(ask(), 200);
        let mut admin = redis.connection();
        for closes in 1..=8 {
            redis::cmd("CLIENT")
                .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
                .exec(&mut admin)
                .expect("Redis closes");
            let opened = || {
                let opened = envoy.admin().stat("wasmcustom.lockkeeper_pipe_events.event.opened");
                (opened > closes).then_some(())
            };
            poll::until("the pipe is opened again", Duration::from_secs(5), opened)
                .unwrap_or_else(|error| panic!("{error:#}"));
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(ask(), 200, "the store decides");
        assert_eq!(envoy.admin().stat("wasmcustom.lockkeeper_breakers_open"), 0);
        let log = envoy.process().log();
        assert!(!log.contains("the store does not answer"), "{log}");
        assert!(!log.contains("closed with gRPC status"), "{log}");
    }
}
