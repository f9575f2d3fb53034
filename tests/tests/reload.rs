//! New configurations: a broken one is refused with its place and the old one goes on, a good one takes over under load and keeps the counters.

use lockkeeper_tests::envoy::Reload;
use lockkeeper_tests::http::Request;
use lockkeeper_tests::load::{self, Until};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, poll};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const LIMIT: usize = 100;

/// A policy with a limit on `x-user`, turned away while the store fails: no local limiter blurs the counts.
fn policy(limit: Value) -> Value {
    json!({
        "version": 1,
        "policies": { "api": {
            "limits": [{ "name": "per-user", "algorithm": "fixed_window", "limit": limit, "window": "1d", "key": ["header:x-user"] }],
            "limits_on_store_failure": "deny"
        } },
        "default_policy": "api"
    })
}

/// A policy with four faults, and their places.
fn broken_policy() -> (Value, [&'static str; 4]) {
    let mut policy = policy(json!(-1));
    policy["policies"]["api"]["limits"][0]["window"] = json!("1 fortnight");
    policy["policies"]["api"]["limits"][0]["colour"] = json!("red");
    policy["version"] = json!(7);
    let places = [
        "$.policy.version:",
        "$.policy.policies.api.limits[0].limit:",
        "$.policy.policies.api.limits[0].window:",
        "$.policy.policies.api.limits[0].colour:",
    ];
    (policy, places)
}

fn config(redis: &Redis) -> EnvoyConfig {
    let config = EnvoyConfig::shipped().concurrency(2).redis(redis.address()).direct_response().without_access_log();
    config.deadline(Duration::from_secs(5)).policy(policy(json!(LIMIT)))
}

fn request(user: &str) -> Request {
    Request::get("/").header("x-user", user)
}

fn admitted(envoy: &Envoy, user: &str, requests: usize) -> usize {
    let samples = load::run(envoy.address(), 8, Until::Requests(requests), |_| request(user));
    let unexpected = samples.iter().find(|sample| ![200, 429].contains(&sample.status()));
    assert!(unexpected.is_none(), "{unexpected:?}");
    load::count(&samples, 200)
}

fn assert_names_the_places(text: &str, places: &[&str]) {
    for place in places {
        assert!(text.contains(place), "no {place} in:\n{text}");
    }
}

#[test]
fn a_broken_policy_is_refused_at_start_and_by_validation_with_each_place() {
    let redis = Redis::start().expect("Redis starts");
    let (broken, places) = broken_policy();
    let config = config(&redis).policy(broken);
    let refusal = Envoy::validate(&config).expect_err("validation refuses a broken policy");
    assert_names_the_places(&refusal.to_string(), &places);
    let Err(refusal) = Envoy::start(&config) else { panic!("Envoy started with a broken policy") };
    assert_names_the_places(&format!("{refusal:#}"), &places);
}

#[test]
fn a_broken_update_is_refused_and_the_old_policy_goes_on() {
    let redis = Redis::start().expect("Redis starts");
    let config = config(&redis).reloadable();
    let envoy = Envoy::start(&config).expect("Envoy starts");
    assert_eq!(admitted(&envoy, "one", LIMIT / 2), LIMIT / 2);
    let (broken, places) = broken_policy();
    match envoy.reload(&config.clone().policy(broken)).expect("Envoy answers") {
        Reload::Rejected(log) => assert_names_the_places(&log, &places),
        Reload::Accepted => panic!("Envoy accepted a broken policy"),
    }
    assert_eq!(admitted(&envoy, "one", LIMIT), LIMIT / 2, "the rest of the old limit");
    assert_eq!(envoy.reload(&config.policy(policy(json!(LIMIT + 10)))).expect("Envoy answers"), Reload::Accepted);
    poll::until("the new limit is enforced", Duration::from_secs(10), || {
        (admitted(&envoy, "one", 1) == 1).then_some(())
    })
    .expect("the counter stays, the limit grows");
    assert_eq!(admitted(&envoy, "one", 50), 9, "the rest of the new limit");
}

/// Load of one user over several reloads; every request is answered by the store, and the user gets the limit once.
fn assert_lossless(envoy: &Envoy, reload: impl Fn(usize)) {
    let samples = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            load::run(envoy.address(), 8, Until::Elapsed(Duration::from_secs(6)), |_| {
                std::thread::sleep(Duration::from_millis(4));
                request("loaded")
            })
        });
        for round in 0..5 {
            std::thread::sleep(Duration::from_millis(800));
            reload(round);
        }
        load.join().expect("the load does not panic")
    });
    let counts = [200, 429].map(|status| load::count(&samples, status));
    let longest = samples.iter().map(|sample| sample.elapsed).max();
    println!("{} requests over 5 reloads: {counts:?} admitted and denied, the longest {longest:?}", samples.len());
    let lost = samples.iter().find(|sample| ![200, 429].contains(&sample.status()));
    assert!(lost.is_none(), "{lost:?}");
    assert_eq!(counts[0], LIMIT, "admitted over all reloads");
}

/// The same policy but for a field that does not change what is counted: a new plugin configuration and a new root.
fn touched(round: usize) -> Value {
    let mut policy = policy(json!(LIMIT));
    policy["policies"]["spare"] = json!({ "limits": [
        { "name": format!("round-{round}"), "algorithm": "fixed_window", "limit": 1, "window": "1m", "key": ["constant:x"] }] });
    policy
}

