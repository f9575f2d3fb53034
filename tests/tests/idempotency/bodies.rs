//! Bodies on their way through the filter: none passes undecided, each byte counts once, and large ones pass.

use crate::stage::Stage;
use crate::world::payment;
use lockkeeper_tests::EnvoyConfig;
use lockkeeper_tests::http::Response;
use lockkeeper_tests::http2::{self, Upload};
use lockkeeper_tests::raw::RawConnection;
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough that a whole body is there before the store answers.
const SLOW: Duration = Duration::from_millis(300);
const CAP: usize = 4096;

/// A policy file that only counts.
fn limits_only() -> Value {
    json!({ "version": 1, "default_policy": "api", "policies": { "api": { "limits": [
        { "name": "all", "algorithm": "token_bucket", "capacity": 1000, "refill": "1000/s", "key": ["constant:all"] } ] } } })
}

/// A body whose bytes tell where they stand.
fn numbered(bytes: usize) -> Vec<u8> {
    (0_u32..).flat_map(u32::to_le_bytes).take(bytes).collect()
}

fn head(length: usize) -> Vec<u8> {
    format!("POST /upload HTTP/1.1\r\nhost: a.example\r\ncontent-length: {length}\r\n\r\n").into_bytes()
}

/// The head of a payment, up to what tells how its body comes.
fn payment_head(stage: &Stage, key: &str, framing: &str) -> Vec<u8> {
    let host = stage.envoy.address();
    let head = format!("POST /payments HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer a\r\n");
    format!("{head}idempotency-key: {key}\r\n{framing}\r\n\r\n").into_bytes()
}

fn chunks<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let chunks = pieces.flat_map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    chunks.chain(b"0\r\n\r\n".iter().copied()).collect()
}

type Change = fn(EnvoyConfig) -> EnvoyConfig;

/// With the flag and without it.
fn both_kinds() -> [(&'static str, Change); 2] {
    [("with the flag", |config| config), ("without", EnvoyConfig::without_bodies)]
}

#[test]
fn bod_01_uploads_on_a_route_that_only_counts_arrive_whole_after_the_decision_and_never_get_413() {
    for (name, change) in both_kinds() {
        let stage = Stage::start_with(limits_only(), change);
        stage.slow_store(SLOW);
        let body = numbered(100_000);
        let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
        client.send(&head(body.len())).expect("Envoy reads");
        client.send(&body[..30_000]).expect("Envoy reads");
        std::thread::sleep(SLOW / 2);
        assert_eq!(stage.upstream.begun(), 1, "{name}: only the first request has passed");
        client.send(&body[30_000..60_000]).expect("Envoy reads");
        std::thread::sleep(SLOW);
        client.send(&body[60_000..]).expect("Envoy reads");
        let answer = client.receive().expect("an answer");
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        let large = numbered(5 * 1024 * 1024);
        client.send(&[head(large.len()), large.clone()].concat()).expect("Envoy reads");
        let answer = client.receive().expect("an answer");
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        let seen = stage.upstream.seen();
        assert!(seen[1].body == body && seen[2].body == large, "{name}: {} bytes", seen[1].body.len());
    }
}

#[test]
fn bod_01_a_body_of_any_size_and_framing_counts_every_byte_once_and_never_passes_undecided() {
    let stage = Stage::start(json!({ "fingerprint": { "max_body_bytes": CAP } }));
    stage.slow_store(SLOW);
    for (number, bytes) in [0, 1, CAP].into_iter().enumerate() {
        let body = numbered(bytes);
        let key = format!("size-{bytes}");
        let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
        client.send(&payment_head(&stage, &key, &format!("content-length: {bytes}"))).expect("Envoy reads");
        client.send(&body).expect("Envoy reads");
        std::thread::sleep(SLOW / 2);
        assert_eq!(stage.upstream.begun(), 1 + number, "{bytes} bytes passed undecided");
        assert_eq!(client.receive().expect("an answer").status, 200, "{bytes} bytes");
        assert!(stage.upstream.seen()[1 + number].body == body, "{bytes} bytes");
        // Whatever the framing, the same bytes are the same request.
        let pieces = [body.chunks(1).collect::<Vec<_>>(), body.chunks(1000).collect()];
        for pieces in pieces.into_iter().filter(|pieces| pieces.len() < 1000) {
            let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
            client.send(&payment_head(&stage, &key, "transfer-encoding: chunked")).expect("Envoy reads");
            client.send(&chunks(pieces.into_iter())).expect("Envoy reads");
            let answer = client.receive().expect("an answer");
            assert!(answer.head.contains("idempotent-replayed: true"), "{bytes} bytes in chunks: {answer:?}");
        }
    }
    assert_eq!(stage.upstream.begun(), 4);
}

#[test]
fn bod_01_a_body_in_chunks_of_one_byte_is_one_body() {
    let stage = Stage::start(json!({ "fingerprint": { "max_body_bytes": CAP } }));
    let body = numbered(600);
    let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
    client.send(&payment_head(&stage, "trickle", "transfer-encoding: chunked")).expect("Envoy reads");
    for piece in body.chunks(1) {
        let chunk = chunks(std::iter::once(piece));
        client.send(&chunk[..chunk.len() - b"0\r\n\r\n".len()]).expect("Envoy reads");
    }
    assert_eq!(stage.upstream.begun(), 0, "its body is not complete");
    client.send(b"0\r\n\r\n").expect("Envoy reads");
    assert_eq!(client.receive().expect("an answer").status, 200);
    assert!(stage.upstream.seen()[0].body == body);
    let again = stage.send(&payment("trickle", "").body(body));
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{again:?}");
    let other = stage.send(&payment("trickle", "").body(numbered(599)));
    assert_eq!(other.status, 422, "{other:?}");
}

#[test]
fn bod_01_http_2_bodies_with_and_without_length_and_trailers_are_the_same_body() {
    let stage = Stage::start(json!({ "fingerprint": { "max_body_bytes": CAP } }));
    stage.slow_store(SLOW);
    let mut trailers = ureq::http::HeaderMap::new();
    trailers.insert("x-checksum", ureq::http::HeaderValue::from_static("1"));
    let body = b"{\"amount\":1}".to_vec();
    let length = body.len().to_string();
    let send = |length: Option<&str>, pieces: Vec<Vec<u8>>, trailers: Option<&ureq::http::HeaderMap>| -> Response {
        let request = payment("h2", "");
        let request = length.map_or(request.clone(), |length| request.header("content-length", length));
        let upload = Upload { pieces, trailers: trailers.cloned(), pause: Duration::from_millis(20) };
        http2::send(stage.envoy.address(), &request, &upload).expect("an answer")
    };
    let first = send(None, vec![body.clone()], Some(&trailers));
    assert_eq!((first.status, first.header("idempotent-replayed")), (200, None), "{first:?}");
    assert_eq!(stage.upstream.seen()[1].body, body);
    for (length, pieces, trailers) in [
        (Some(length.as_str()), vec![body.clone()], None),
        (None, body.chunks(1).map(<[u8]>::to_vec).collect(), None),
        (None, body.chunks(5).map(<[u8]>::to_vec).collect(), Some(&trailers)),
        (None, vec![body.clone(), Vec::new()], None),
    ] {
        let again = send(length, pieces.clone(), trailers);
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "{pieces:?} {trailers:?}: {again:?}");
    }
    assert_eq!(stage.upstream.begun(), 2);
}

