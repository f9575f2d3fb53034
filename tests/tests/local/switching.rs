//! From the store to the local limiter and back: an outage grants at most one extra allowance, however often the store comes and goes.

use crate::{config, per_user};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::load::{self, Until};
use lockkeeper_tests::{Envoy, Redis, poll};
use serde_json::json;
use std::time::Duration;

const LIMIT: usize = 100;

/// Long enough that a store that is well decides, on machines under load.
const PATIENT: Duration = Duration::from_secs(1);

/// A Redis and a gateway whose answers tell who made them.
fn start(deadline: Duration) -> (Redis, Envoy) {
    let redis = Redis::start().expect("Redis starts");
    let limit = per_user(json!({ "algorithm": "fixed_window", "limit": LIMIT, "window": "1d" }));
    let config = config(&[("api", limit)]).redis(redis.address()).concurrency(2).deadline(deadline);
    let envoy = Envoy::start(&config.host(json!({ "degraded_header": "x-decided-by" }))).expect("Envoy starts");
    wait_for(&envoy, None);
    (redis, envoy)
}

fn request(user: &str) -> Request {
    Request::get("/api").header("x-user", user)
}

/// Waits until all workers' decisions are made by `decider`, the store if there is none; spends nothing of the users under test.
fn wait_for(envoy: &Envoy, decider: Option<&str>) {
    let is_so = || {
        let samples = load::run(envoy.address(), 16, Until::Requests(32), |number| request(&format!("probe {number}")));
        let mut deciders = samples.iter().map(|sample| sample.answer.as_ref().ok()?.header("x-decided-by"));
        deciders.all(|found| found == decider).then_some(())
    };
    poll::until("the decider changes", Duration::from_secs(10), is_so).expect("the gateway follows the store");
}

fn admitted(envoy: &Envoy, requests: usize) -> usize {
    load::count(&load::run(envoy.address(), 8, Until::Requests(requests), |_| request("one")), 200)
}

#[test]
fn an_outage_grants_one_extra_allowance_and_the_return_none() {
    let (redis, envoy) = start(PATIENT);
    assert_eq!(admitted(&envoy, 3 * LIMIT), LIMIT, "by the store");
    redis.pause();
    wait_for(&envoy, Some("local"));
    assert_eq!(admitted(&envoy, 3 * LIMIT), LIMIT, "by the local limiter");
    redis.resume();
    wait_for(&envoy, None);
    assert_eq!(admitted(&envoy, 3 * LIMIT), 0, "by the store again");
    redis.pause();
    wait_for(&envoy, Some("local"));
    assert_eq!(admitted(&envoy, 3 * LIMIT), 0, "in a second outage");
    redis.resume();
}

#[test]
fn a_store_that_comes_and_goes_grants_one_extra_allowance_in_all() {
    let (redis, envoy) = start(Duration::from_millis(50));
    let total = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            load::run(envoy.address(), 8, Until::Elapsed(Duration::from_secs(7)), |_| {
                std::thread::sleep(Duration::from_millis(10));
                request("one")
            })
        });
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(500));
            redis.pause();
            std::thread::sleep(Duration::from_millis(500));
            redis.resume();
        }
        let samples = load.join().expect("the load does not panic");
        let unexpected = samples.iter().find(|sample| ![200, 429].contains(&sample.status()));
        assert!(unexpected.is_none(), "{unexpected:?}");
        load::count(&samples, 200)
    });
    println!("{total} admitted over 6 outages, with a limit of {LIMIT}");
    assert!((LIMIT..=2 * LIMIT).contains(&total), "{total} admitted");
}

#[test]
fn degraded_decisions_are_marked_and_counted() {
    let (redis, envoy) = start(PATIENT);
    redis.pause();
    wait_for(&envoy, Some("local"));
    let samples = load::run(envoy.address(), 4, Until::Requests(2 * LIMIT), |_| request("one"));
    let marked = |status: u16| {
        let responses = samples.iter().filter_map(|sample| sample.answer.as_ref().ok());
        responses.filter(|one| one.status == status && one.header("x-decided-by") == Some("local")).count()
    };
    assert_eq!([marked(200), marked(429)], [LIMIT, LIMIT], "answers that say who decided");
    let metric = |limit: &str, outcome: &str| {
        let name = format!("lockkeeper_decisions.policy.api.limit.{limit}.outcome.{outcome}.decided_by.local");
        envoy.admin().stat(&format!("wasmcustom.{name}"))
    };
    let counted =
        || (metric("per-user", "denied") == LIMIT as u64 && metric("all", "allowed") >= LIMIT as u64).then_some(());
    poll::until("local decisions are counted", Duration::from_secs(5), counted).expect("metrics follow");
    let open = envoy.admin().stat("wasmcustom.lockkeeper_breakers_open");
    assert!((1..=2).contains(&open), "{open} workers' breakers are open");
    redis.resume();
    wait_for(&envoy, None);
    for text in ["the store does not answer", "the store answers again"] {
        let logged = || envoy.process().log().contains(text).then_some(());
        poll::until(text, Duration::from_secs(5), logged).expect("the log tells");
    }
}
