//! Commands that leave in groups: waiting for others costs no more than the rest of the event loop's turn, whatever is in flight.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::stub_store::{self, Act, StubStore};
use lockkeeper_tests::{Envoy, EnvoyConfig};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TRIALS: usize = 40;
/// So long that the second command of a trial comes while the first is in flight.
const STORE_DELAY: Duration = Duration::from_millis(30);
/// Without the end of the turn a command in company would leave with the next tick, 5 ms after the first one.
const SAME: Duration = Duration::from_micros(2_500);

#[test]
fn a_command_in_company_leaves_as_soon_as_one_alone() {
    let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
    let policy = json!({ "version": 1, "default_policy": "all", "policies": { "all": { "limits": [
        { "name": "all", "algorithm": "fixed_window", "limit": 1_000_000, "window": "1d", "key": ["constant:all"] } ] } } });
    let config = EnvoyConfig::shipped().redis(stub.address()).direct_response().without_access_log().concurrency(1);
    let host = json!({ "coalesce_above": 1, "deadline": "5s" });
    let envoy = Envoy::start(&config.policy(policy).host(host)).expect("Envoy starts");
    let (one, other) = (envoy.client(), envoy.client());
    let warm = [&one, &other].map(|client| client.get("/").status);
    assert_eq!(warm, [200, 200]);

    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&arrivals);
    stub.behave(Arc::new(move |command| {
        recorder.lock().expect("no holder panics").push(Instant::now());
        vec![Act::Wait(STORE_DELAY), Act::Send(command.admitting_reply())]
    }));
    let request = Request::get("/");
    let trial = |_| {
        arrivals.lock().expect("no holder panics").clear();
        let sent = std::thread::scope(|scope| {
            let first = Instant::now();
            scope.spawn(|| one.send(&request).expect("an answer"));
            std::thread::sleep(Duration::from_millis(1));
            let second = Instant::now();
            other.send(&request).expect("an answer");
            [first, second]
        });
        let arrived = arrivals.lock().expect("no holder panics").clone();
        assert_eq!(arrived.len(), 2, "one command for each request");
        [arrived[0] - sent[0], arrived[1] - sent[1]]
    };
    let trials: Vec<_> = (0..TRIALS).map(trial).collect();
    let median = |which: usize| {
        let mut times: Vec<_> = trials.iter().map(|times| times[which]).collect();
        times.sort();
        times[TRIALS / 2]
    };
    let (alone, in_company) = (median(0), median(1));
    println!("from the client to the store: {alone:?} alone, {in_company:?} while another command is in flight");
    assert!(in_company < alone + SAME, "{in_company:?} against {alone:?}");
}