#[test]
fn fpr_19_an_empty_body_and_none_are_the_same_and_trailers_may_follow_no_body() {
    let stage = Stage::start(json!({}));
    let send = |upload: Upload| http2::send(stage.envoy.address(), &payment("e", ""), &upload).expect("an answer");
    let first = send(Upload::default());
    assert_eq!((first.status, first.header("idempotent-replayed")), (200, None), "{first:?}");
    let empty = send(Upload { pieces: vec![Vec::new()], ..Upload::default() });
    assert_eq!(empty.header("idempotent-replayed"), Some("true"), "{empty:?}");
    let mut trailers = ureq::http::HeaderMap::new();
    trailers.insert("x-checksum", ureq::http::HeaderValue::from_static("1"));
    let trailed = send(Upload { trailers: Some(trailers), ..Upload::default() });
    assert_eq!(trailed.header("idempotent-replayed"), Some("true"), "{trailed:?}");
    let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
    let answer = client.exchange(&payment_head(&stage, "e", "content-length: 0")).expect("an answer");
    assert!(answer.head.contains("idempotent-replayed: true"), "{answer:?}");
    assert_eq!(stage.upstream.begun(), 1);
}

/// What a larger body leads to, by policy; the length is told or not.
#[test]
fn bod_01_a_body_over_the_cap_is_refused_or_not_compared_and_never_passes_in_part() {
    let refusing = Stage::start(json!({ "fingerprint": { "max_body_bytes": CAP } }));
    let passing = Stage::start(json!({ "fingerprint": { "max_body_bytes": CAP, "over_max": "unfingerprinted" } }));
    for bytes in [CAP + 1, 512 * 1024] {
        let body = numbered(bytes);
        let framings = [
            ("told", format!("content-length: {bytes}"), body.clone()),
            ("untold", "transfer-encoding: chunked".to_owned(), chunks(body.chunks(1000))),
        ];
        for (name, framing, sent) in framings {
            let key = format!("{name}-{bytes}");
            let mut client = RawConnection::open(refusing.envoy.address()).expect("Envoy accepts");
            // It may be answered, and closed, before all is sent.
            let _ = client.send(&[payment_head(&refusing, &key, &framing), sent.clone()].concat());
            let answer = client.receive().expect("an answer");
            assert_eq!(answer.status, 413, "{name} {bytes}: {answer:?}");
            assert!(answer.body.contains("idempotency-body-too-large"), "{name} {bytes}: {answer:?}");
            let before = passing.upstream.count();
            let mut client = RawConnection::open(passing.envoy.address()).expect("Envoy accepts");
            let answer = client.exchange(&[payment_head(&passing, &key, &framing), sent].concat()).expect("an answer");
            assert_eq!(answer.status, 200, "{name} {bytes}: {answer:?}");
            assert!(passing.upstream.seen()[before].body == body, "{name} {bytes}");
        }
    }
    assert_eq!(refusing.upstream.begun(), 0);
    // Its fingerprint is unknown, so that it matches any.
    let again = passing.send(&payment(&format!("told-{}", CAP + 1), "").body(numbered(CAP + 2)));
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{again:?}");
}

