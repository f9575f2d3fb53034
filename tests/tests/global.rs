//! Several gateways and workers enforce one limit, exactly, through one Redis.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::load::{self, Sample, Until};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, SlowLink, StepClock};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const REQUESTS: usize = 2_000;
const CONNECTIONS: usize = 8;

/// One policy a path, with these limits. All turn requests away while the store fails: no local limiter blurs the count.
fn policies(by_path: &[(&str, Value)]) -> Value {
    let policies: serde_json::Map<_, _> = by_path
        .iter()
        .map(|(name, limits)| (name.to_string(), json!({ "limits": limits, "limits_on_store_failure": "deny" })))
        .collect();
    let routes: Vec<_> =
        by_path.iter().map(|(name, _)| json!({ "match": { "path": format!("/{name}") }, "policy": name })).collect();
    json!({ "version": 1, "policies": policies, "routes": routes })
}

/// Two gateways with two workers each.
fn gateways(store: SocketAddr, policies: Value) -> [Envoy; 2] {
    let config = config(store, policies);
    [(); 2].map(|()| Envoy::start(&config).expect("Envoy starts"))
}

/// The deadline is long: these tests are about counts, on machines under load.
fn config(store: SocketAddr, policies: Value) -> EnvoyConfig {
    let config = EnvoyConfig::shipped().concurrency(2).redis(store).direct_response().without_access_log();
    config.policy(policies).deadline(Duration::from_secs(5))
}

/// Sends the requests evenly to both gateways at the same time.
fn storm(gateways: &[Envoy; 2], path: &str) -> Vec<Sample> {
    let [requests, connections] = [REQUESTS, CONNECTIONS].map(|whole| whole / gateways.len());
    let load =
        |envoy: &Envoy| load::run(envoy.address(), connections, Until::Requests(requests), |_| Request::get(path));
    std::thread::scope(|scope| {
        let loads = gateways.each_ref().map(|envoy| scope.spawn(|| load(envoy)));
        loads.into_iter().flat_map(|load| load.join().expect("the load does not panic")).collect()
    })
}

fn assert_admitted(samples: &[Sample], admitted: usize) {
    let counts = [200, 429].map(|status| load::count(samples, status));
    assert_eq!(counts, [admitted, REQUESTS - admitted], "admitted and denied, of {REQUESTS}");
}

#[test]
fn two_gateways_admit_exactly_the_limit_by_every_algorithm() {
    let redis = Redis::start().expect("Redis starts");
    let link = SlowLink::start(redis.address(), Duration::from_millis(2)).expect("a loopback port is free");
    // Windows of a day: no edge of a window falls into the test but once a day.
    let rows = [
        json!({ "algorithm": "sliding_window", "limit": 100, "window": "1m" }),
        json!({ "algorithm": "sliding_window_counter", "limit": 100, "window": "1d" }),
        json!({ "algorithm": "fixed_window", "limit": 100, "window": "1d" }),
        json!({ "algorithm": "token_bucket", "capacity": 100, "refill": "1/1h" }),
    ];
    let names = rows.each_ref().map(|row| row["algorithm"].as_str().expect("a name").to_owned());
    let limits = rows.map(|mut row| {
        row["name"] = json!("all");
        row["key"] = json!(["client_address"]);
        json!([row])
    });
    let by_path: Vec<_> = names.iter().map(String::as_str).zip(limits).collect();
    let gateways = gateways(link.address(), policies(&by_path));
    for name in &names {
        println!("{name}");
        assert_admitted(&storm(&gateways, &format!("/{name}")), 100);
    }
}

