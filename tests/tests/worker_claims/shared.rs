//! Workers and Envoys that share one store: what one did, the other knows.

use crate::world::{HELLO_GZIP, World, content, is_replay, is_run, keyed, payment, policy, problem, send, start};
use lockkeeper_tests::Piece;
use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::poll;
use lockkeeper_tests::workerd::Transport;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// TEN-01 too: the other client's key of the same name is another operation, for whichever of the two it comes to.
#[test]
fn ten_01_what_an_envoy_did_a_worker_replays_and_the_other_way_round_to_the_same_client_alone() {
    let world = World::start(keyed(json!({})));
    let binary = [0, 159, 146, 150];
    let rows: [(&str, &[&str], &[u8]); 3] = [
        (
            "/text",
            &["HTTP/1.1 201 Created", "location: /1", "content-type: text/plain; charset=utf-8"],
            "\u{fc}".as_bytes(),
        ),
        ("/binary", &["HTTP/1.1 200 OK", "content-type: application/octet-stream"], &binary),
        ("/gzip", &["HTTP/1.1 200 OK", "content-type: text/csv", "content-encoding: gzip"], HELLO_GZIP),
    ];
    let (worker, envoy) = (world.worker(), world.envoy());
    let both = [worker.address(), envoy.address()];
    let mut runs = 0;
    for (path, head, body) in rows {
        world.origin.answer_whole(path, head, body);
        for (key, [first, other]) in [("w", both), ("e", [both[1], both[0]])] {
            let of_client = |client: &str| {
                let request = Request::new("POST", path).header("authorization", client).header("idempotency-key", key);
                request.header("host", "api.example").header("accept-encoding", "gzip").body("{}")
            };
            let run = send(first, &of_client("Bearer a"));
            runs += 1;
            assert!(!is_replay(&run) && run.status < 300, "{path}, {key}: {run:?}");
            let again = send(other, &of_client("Bearer a"));
            assert!(is_replay(&again), "{path}, {key}: {again:?}");
            assert_eq!((again.status, content(&again)), (run.status, content(&run)), "{path}, {key}");
            assert_eq!(again.header("location"), run.header("location"), "{path}, {key}");
            assert_eq!(again.header("content-type"), run.header("content-type"), "{path}, {key}");
            let changed = send(other, &of_client("Bearer a").body("{\"other\":1}"));
            assert_eq!(problem(&changed).0, 422, "{path}, {key}");
            let others = send(other, &of_client("Bearer b").body("{\"other\":1}"));
            runs += 1;
            assert!(!is_replay(&others) && others.status < 300, "{path}, {key}: {others:?}");
        }
    }
    assert_eq!(world.origin.count(), runs);
}

/// At any time, through any of them.
#[test]
fn of_a_hundred_duplicates_through_two_workers_and_an_envoy_one_runs() {
    let world = World::start(keyed(json!({})));
    let slow = Piece::Pause(Duration::from_millis(300));
    let answer = Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
    world.origin.answer("/payments", vec![slow, answer]);
    let workers = [Transport::DurableObject, Transport::Tcp].map(|transport| start(&world.config(transport)));
    let envoy = world.envoy();
    let servers = [workers[0].address(), workers[1].address(), envoy.address()];
    let request = payment("k", "x").header("host", "api.example");
    let answers: Vec<Response> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..100).map(|one| (servers[one % 3], request.clone())).collect();
        let all: Vec<_> =
            all.into_iter().map(|(server, request)| scope.spawn(move || send(server, &request))).collect();
        all.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    assert_eq!(world.origin.count(), 1);
    assert_eq!(answers.iter().filter(|answer| is_run(answer)).count(), 1);
    let others: Vec<_> = answers.iter().filter(|answer| !is_run(answer)).collect();
    assert!(others.iter().all(|answer| is_replay(answer) || answer.status == 409), "{others:?}");
}

#[test]
fn a_lock_excludes_across_workers_and_envoys_and_fences_rise() {
    let lock = json!({ "lock": { "key": ["path:id"], "wait": "10s" } });
    let mut rules = policy(lock);
    rules["routes"] = json!([{ "match": { "path": "/accounts/{id}" }, "policy": "payments" }]);
    rules.as_object_mut().expect("an object").remove("default_policy");
    let world = World::start(rules);
    let answer = Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
    world.origin.answer("/accounts/7", vec![Piece::Pause(Duration::from_millis(150)), answer]);
    let (worker, envoy) = (world.worker(), world.envoy());
    let servers = [worker.address(), envoy.address()];
    let ask = |server: SocketAddr| send(server, &Request::get("/accounts/7"));
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|one| scope.spawn(move || ask(servers[one % 2]))).collect();
        for one in all {
            assert_eq!(one.join().expect("an answer").status, 200);
        }
    });
    let fences: Vec<String> =
        world.origin.seen().iter().map(|seen| seen.header("fencing-token").unwrap_or_default().to_owned()).collect();
    assert!(fences.len() == 8 && fences.is_sorted_by(|one, next| one < next), "one after another: {fences:?}");
}

#[test]
fn a_lock_that_is_not_waited_for_is_a_423_and_free_when_its_holder_has_ended() {
    let world = World::start(policy(json!({ "lock": { "key": ["header:x-account"] } })));
    let start = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    let pause = Piece::Pause(Duration::from_millis(800));
    world.origin.answer("/slow", vec![Piece::bytes(start), pause, Piece::bytes("0\r\n\r\n")]);
    let (worker, envoy) = (world.worker(), world.envoy());
    let of_account = |path: &str, account: &str| Request::get(path).header("x-account", account);
    for (holder, other) in [(worker.address(), envoy.address()), (envoy.address(), worker.address())] {
        let before = world.origin.count();
        std::thread::scope(|scope| {
            let held = scope.spawn(|| send(holder, &of_account("/slow", "7")));
            poll::until("it runs", SOON, || (world.origin.count() > before).then_some(())).expect("it runs");
            let refused = send(other, &of_account("/", "7"));
            assert_eq!(problem(&refused), (423, "resource-locked".to_owned()));
            assert_eq!(send(other, &of_account("/", "8")).status, 200, "another account");
            assert_eq!(held.join().expect("an answer").body, "first");
        });
        poll::until("it is free", SOON, || (send(other, &of_account("/", "7")).status == 200).then_some(()))
            .expect("the lock is given back");
    }
}

#[test]
fn slots_are_shared_by_workers_and_envoys() {
    let world = World::start(policy(json!({ "concurrency": { "limit": 3, "key": ["constant:all"] } })));
    let answer = Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
    world.origin.answer("/slow", vec![Piece::Pause(Duration::from_millis(1_500)), answer]);
    let (worker, envoy) = (world.worker(), world.envoy());
    let servers = [worker.address(), envoy.address(), worker.address()];
    std::thread::scope(|scope| {
        let running = servers.map(|server| scope.spawn(move || send(server, &Request::get("/slow")).status));
        poll::until("three run", SOON, || (world.origin.count() == 3).then_some(())).expect("three run");
        let refused = servers.map(|server| send(server, &Request::get("/")).status);
        assert_eq!(refused, [429; 3]);
        assert_eq!(running.map(|one| one.join().expect("an answer")), [200; 3]);
    });
}