#[test]
fn bod_01_a_large_upload_with_a_key_passes_whole_while_the_store_is_slow() {
    let stage = Stage::start(json!({ "fingerprint": { "over_max": "unfingerprinted" } }));
    stage.slow_store(SLOW);
    let body = numbered(5 * 1024 * 1024);
    let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
    client.send(&payment_head(&stage, "large", &format!("content-length: {}", body.len()))).expect("Envoy reads");
    client.send(&body).expect("Envoy reads");
    let answer = client.receive().expect("an answer");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(stage.upstream.seen()[1].body == body);
}

#[test]
fn p_7_expect_100_continue_is_answered_when_the_body_is_wanted() {
    let stage = Stage::start(json!({}));
    stage.slow_store(SLOW);
    let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
    let body = b"{\"amount\":1}";
    let framing = format!("content-length: {}\r\nexpect: 100-continue", body.len());
    client.send(&payment_head(&stage, "expect", &framing)).expect("Envoy reads");
    assert_eq!(client.receive_head().expect("an answer").status, 100);
    client.send(body).expect("Envoy reads");
    std::thread::sleep(SLOW / 2);
    assert_eq!(stage.upstream.begun(), 1, "it passed undecided");
    assert_eq!(client.receive().expect("an answer").status, 200);
    assert_eq!(stage.upstream.seen()[1].body, body);
}

#[test]
fn a_body_that_does_not_come_in_time_is_answered_and_frees_its_bytes() {
    let stage = Stage::start_with(crate::world::policy(crate::world::idempotency(json!({}))), |config| {
        config.host(json!({ "body_deadline": "300ms", "held_bodies_bytes": 1000 }))
    });
    stage.send(&payment("warm-up", "1"));
    let late = |key: &str| {
        let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
        client.send(&payment_head(&stage, key, "content-length: 900")).expect("Envoy reads");
        client.send(&numbered(800)).expect("Envoy reads");
        client
    };
    let mut first = late("late-1");
    std::thread::sleep(Duration::from_millis(50));
    // There is no room for another 800 bytes beside those that are held.
    let full = late("late-2").receive().expect("an answer");
    assert_eq!(full.status, 503, "{full:?}");
    assert!(full.body.contains("idempotency-body-not-read") && full.head.contains("retry-after: 1"), "{full:?}");
    let answer = first.receive().expect("an answer");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("\"retryable\":true"), "{answer:?}");
    // What they held is free again.
    let mut client = late("late-3");
    client.send(&numbered(900)[800..]).expect("Envoy reads");
    assert_eq!(client.receive().expect("an answer").status, 200);
    assert_eq!(stage.upstream.begun(), 2);
}

#[test]
fn a_host_that_says_it_reads_bodies_and_does_not_is_told_so_and_hangs_nobody() {
    let stage = Stage::start_with(crate::world::policy(crate::world::idempotency(json!({}))), |config| {
        config.without_bodies().host(json!({ "reads_bodies": true, "body_deadline": "300ms" }))
    });
    let answer = stage.send(&payment("k", "{}"));
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.elapsed < Duration::from_secs(5), "{:?}", answer.elapsed);
    assert_eq!(stage.upstream.begun(), 0);
    let log = stage.envoy.process().log();
    assert!(log.contains("allow_on_headers_stop_iteration"), "{log}");
}

#[test]
fn a_client_may_have_so_many_bodies_held_and_what_is_not_held_is_not_counted() {
    let stage = Stage::start(json!({ "fingerprint": { "hold_limit": { "capacity": 2, "refill": "1/m" } } }));
    for key in ["h1", "h2"] {
        assert_eq!(stage.send(&payment(key, "x")).status, 200);
    }
    let limited = stage.send(&payment("h3", "x"));
    assert_eq!(limited.status, 429, "{limited:?}");
    assert!(limited.body.contains("idempotency-bodies-limited"), "{limited:?}");
    assert!(limited.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{limited:?}");
    // Without a body nothing is held, and without a key neither.
    let bodiless = http2::send(stage.envoy.address(), &payment("h4", ""), &Upload::default()).expect("an answer");
    assert_eq!(bodiless.status, 200, "{bodiless:?}");
    let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
    let empty = client.exchange(&payment_head(&stage, "h5", "content-length: 0")).expect("an answer");
    assert_eq!(empty.status, 200, "{empty:?}");
    let plain = lockkeeper_tests::http::Request::new("POST", "/payments").header("authorization", "Bearer a");
    assert_eq!(stage.send(&plain.body("x")).status, 200);
    assert_eq!(stage.upstream.count(), 5);
}
