//! How a request may end at the origin, and what that means for its key.

use crate::world::{HELLO_GZIP, World, content, is_replay, is_run, keyed, of, payment, policy, problem, send, start};
use base64::Engine;
use lockkeeper_tests::http::Request;
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Piece, poll};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

/// E6: dispatched, and no whole answer. At most once, so nobody runs it again.
#[test]
fn idm_03_an_origin_that_breaks_off_or_answers_5xx_leaves_the_outcome_unknown() {
    let world = World::start(keyed(json!({ "lease": "1s", "max_lease": "1s" })));
    let worker = world.worker();
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let rows = [
        ("/silent", vec![Piece::Close], 502),
        ("/half", vec![Piece::bytes(half), Piece::Close], 502),
        (
            "/interim",
            vec![Piece::bytes("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")],
            502,
        ),
        ("/odd", vec![Piece::bytes("HTTP/1.1 600 Odd\r\ncontent-length: 0\r\n\r\n")], 502),
        ("/failed", vec![Piece::bytes("HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno")], 500),
        ("/platform", vec![Piece::bytes("HTTP/1.1 522 No\r\ncontent-length: 2\r\n\r\nno")], 522),
    ];
    for (path, answer, status) in rows {
        world.origin.answer(path, answer);
        let request = || Request::new("POST", path).header("authorization", "Bearer a").header("idempotency-key", "k");
        let first = send(worker.address(), &request());
        assert_eq!(first.status, status, "{path}: {first:?}");
        let is_ours = first.header("idempotency-outcome");
        assert_eq!(is_ours, (path != "/failed").then_some("unknown"), "{path}: {first:?}");
        let again = poll::until("its lease lapses", SOON, || {
            let again = send(worker.address(), &request());
            (problem(&again).1 != "idempotency-in-progress").then_some(again)
        });
        assert_eq!(problem(&again.expect("lapsed")), of(409, "idempotency-outcome-unknown"), "{path}");
    }
    assert_eq!(world.origin.count(), 6);
}

/// The platform takes the answer to an expectation for the last word of the origin, so that none may reach it.
#[test]
fn an_expectation_of_the_client_is_not_passed_on() {
    let limits =
        json!([{ "name": "all", "algorithm": "fixed_window", "limit": 100, "window": "1h", "key": ["constant:all"] }]);
    for members in [keyed(json!({})), policy(json!({ "limits": limits }))] {
        let world = World::start(members);
        let worker = world.worker();
        let mut client = RawConnection::open(worker.address()).expect("workerd accepts");
        let head = "POST /payments HTTP/1.1\r\nhost: a\r\nauthorization: Bearer a\r\nidempotency-key: k\r\n";
        let rest = "expect: 100-continue\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc";
        client.send(format!("{head}{rest}").as_bytes()).expect("workerd reads");
        poll::until("it reaches the origin", SOON, || (world.origin.count() == 1).then_some(())).expect("it arrives");
        assert_eq!(world.origin.seen()[0].header("expect"), None);
    }
}

/// E4 and E6 where the policy prefers a second run.
#[test]
fn where_the_policy_says_so_a_failed_request_runs_again() {
    let world = World::start(keyed(json!({ "on_unknown": "retry_after_lease", "lease": "1s", "max_lease": "1s" })));
    let worker = world.worker();
    world.origin.answer_whole("/payments", &["HTTP/1.1 503 Busy"], b"busy");
    assert_eq!(send(worker.address(), &payment("k", "x")).status, 503);
    poll::until("it is given back", SOON, || (send(worker.address(), &payment("k", "x")).status == 503).then_some(()))
        .expect("a complete 5xx is over");
    world.origin.answer("/payments", vec![Piece::Close]);
    poll::until("it breaks off", SOON, || (send(worker.address(), &payment("k", "x")).status == 502).then_some(()))
        .expect("it runs");
    world.origin.answer_whole("/payments", &["HTTP/1.1 200 OK"], b"done");
    let last = poll::until("the lease lapses", SOON, || {
        let answer = send(worker.address(), &payment("k", "x"));
        (answer.status == 200).then_some(answer)
    });
    assert!(is_run(&last.expect("it runs again")));
    let seen = world.origin.seen();
    let attempts: Vec<_> = seen.iter().map(|seen| seen.header("idempotency-attempt").unwrap_or_default()).collect();
    assert_eq!(attempts, ["1", "2", "3", "4"]);
    let fences: Vec<_> = seen.iter().map(|seen| seen.header("fencing-token").unwrap_or_default()).collect();
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

/// R1: a request outlives its lease many times over, and nobody else runs meanwhile.
#[test]
fn lck_01_a_slow_request_keeps_its_lease() {
    let world = World::start(keyed(json!({ "lease": "1s", "on_unknown": "retry_after_lease" })));
    let answer = Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
    world.origin.answer("/payments", vec![Piece::Pause(Duration::from_millis(3_500)), answer]);
    let worker = world.worker();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| send(worker.address(), &payment("k", "x")));
        poll::until("it runs", SOON, || (world.origin.count() == 1).then_some(())).expect("it runs");
        while !first.is_finished() {
            let other = send(worker.address(), &payment("k", "x"));
            assert!(is_replay(&other) || other.status == 409, "{other:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(is_run(&first.join().expect("an answer")));
    });
    assert_eq!((world.origin.count(), world.record("s").as_str()), (1, "D"));
}

