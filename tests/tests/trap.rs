//! A crash of the filter's VM, by a build that traps on purpose: it is bounded, and the next requests are served.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::stub_store::{self, StubStore};
use lockkeeper_tests::{Envoy, EnvoyConfig, paths, poll};
use serde_json::json;
use std::time::{Duration, Instant};

/// Shorter than the shipped 15 s, to be waited for.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSED: usize = 20;

/// A deadline that nothing here reaches.
const PATIENT: Duration = Duration::from_secs(10);

/// One worker, so that all requests share the VM that crashes.
fn start(stub: &StubStore) -> Envoy {
    let limit = json!({ "name": "all", "algorithm": "fixed_window", "limit": 1_000_000, "window": "1d", "key": ["client_address"] });
    let mut config = EnvoyConfig::shipped_with(&paths::wasm_trap())
        .redis(stub.address())
        .direct_response()
        .deadline(PATIENT)
        .policy(json!({
            "version": 1,
            "policies": { "api": { "limits": [limit], "limits_on_store_failure": "deny" } },
            "default_policy": "api"
        }));
    let timeout = &mut config.connection_manager()["stream_idle_timeout"];
    assert_eq!(*timeout, "15s", "the shipped idle timeout bounds a crash");
    *timeout = json!(format!("{}s", IDLE_TIMEOUT.as_secs()));
    Envoy::start(&config).expect("Envoy starts")
}

fn is_decided_by_the_store(response: &Response) -> bool {
    response.status == 200 && response.header("ratelimit").is_some()
}

fn assert_serves_again(envoy: &Envoy) {
    let crashed = Instant::now();
    let client = envoy.client();
    poll::until("the store decides again", Duration::from_secs(5), || {
        is_decided_by_the_store(&client.get("/")).then_some(())
    })
    .expect("requests are served after a crash");
    println!("decided by the store again {:?} after the crash", crashed.elapsed());
}

fn trap(envoy: &Envoy) -> Response {
    envoy.client().send(&Request::get("/").header("x-lockkeeper-trap", "1")).expect("a crash is answered")
}

#[test]
fn a_crash_ends_the_request_at_fault_and_the_next_ones_are_served() {
    let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
    let envoy = start(&stub);
    for _ in 0..3 {
        assert_serves_again(&envoy);
        let response = trap(&envoy);
        assert_eq!(response.status, 503);
        assert!(response.elapsed < IDLE_TIMEOUT, "{:?}", response.elapsed);
    }
    assert_serves_again(&envoy);
}

#[test]
fn requests_paused_in_a_crash_end_with_the_idle_timeout() {
    let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
    let envoy = start(&stub);
    assert_serves_again(&envoy);
    stub.behave(stub_store::silent());
    let before = stub.commands();
    std::thread::scope(|scope| {
        let paused: Vec<_> = (0..PAUSED).map(|_| scope.spawn(|| envoy.client().get("/"))).collect();
        let sent = || (stub.commands() - before >= PAUSED as u64).then_some(());
        poll::until("all requests wait for the store", Duration::from_secs(5), sent).expect("requests reach the store");
        assert_eq!(trap(&envoy).status, 503);
        stub.behave(stub_store::admit());
        assert_serves_again(&envoy);
        let paused: Vec<_> = paused.into_iter().map(|request| request.join().expect("an answer")).collect();
        let longest = paused.iter().map(|response| response.elapsed).max().unwrap_or_default();
        println!("requests paused in the crash ended after at most {longest:?}");
        assert!(paused.iter().all(|response| [503, 504].contains(&response.status)), "{paused:?}");
        assert!(longest < IDLE_TIMEOUT * 2, "a paused request took {longest:?}");
    });
    assert_serves_again(&envoy);
}

#[test]
fn an_open_breaker_goes_with_its_vm() {
    let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
    let envoy = start(&stub);
    assert_serves_again(&envoy);
    let are_open = |wanted: u64| {
        let is = || {
            envoy.client().get("/");
            (envoy.admin().stat("wasmcustom.lockkeeper_breakers_open") == wanted).then_some(())
        };
        poll::until("the gauge of open breakers", Duration::from_secs(10), is)
            .unwrap_or_else(|error| panic!("{error:#}"));
    };
    stub.behave(stub_store::error("OOM command not allowed"));
    are_open(1);
    assert_eq!(trap(&envoy).status, 503);
    stub.behave(stub_store::admit());
    assert_serves_again(&envoy);
    are_open(0);
}
