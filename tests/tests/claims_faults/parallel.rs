//! Many duplicates at once (reference list 24, 36): one reaches the upstream, and nobody is harmed by a store that forgets its scripts.

use crate::world::{World, counted, payment, told};
use lockkeeper_tests::http::{Client, Response};
use lockkeeper_tests::{Envoy, SlowLink, origin};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DUPLICATES: usize = 200;
/// Long enough that most duplicates arrive while the first one runs.
const WORK: Duration = Duration::from_millis(150);

/// Sends the duplicates at once, half through each gateway.
fn send_duplicates(gateways: [&Envoy; 2], key: &str) -> Vec<Response> {
    let clients: Vec<Client> = gateways.map(Envoy::client).into();
    std::thread::scope(|scope| {
        let send = |number: usize| {
            let client = &clients[number % 2];
            scope.spawn(move || client.send(&payment(key)).expect("an answer"))
        };
        let senders: Vec<_> = (0..DUPLICATES).map(send).collect();
        senders.into_iter().map(|sender| sender.join().expect("a sender does not panic")).collect()
    })
}

/// Counts the answers by kind, and asserts that replays are the run's own answer, byte for byte.
fn kinds(responses: &[Response]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    let run = responses.iter().find(|one| one.status == 200).map(|one| &one.body);
    for response in responses {
        *kinds.entry(told(response)).or_default() += 1;
        if response.status == 200 {
            assert_eq!(Some(&response.body), run, "{response:?}");
        } else if response.status != 503 {
            assert!(response.header("retry-after").is_some(), "{response:?}");
        }
    }
    kinds
}

/// Two gateways of two workers each, and a lease that nothing here outlasts.
fn gateways(world: &World, store: SocketAddr) -> [Envoy; 2] {
    let lasting = json!({ "lease": "30s" });
    [(); 2].map(|()| world.envoy_with(lasting.clone(), |config| config.concurrency(2).redis(store)))
}

/// Lets something disturb the work, again and again, until the work is done.
fn disturbed<R>(mut disturb: impl FnMut() + Send, work: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    /// Also when the work panics.
    struct Done<'f>(&'f AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _done = Done(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                disturb();
            }
        });
        work()
    })
}

/// Three rounds, each of one run, while everybody else gets a replay or waits.
fn assert_one_run_each(world: &World, [one, other]: &[Envoy; 2]) {
    for round in 1..=3 {
        let kinds = kinds(&send_duplicates([one, other], &format!("k{round}")));
        println!("{kinds:?}");
        assert_eq!((world.origin.count(), kinds["200"]), (round, 1), "{kinds:?}");
        let allowed = ["200", "replayed 200", "409 idempotency-in-progress"];
        assert!(kinds.keys().all(|kind| allowed.contains(&kind.as_str())), "{kinds:?}");
    }
}

#[test]
fn idm_of_200_duplicates_through_two_gateways_one_runs_and_none_fails() {
    let world = World::start_with(origin::numbered_after(WORK));
    assert_one_run_each(&world, &gateways(&world, world.redis.address()));
}

#[test]
fn idm_scripts_flushed_every_50_ms_run_nothing_twice_and_fail_nobody() {
    let world = World::start_with(origin::numbered_after(WORK));
    let gateways = gateways(&world, world.redis.address());
    let mut connection = world.redis.connection();
    let flush = || {
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).expect("Redis answers");
        std::thread::sleep(Duration::from_millis(50));
    };
    disturbed(flush, || assert_one_run_each(&world, &gateways));
}

#[test]
fn idm_connections_cut_at_random_run_nothing_twice() {
    let world = World::start_with(origin::numbered_after(WORK));
    let link = SlowLink::start(world.redis.address(), Duration::from_millis(2)).expect("a loopback port is free");
    let [one, other] = gateways(&world, link.address());
    // No common rhythm with the requests.
    let mut pauses_ms = [600, 450, 750, 520, 680].into_iter().cycle();
    let cut = || {
        std::thread::sleep(Duration::from_millis(pauses_ms.next().unwrap_or(100)));
        link.cut();
    };
    let mut total = BTreeMap::<String, usize>::new();
    disturbed(cut, || {
        for round in 1..=8 {
            let kinds = kinds(&send_duplicates([&one, &other], &format!("k{round}")));
            kinds.iter().for_each(|(kind, count)| *total.entry(kind.clone()).or_default() += count);
        }
    });
    println!("{total:?}");
    let allowed = ["200", "replayed 200", "409 idempotency-in-progress", "503 store-unavailable"];
    assert!(total.keys().all(|kind| allowed.contains(&kind.as_str())), "{total:?}");
    assert!(total["409 idempotency-in-progress"] > 0, "{total:?}");
    assert!([&one, &other].map(|one| counted(one, "store_calls.outcome.unknown")).iter().sum::<u64>() > 0);
    let runs = world.origin.seen();
    let keys: BTreeSet<_> = runs.iter().map(|run| run.header("idempotency-key")).collect();
    assert_eq!(keys.len(), runs.len(), "a key ran twice: {runs:?}");
}