/// Without a length nothing is held back: the client gets each piece as it comes, and the record is stored at the end.
#[test]
fn a_response_without_a_length_streams_and_is_kept() {
    let world = World::start(keyed(json!({})));
    let start = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nfirst\n\r\n";
    let pause = Piece::Pause(Duration::from_secs(2));
    world.origin.answer("/payments", vec![Piece::bytes(start), pause, Piece::bytes("7\r\nsecond\n\r\n0\r\n\r\n")]);
    let worker = world.worker();
    let stream = TcpStream::connect(worker.address()).expect("workerd accepts");
    stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
    let host = worker.address();
    let head =
        format!("POST /payments HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer a\r\nidempotency-key: k\r\n\r\n");
    (&stream).write_all(head.as_bytes()).expect("workerd reads");
    let mut lines = BufReader::new(&stream).lines().map(|line| line.expect("the stream goes on before it ends"));
    let begun = Instant::now();
    assert!(lines.any(|line| line == "first"));
    assert!(begun.elapsed() < Duration::from_millis(1_800), "not before the origin's pause");
    assert_eq!(send(host, &payment("k", "")).status, 409, "it runs");
    assert!(lines.any(|line| line == "second"));
    let again = poll::until("it is kept", SOON, || Some(send(host, &payment("k", ""))).filter(is_replay));
    assert_eq!(again.expect("a replay").body, "first\nsecond\n");
}

/// A coding is undone by the platform on the way; what is kept is the content, whatever the next client reads.
#[test]
fn bod_02_a_compressed_response_reaches_both_clients_readable() {
    let world = World::start(keyed(json!({})));
    let digests = ["content-digest: sha-256=:AA==:", "repr-digest: sha-256=:AA==:", "etag: \"v1\""];
    let head = [&["HTTP/1.1 200 OK", "content-encoding: gzip"], &digests[..]].concat();
    world.origin.answer_whole("/payments", &head, HELLO_GZIP);
    let worker = world.worker();
    let reads = payment("k", "x").header("accept-encoding", "gzip");
    let first = send(worker.address(), &reads);
    assert_eq!((first.status, content(&first).as_slice()), (200, &b"hello"[..]), "{first:?}");
    // The platform codes it once more, and never the same.
    for name in ["content-digest", "repr-digest"] {
        assert_eq!(first.header(name), None, "{first:?}");
    }
    assert_eq!(first.header("etag"), Some("W/\"v1\""));
    for client in ["gzip", "identity"] {
        let again = send(worker.address(), &payment("k", "x").header("accept-encoding", client));
        assert_eq!((is_replay(&again), content(&again).as_slice()), (true, &b"hello"[..]), "{again:?}");
        assert!(client == "gzip" || again.header("content-encoding").is_none(), "{again:?}");
    }
}

/// Slots are held until the response has ended, and given back then.
#[test]
fn concurrency_counts_requests_until_their_responses_end() {
    let rules = json!({ "concurrency": { "limit": 2, "key": ["constant:all"], "lease": "30s" } });
    let world = World::start(policy(rules));
    let start = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst";
    let slow = vec![Piece::bytes(start), Piece::Pause(Duration::from_millis(1_500)), Piece::bytes("later")];
    world.origin.answer("/slow", slow);
    let worker = world.worker();
    std::thread::scope(|scope| {
        let running = [(); 2].map(|()| scope.spawn(|| send(worker.address(), &Request::get("/slow"))));
        poll::until("both run", SOON, || (world.origin.count() == 2).then_some(())).expect("both run");
        assert_eq!(send(worker.address(), &Request::get("/third")).status, 429);
        for answer in running.map(|one| one.join().expect("an answer")) {
            assert_eq!((answer.status, answer.body.as_str()), (200, "firstlater"));
        }
    });
    poll::until("the slots are free", SOON, || {
        (send(worker.address(), &Request::get("/")).status == 200).then_some(())
    })
    .expect("slots are given back when responses end");
}

/// An upgrade gives back at its handshake what it holds, and passes.
#[test]
fn p_8_an_upgrade_passes_and_holds_nothing() {
    let world = World::start(policy(json!({ "concurrency": { "limit": 1, "key": ["constant:all"] } })));
    let worker = start(&world.config(Transport::DurableObject).origin(upgrading_origin()));
    let host = worker.address();
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA==\r\n\r\n"
    );
    let open = || {
        let mut client = RawConnection::open(host).expect("workerd accepts");
        client.send(upgrade.as_bytes()).expect("workerd reads");
        (client.receive_head().expect("an answer").status, client)
    };
    let (status, _first) = open();
    assert_eq!(status, 101);
    poll::until("another may pass", SOON, || (open().0 == 101).then_some(())).expect("the slot is free again");
}

/// Accepts upgrades and keeps their connections.
fn upgrading_origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
    let address = listener.local_addr().expect("a bound listener has an address");
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let lines: Vec<String> =
                reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let fields = lines.iter().filter_map(|line| line.split_once(": "));
            let key =
                fields.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key")).map(|(_, key)| key).next();
            let mut sha1 = sha1_smol::Sha1::from(key.unwrap_or_default());
            sha1.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
            let accepted = base64::engine::general_purpose::STANDARD.encode(sha1.digest().bytes());
            let head = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n";
            let answer = format!("{head}sec-websocket-accept: {accepted}\r\n\r\n");
            let _ = reader.get_mut().write_all(answer.as_bytes());
            open.push(reader);
        }
    });
    address
}
