//! CFG-05: a policy is edited while its counters are in use. Numbers change what is granted from then on; nothing that was
//! spent is handed out again.

use lockkeeper_tests::envoy::Reload;
use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::load::{self, Until};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, poll, ports};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The limit of each `x-user`, in a file with so many other policies.
fn policy(limit: &Value, on_store_failure: &str, others: usize) -> Value {
    let other = json!({ "limits": [{ "name": "x", "algorithm": "fixed_window", "limit": 1, "window": "1m", "key": ["method"] }] });
    let mut policies: serde_json::Map<_, _> =
        (0..others).map(|number| (format!("other-{number}"), other.clone())).collect();
    policies.insert("api".into(), json!({ "limits": [limit], "limits_on_store_failure": on_store_failure }));
    json!({ "version": 1, "policies": policies, "default_policy": "api" })
}

fn window(limit: u64) -> Value {
    json!({ "name": "l", "algorithm": "fixed_window", "limit": limit, "window": "1d", "key": ["header:x-user"] })
}

fn bucket(capacity: u64, refill: &str) -> Value {
    json!({ "name": "l", "algorithm": "token_bucket", "capacity": capacity, "refill": refill, "key": ["header:x-user"] })
}

fn config(store: SocketAddr) -> EnvoyConfig {
    let config = EnvoyConfig::shipped().redis(store).direct_response().without_access_log().reloadable();
    config.host(json!({ "deadline": "2s" }))
}

fn by(user: &str) -> Request {
    Request::get("/").header("x-user", user)
}

fn send(envoy: &Envoy) -> Response {
    envoy.client().send(&by("one")).expect("an answer")
}

fn admitted(envoy: &Envoy, requests: usize) -> usize {
    (0..requests).filter(|_| send(envoy).status == 200).count()
}

/// Puts the policy in force: answers to another user tell its quota.
fn edit(envoy: &Envoy, config: &EnvoyConfig, policy: Value, quota: &str) {
    assert_eq!(envoy.reload(&config.clone().policy(policy)).expect("Envoy answers"), Reload::Accepted);
    poll::until("the edit is in force", Duration::from_secs(10), || {
        let response = envoy.client().send(&by("probe")).expect("an answer");
        response.header("ratelimit-policy").is_some_and(|field| field.contains(quota)).then_some(())
    })
    .expect("the new numbers are enforced");
}

fn seconds_until_tomorrow() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    86_400 - now.as_secs() % 86_400
}

#[test]
fn a_raised_limit_grants_the_difference_and_a_lowered_one_nothing() {
    let redis = Redis::start().expect("Redis starts");
    let config = config(redis.address());
    let envoy = Envoy::start(&config.clone().policy(policy(&window(10), "deny", 0))).expect("Envoy starts");
    assert_eq!(admitted(&envoy, 50), 10);
    edit(&envoy, &config, policy(&window(20), "deny", 0), ";q=20;");
    assert_eq!(admitted(&envoy, 15), 10, "what was refused is not counted");
    edit(&envoy, &config, policy(&window(5), "deny", 0), ";q=5;");
    let denied = send(&envoy);
    assert_eq!(denied.status, 429);
    assert!(denied.header("ratelimit").is_some_and(|field| field.starts_with("\"l\";r=0;t=")), "{denied:?}");
    let retry_after: u64 = denied.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!(retry_after.abs_diff(seconds_until_tomorrow()) <= 2, "until the window's end, not {retry_after} s");
}

#[test]
fn a_lowered_bucket_is_usable_within_a_second_and_holds_no_more_than_it_says() {
    let redis = Redis::start().expect("Redis starts");
    let config = config(redis.address());
    let envoy = Envoy::start(&config.clone().policy(policy(&bucket(100, "1/1h"), "deny", 0))).expect("Envoy starts");
    assert_eq!(admitted(&envoy, 101), 100);
    edit(&envoy, &config, policy(&bucket(10, "10/s"), "deny", 0), ";q=10;");
    let waiting = Instant::now();
    poll::until("the bucket is usable", Duration::from_secs(10), || (send(&envoy).status == 200).then_some(()))
        .expect("the new refill fills it");
    println!("usable {:?} after the edit", waiting.elapsed());
    assert!(waiting.elapsed() < Duration::from_millis(1_500), "{:?}", waiting.elapsed());
    std::thread::sleep(Duration::from_millis(1_500));
    let start = Instant::now();
    let burst = admitted(&envoy, 40);
    let most = 10.0 + 10.0 * start.elapsed().as_secs_f64() + 1.0;
    assert!((10.0..=most).contains(&(burst as f64)), "{burst} of a bucket of 10, at most {most:.1}");
}

/// Load of one user while the file is edited every half second: what is admitted in all.
fn admitted_over_edits(envoy: &Envoy, config: &EnvoyConfig, limit: &Value, on_store_failure: &str) -> usize {
    let samples = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            load::run(envoy.address(), 4, Until::Elapsed(Duration::from_secs(5)), |_| {
                std::thread::sleep(Duration::from_millis(4));
                by("one")
            })
        });
        for others in 1..=8 {
            std::thread::sleep(Duration::from_millis(500));
            let edited = config.clone().policy(policy(limit, on_store_failure, others));
            assert_eq!(envoy.reload(&edited).expect("Envoy answers"), Reload::Accepted);
        }
        load.join().expect("the load does not panic")
    });
    let [admitted, denied] = [200, 429].map(|status| load::count(&samples, status));
    assert_eq!(admitted + denied, samples.len(), "every request has an answer of the policy's");
    assert!(denied > 100, "{denied} denied");
    admitted
}

#[test]
fn unrelated_edits_hand_out_nothing() {
    let redis = Redis::start().expect("Redis starts");
    let config = config(redis.address()).concurrency(2);
    let limit = bucket(50, "1/1h");
    let envoy = Envoy::start(&config.clone().policy(policy(&limit, "deny", 0))).expect("Envoy starts");
    assert_eq!(admitted_over_edits(&envoy, &config, &limit, "deny"), 50);
}

#[test]
fn unrelated_edits_hand_out_nothing_without_a_store_either() {
    let config = config(ports::free()).concurrency(2);
    let limit = bucket(50, "1/1h");
    let envoy = Envoy::start(&config.clone().policy(policy(&limit, "local", 0))).expect("Envoy starts");
    assert_eq!(admitted_over_edits(&envoy, &config, &limit, "local"), 50);
}