#[test]
fn a_bucket_admits_its_capacity_and_what_was_refilled_meanwhile() {
    let redis = Redis::start().expect("Redis starts");
    let limit = json!({ "name": "all", "algorithm": "token_bucket", "capacity": 100, "refill": "50/s", "key": ["client_address"] });
    let gateways = gateways(redis.address(), policies(&[("api", json!([limit]))]));
    let start = Instant::now();
    let samples = storm(&gateways, "/api");
    let elapsed = start.elapsed();
    let admitted = load::count(&samples, 200);
    assert_eq!(admitted + load::count(&samples, 429), REQUESTS);
    let most = 100.0 + 50.0 * elapsed.as_secs_f64();
    println!("{admitted} admitted in {elapsed:?}, at most {most:.0} expected");
    assert!((100.0..=most).contains(&(admitted as f64)), "{admitted} is not within 100..={most}");
}

#[test]
fn a_denial_by_one_limit_leaves_the_others_uncharged() {
    let redis = Redis::start().expect("Redis starts");
    let limits = json!([
        { "name": "minute", "algorithm": "fixed_window", "limit": 10, "window": "1d", "key": ["client_address"] },
        { "name": "hour", "algorithm": "token_bucket", "capacity": 30, "refill": "1/1h", "key": ["client_address"] },
        { "name": "log", "algorithm": "sliding_window", "limit": 30, "window": "1h", "key": ["constant:all"] },
        { "name": "counter", "algorithm": "sliding_window_counter", "limit": 30, "window": "1d", "key": ["method"] },
    ]);
    let gateways = gateways(redis.address(), policies(&[("api", limits)]));
    assert_admitted(&storm(&gateways, "/api"), 10);
    let response = gateways[0].client().get("/api");
    let fields = response.header("ratelimit").expect("a denied request tells all limits").to_owned();
    let remaining: Vec<_> = fields.split(", ").filter_map(|item| item.split(';').nth(1)).collect();
    assert_eq!(remaining, ["r=0", "r=20", "r=20", "r=20"], "{fields}");
    let violated: Value = serde_json::from_str(&response.body).expect("problem details are JSON");
    assert_eq!(violated["violated-policies"], json!(["minute"]));
}

#[test]
fn scripts_flushed_every_50_ms_cost_no_request_and_no_count() {
    let redis = Redis::start().expect("Redis starts");
    let limit = json!({ "name": "all", "algorithm": "sliding_window", "limit": 100, "window": "1m", "key": ["client_address"] });
    let gateways = gateways(redis.address(), policies(&[("api", json!([limit]))]));
    let done = AtomicBool::new(false);
    let samples = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = redis.connection();
            while !done.load(Ordering::Relaxed) {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).expect("Redis forgets its scripts");
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let samples = storm(&gateways, "/api");
        done.store(true, Ordering::Relaxed);
        samples
    });
    assert_admitted(&samples, 100);
    let no_script = |envoy: &Envoy| envoy.admin().stat("wasmcustom.lockkeeper_store_calls.outcome.no_script");
    let unknown: u64 = gateways.iter().map(no_script).sum();
    println!("{unknown} of {REQUESTS} calls found no script and were sent whole");
    assert!(unknown > 0, "no call met a flushed script");
}

#[test]
fn a_gateway_whose_clock_is_wrong_neither_gains_nor_grants_anything() {
    let redis = Redis::start().expect("Redis starts");
    let limit = json!([{ "name": "all", "algorithm": "token_bucket", "capacity": 4, "refill": "2/1h", "key": ["client_address"] }]);
    let config = config(redis.address(), policies(&[("api", limit)]));
    let right = Envoy::start(&config).expect("Envoy starts");
    let clock = StepClock::build().expect("the clock that steps builds");
    let wrong = Envoy::start(&clock.of(config)).expect("Envoy starts");
    let admitted =
        |envoy: &Envoy, count: usize| (0..count).filter(|_| envoy.client().get("/api").status == 200).count();
    assert_eq!(admitted(&right, 5), 4);
    for seconds in [-10, 10, -3_600, 3_600, 86_400] {
        clock.set(seconds);
        assert_eq!([admitted(&wrong, 1), admitted(&right, 4)], [0, 0], "a clock {seconds} s off");
    }
}