#[test]
fn a_new_listener_under_load_loses_no_request_and_keeps_the_counters() {
    let redis = Redis::start().expect("Redis starts");
    let config = config(&redis).reloadable();
    let envoy = Envoy::start(&config).expect("Envoy starts");
    assert_lossless(&envoy, |round| {
        let answer = envoy.reload(&config.clone().policy(touched(round))).expect("Envoy answers");
        assert_eq!(answer, Reload::Accepted);
    });
}

/// The filter comes from a file that Envoy watches (ECDS): the listener stays, with all its connections.
struct WatchedFilter {
    directory: tempfile::TempDir,
    filter: Value,
}

impl WatchedFilter {
    /// Moves the filter out of the configuration into a file.
    fn of(config: &mut EnvoyConfig) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("filter.json");
        let filter = &mut config.connection_manager()["http_filters"][0];
        let inline = filter["typed_config"].take();
        *filter = json!({
            "name": "lockkeeper",
            "config_discovery": {
                "config_source": { "resource_api_version": "V3", "path_config_source": { "path": path, "watched_directory": { "path": directory.path() } } },
                "type_urls": ["type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"]
            }
        });
        let watched = Self { directory, filter: inline };
        watched.write(&watched.filter["config"]["configuration"]["value"]);
        watched
    }

    /// Replaces the plugin configuration, as text, at once.
    fn write(&self, plugin: &Value) {
        let mut filter = self.filter.clone();
        filter["config"]["configuration"]["value"] = plugin.clone();
        let resource = json!({ "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "name": "lockkeeper", "typed_config": filter });
        let path = |name: &str| self.directory.path().join(name);
        fs::write(path("filter.json.new"), json!({ "resources": [resource] }).to_string())
            .expect("the filter can be written");
        fs::rename(path("filter.json.new"), path("filter.json")).expect("the filter can be replaced");
    }

    fn write_policy(&self, policy: &Value) {
        let plugin =
            self.filter["config"]["configuration"]["value"].as_str().expect("the plugin configuration is text");
        let mut plugin: Value = serde_json::from_str(plugin).expect("the plugin configuration is JSON");
        plugin["policy"] = policy.clone();
        self.write(&json!(plugin.to_string()));
    }
}

/// A counter of the filter's own updates.
fn updates(envoy: &Envoy, name: &str) -> u64 {
    let stats = envoy.admin().stats();
    stats
        .iter()
        .filter(|(key, _)| key.starts_with("extension_config_discovery") && key.ends_with(name))
        .map(|(_, count)| count)
        .sum()
}

fn wait_for_update(envoy: &Envoy, name: &str, before: u64) {
    let updated = || (updates(envoy, name) > before).then_some(());
    poll::until(name, Duration::from_secs(10), updated).expect("Envoy answers to the new filter");
}

#[test]
fn a_new_filter_under_load_loses_no_request_and_keeps_the_counters() {
    let redis = Redis::start().expect("Redis starts");
    let mut config = config(&redis);
    let watched = WatchedFilter::of(&mut config);
    let envoy = Envoy::start(&config).expect("Envoy starts");
    assert_lossless(&envoy, |round| {
        let before = updates(&envoy, "config_reload");
        watched.write_policy(&touched(round));
        wait_for_update(&envoy, "config_reload", before);
    });
    let pipes = || envoy.admin().stat("cluster.lockkeeper_store.upstream_rq_active");
    let closed = poll::until("old pipes close", Duration::from_secs(5), || (pipes() <= 2).then_some(()));
    closed.unwrap_or_else(|error| panic!("{error:#}: {} pipes are open, with two workers", pipes()));
    let (broken, _) = broken_policy();
    let before = updates(&envoy, "config_fail");
    watched.write_policy(&broken);
    wait_for_update(&envoy, "config_fail", before);
    assert_eq!(admitted(&envoy, "loaded", LIMIT), 0, "the old policy still denies");
    assert_eq!(admitted(&envoy, "new", LIMIT + 1), LIMIT, "the old policy still admits");
}

/// A configuration that goes takes its word about the store with it, even when it still waits for replies.
#[test]
fn a_filter_replaced_in_an_outage_leaves_no_open_breaker_behind() {
    let redis = Redis::start().expect("Redis starts");
    let mut config = config(&redis).concurrency(1).deadline(Duration::from_millis(50));
    let watched = WatchedFilter::of(&mut config);
    let envoy = Envoy::start(&config).expect("Envoy starts");
    assert_eq!(admitted(&envoy, "one", 1), 1);
    let breakers = || envoy.admin().stat("wasmcustom.lockkeeper_breakers_open");
    redis.pause();
    let is_open = || {
        load::run(envoy.address(), 1, Until::Requests(1), |_| request("one"));
        (breakers() == 1).then_some(())
    };
    poll::until("the breaker opens", Duration::from_secs(5), is_open).expect("the outage is noticed");
    let before = updates(&envoy, "config_reload");
    watched.write_policy(&touched(0));
    wait_for_update(&envoy, "config_reload", before);
    // The old one gives its connection up half a second after its last probe.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(breakers(), 0, "nobody has asked the new one");
    let log = envoy.process().log();
    let last = log.lines().rfind(|line| line.contains("lockkeeper: ")).unwrap_or_default();
    assert!(last.contains("is replaced; the new one asks anew"), "the log's last word of the store is not true: {log}");
    redis.resume();
}
