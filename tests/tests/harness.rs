//! The harness does what the tests rely on: servers stop, pause and come back, configs are replaced, clients go away.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::load::Until;
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, Upstream, envoy::Reload, load, paths, poll, reset, upstream};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

#[test]
fn redis_pauses_resumes_and_restarts_empty_on_its_port() {
    let mut redis = Redis::start().expect("Redis starts");
    redis::cmd("SET").arg("key").arg("value").exec(&mut redis.connection()).expect("Redis writes");
    let mut connection = redis.connection();
    connection.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout can be set");
    redis.pause();
    redis::cmd("PING").exec(&mut connection).expect_err("a paused Redis does not answer");
    redis.resume();
    let keys = |redis: &Redis| redis::cmd("DBSIZE").query::<u64>(&mut redis.connection()).expect("Redis counts");
    assert_eq!(keys(&redis), 1);
    let address = redis.address();
    redis.kill();
    redis.restart().expect("Redis starts again");
    assert_eq!((redis.address(), keys(&redis)), (address, 0));
}

#[test]
fn servers_end_with_their_value() {
    let redis = Redis::start().expect("Redis starts");
    let process = format!("/proc/{}", redis.pid());
    assert!(Path::new(&process).exists());
    drop(redis);
    assert!(!Path::new(&process).exists());
}

#[test]
fn a_reload_is_accepted_or_rejected_and_the_port_stays() {
    let upstream = Upstream::start().expect("the upstream starts");
    let config = EnvoyConfig::shipped().upstream(upstream.address()).without_filter().reloadable();
    let envoy = Envoy::start(&config).expect("Envoy starts");
    assert_eq!(envoy.client().get("/").status, 200);
    let direct = config.clone().direct_response();
    assert_eq!(envoy.reload(&direct).expect("Envoy answers"), Reload::Accepted);
    poll::until("the new route", Duration::from_secs(5), || (envoy.client().get("/").body == "ok\n").then_some(()))
        .expect("the new configuration is in use");
    let mut broken = config.clone();
    broken.connection_manager()["stat_prefix"] = json!("");
    let Reload::Rejected(log) = envoy.reload(&broken).expect("Envoy answers") else {
        panic!("a connection manager without a prefix was accepted")
    };
    assert!(log.contains("StatPrefix"), "{log}");
    assert_eq!(envoy.client().get("/").body, "ok\n");
    assert_eq!(envoy.admin().listener("main").expect("it listens"), envoy.address());
}

#[test]
fn the_upstream_echoes_and_counts() {
    let upstream = Upstream::start().expect("the upstream starts");
    let request =
        Request::new("POST", "/a?b=c").header("x-one", "1").header("x-one", "2").header(upstream::STATUS, "418");
    let response =
        lockkeeper_tests::http::Client::new(upstream.address()).send(&request.body("body")).expect("it answers");
    assert_eq!(response.status, 418);
    let seen = upstream.take().pop().expect("one request was seen");
    assert_eq!((&seen["method"], &seen["path"], &seen["body"]), (&json!("POST"), &json!("/a?b=c"), &json!("body")));
    assert_eq!((&seen["headers"]["x-one"], upstream.count()), (&json!("1, 2"), 1));
}

#[test]
fn a_load_sends_each_request_once() {
    let upstream = Upstream::start().expect("the upstream starts");
    let samples = load::run(upstream.address(), 4, Until::Requests(100), |number| Request::get(&format!("/{number}")));
    let mut paths: Vec<_> = upstream.take().iter().map(|seen| seen["path"].to_string()).collect();
    paths.sort();
    paths.dedup();
    assert_eq!((samples.len(), load::count(&samples, 200), paths.len()), (100, 100, 100));
}

#[test]
fn clients_that_lose_patience_reset_their_streams() {
    let upstream = Upstream::start().expect("the upstream starts");
    let config = EnvoyConfig::shipped_with(&paths::wasm()).upstream(upstream.address()).without_filter();
    let envoy = Envoy::start(&config).expect("Envoy starts");
    // The upstream is slow enough that each request is still under way when its client goes.
    let request = Request::get("/").header(upstream::DELAY_MS, "1000");
    let patience = |number: usize| Duration::from_millis(if number.is_multiple_of(2) { 50 } else { 20_000 });
    assert_eq!(reset::http2(envoy.address(), &request, 40, patience).expect("Envoy speaks HTTP/2"), 20);
    let resets = || envoy.admin().stat("http.ingress.downstream_rq_rx_reset");
    poll::until("Envoy counts the resets", Duration::from_secs(5), || (resets() == 20).then_some(()))
        .expect("all are counted");
}
