//! What a retry gets of a request that is done: the upstream's answer without what belonged to the first exchange.

use crate::stage::Stage;
use crate::world::{idempotency, payment, policy};
use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::http2::{self, Upload};
use lockkeeper_tests::{Piece, poll};
use serde_json::{Value, json};
use std::time::Duration;

/// `{"id":"é","amount":1}` in gzip.
const ZIPPED: [u8; 42] = [
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0xab, 0x56, 0xca, 0x4c, 0x51, 0xb2, 0x52, 0x3a, 0xbc,
    0x52, 0x49, 0x47, 0x29, 0x31, 0x37, 0xbf, 0x34, 0xaf, 0x44, 0xc9, 0xca, 0xb0, 0x16, 0x00, 0xd3, 0x20, 0x0e, 0x92,
    0x16, 0x00, 0x00, 0x00,
];
const PLAIN: &str = "{\"id\":\"é\",\"amount\":1}";
const CREATED: &str = "HTTP/1.1 201 Created";

/// A POST to `path` with the key `path`, so that each path is one operation.
fn order(path: &str) -> Request {
    Request::new("POST", path).header("authorization", "Bearer a").header("idempotency-key", path).body("{}")
}

/// All values of a header, in order.
fn values(response: &Response, name: &str) -> Vec<Vec<u8>> {
    response.headers.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect()
}

fn is_replay(response: &Response) -> bool {
    response.header("idempotent-replayed") == Some("true")
}

/// The first answer and that of a retry.
fn twice(stage: &Stage, path: &str) -> (Response, Response) {
    let first = stage.send(&order(path));
    assert!(!is_replay(&first), "{path}: {first:?}");
    (first, retried(stage, path))
}

/// The answer to a retry. What was not held back may end for its client before the store knows, so it asks until then.
fn retried(stage: &Stage, path: &str) -> Response {
    let known = || Some(stage.send(&order(path))).filter(|answer| !answer.body.contains("idempotency-in-progress"));
    poll::until("the store knows the outcome", Duration::from_secs(5), known).expect("the store is told")
}

#[test]
fn a_retry_gets_the_same_answer_and_the_upstream_runs_once() {
    let stage = Stage::start(json!({}));
    stage.upstream.answer_whole("/payments", &[CREATED, "content-type: application/json"], b"{\"id\":7}");
    let first = stage.send(&payment("k1", "{\"amount\":1}"));
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None), "{first:?}");
    let seen = stage.upstream.seen();
    assert_eq!(seen[0].header("idempotency-attempt"), Some("1"));
    assert_eq!(seen[0].header("fencing-token").map(str::len), Some(16));
    let again = stage.send(&payment("\"k1\"", "{\"amount\":1}"));
    assert_eq!((again.status, &again.body), (201, &first.body), "{again:?}");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    let other = stage.send(&payment("k1", "{\"amount\":2}"));
    assert_eq!(other.status, 422, "{other:?}");
    assert_eq!(stage.upstream.count(), 1);
}

#[test]
fn bod_02_a_replay_keeps_what_describes_the_outcome_and_nothing_of_the_exchange() {
    let stage = Stage::start(json!({}));
    let body = b"binary \0\xff\xfe bytes";
    let kept: [(&str, &[&str]); 6] = [
        ("content-type", &["application/x-thing; a=\"b, c\""]),
        ("location", &["/orders/1"]),
        ("etag", &["\"v1\""]),
        ("link", &["</a>; rel=\"next, last\"", "</b>; rel=prev, </c>"]),
        ("content-disposition", &["attachment; filename=\"a, b.pdf\""]),
        ("vary", &["accept, origin"]),
    ];
    let dropped = [
        "set-cookie: session=secret",
        "date: Thu, 01 Jan 1970 00:00:00 GMT",
        "ratelimit: \"upstream\";r=1;t=1",
        "x-ratelimit-remaining: 1",
        "retry-after: 17",
        "x-request-id: of-the-first",
        "www-authenticate: Basic",
        "access-control-allow-origin: https://first.example",
        "server-timing: db;dur=5",
        "connection: x-hop",
        "x-hop: 1",
        "x-unknown: 1",
    ];
    let lines = kept.iter().flat_map(|(name, values)| values.iter().map(move |value| format!("{name}: {value}")));
    let lines: Vec<String> = lines.chain(dropped.map(str::to_owned)).collect();
    let head: Vec<&str> = std::iter::once(CREATED).chain(lines.iter().map(String::as_str)).collect();
    stage.upstream.answer_whole("/kept", &head, body);
    let (first, again) = twice(&stage, "/kept");
    assert_eq!(first.header("set-cookie"), Some("session=secret"), "the first caller gets its cookie");
    let over_http_2 = http2::send(
        stage.envoy.address(),
        &order("/kept"),
        &Upload { pieces: vec![b"{}".to_vec()], ..Upload::default() },
    )
    .expect("an answer");
    for (name, replay) in [("HTTP/1", &again), ("HTTP/2", &over_http_2)] {
        assert!(is_replay(replay), "{name}: {replay:?}");
        assert_eq!((replay.status, replay.content.as_slice()), (201, body.as_slice()), "{name}");
        for (header, expected) in kept {
            let expected: Vec<Vec<u8>> = expected.iter().map(|value| value.as_bytes().to_vec()).collect();
            assert_eq!(values(replay, header), expected, "{name}: {header}");
        }
        assert_eq!(values(replay, "content-length"), [body.len().to_string().into_bytes()], "{name}");
        assert_eq!(replay.header("cache-control"), Some("no-store"), "{name}");
        assert_eq!(values(replay, "date").len(), 1, "{name}: {replay:?}");
        assert_ne!(replay.header("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"), "{name}");
        for line in dropped.iter().filter(|line| !line.starts_with("date")) {
            let (header, _) = line.split_once(':').expect("a header line");
            assert_eq!(values(replay, header), Vec::<Vec<u8>>::new(), "{name}: {header}");
        }
    }
    assert_eq!(stage.upstream.count(), 1);
}

#[test]
fn bod_02_gzip_is_replayed_to_those_who_read_it_and_unfolded_for_the_others() {
    let stage = Stage::start(json!({}));
    let head = [CREATED, "content-type: application/json", "content-encoding: gzip", "etag: \"z\""];
    stage.upstream.answer_whole("/zip", &head, &ZIPPED);
    let zips = |accept: &str| order("/zip").header("accept-encoding", accept);
    let first = stage.send(&zips("gzip"));
    assert_eq!(first.content, ZIPPED);
    let as_it_was = stage.send(&zips("br, gzip"));
    assert!(is_replay(&as_it_was) && as_it_was.content == ZIPPED, "{as_it_was:?}");
    assert_eq!(as_it_was.header("content-encoding"), Some("gzip"));
    let unfolded = stage.send(&zips("identity"));
    assert_eq!((unfolded.status, unfolded.body.as_str()), (201, PLAIN), "{unfolded:?}");
    assert_eq!((unfolded.header("content-encoding"), unfolded.header("etag")), (None, Some("W/\"z\"")));
    assert_eq!(unfolded.header("content-length"), Some(PLAIN.len().to_string().as_str()));
    // Nobody here can unfold this one, and nothing of it may be sent to who cannot read it.
    stage.upstream.answer_whole("/br", &[CREATED, "content-encoding: br", "location: /orders/2"], b"brotli");
    let first = stage.send(&order("/br").header("accept-encoding", "br"));
    assert_eq!(first.status, 201);
    let unreadable = stage.send(&order("/br").header("accept-encoding", "gzip"));
    assert_eq!((unreadable.status, unreadable.header("retry-after")), (409, None), "{unreadable:?}");
    let problem: Value = serde_json::from_str(&unreadable.body).expect("a problem");
    assert_eq!((&problem["original-status"], &problem["location"]), (&json!(201), &json!("/orders/2")), "{problem}");
    assert_eq!(stage.upstream.count(), 2);
}

#[test]
fn bod_02_responses_without_content_and_chunked_ones_have_one_true_length() {
    let stage = Stage::start(json!({}));
    stage.upstream.answer("/204", vec![Piece::bytes("HTTP/1.1 204 No Content\r\netag: \"a\"\r\n\r\n")]);
    stage.upstream.answer("/304", vec![Piece::bytes("HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n")]);
    for path in ["/204", "/304"] {
        let (first, again) = twice(&stage, path);
        assert!(is_replay(&again), "{path}: {again:?}");
        assert_eq!((again.status, again.content.len()), (first.status, 0), "{path}");
        assert!(matches!(again.header("content-length"), None | Some("0")), "{path}: {again:?}");
        assert_eq!(again.header("etag"), Some("\"a\""), "{path}");
    }
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    stage.upstream.answer("/chunked", vec![Piece::bytes(chunked)]);
    let (first, again) = twice(&stage, "/chunked");
    assert_eq!((first.body.as_str(), again.body.as_str()), ("hello world", "hello world"));
    assert!(is_replay(&again), "{again:?}");
    assert_eq!((again.header("content-length"), again.header("transfer-encoding")), (Some("11"), None));
}

#[test]
fn bod_02_what_is_too_large_is_passed_on_whole_and_sealed_and_what_fits_is_replayed() {
    const CAP: usize = 300 * 1024;
    let stage = Stage::start(json!({ "response": { "max_body_bytes": CAP } }));
    for (path, bytes, fits) in [("/cap", CAP, true), ("/over", CAP + 1, false), ("/large", 2 * 1024 * 1024, false)] {
        let body: Vec<u8> = (0..=255).cycle().take(bytes).collect();
        stage.upstream.answer_whole(path, &[CREATED, "location: /orders/3"], &body);
        let (first, again) = twice(&stage, path);
        assert_eq!((first.status, first.content == body), (201, true), "{path}");
        match fits {
            true => assert!(is_replay(&again) && again.content == body, "{path}: {}", again.status),
            false => assert_sealed(&again, 201, Some("/orders/3")),
        }
        // The same where the length shows only at the end.
        let path = format!("{path}-chunked");
        let mut pieces = vec![Piece::bytes(format!("{CREATED}\r\ntransfer-encoding: chunked\r\n\r\n"))];
        let chunks = body.chunks(64 * 1024).flat_map(|chunk| {
            [Piece::bytes(format!("{:x}\r\n", chunk.len())), Piece::bytes(chunk), Piece::bytes("\r\n")]
        });
        pieces.extend(chunks);
        pieces.push(Piece::bytes("0\r\n\r\n"));
        stage.upstream.answer(&path, pieces);
        let (first, again) = twice(&stage, &path);
        assert!(first.content == body, "{path}");
        match fits {
            true => assert!(is_replay(&again) && again.content == body, "{path}: {}", again.status),
            false => assert_sealed(&again, 201, None),
        }
    }
    assert_eq!(stage.upstream.count(), 6);
}

/// 409: done, and not kept; it never helps to try again.
fn assert_sealed(answer: &Response, status: u16, location: Option<&str>) {
    assert_eq!((answer.status, answer.header("retry-after")), (409, None), "{answer:?}");
    let problem: Value = serde_json::from_str(&answer.body).expect("a problem");
    assert_eq!(problem["code"], "idempotency-response-not-retained", "{problem}");
    assert_eq!((&problem["original-status"], &problem["retryable"]), (&json!(status), &json!(false)), "{problem}");
    assert_eq!(problem.get("location").and_then(Value::as_str), location, "{problem}");
}

#[test]
fn bod_02_streams_and_trailers_pass_as_they_come_and_are_sealed() {
    let stage = Stage::start_with(policy(idempotency(json!({}))), |mut config| {
        config.connection_manager()["http_protocol_options"] = json!({ "enable_trailers": true });
        config.cluster("upstream")["typed_extension_protocol_options"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http_protocol_options": { "enable_trailers": true } } } });
        config
    });
    let chunked = |head: &str, end: &str| {
        let pieces = [&format!("HTTP/1.1 200 OK\r\n{head}\r\ntransfer-encoding: chunked\r\n\r\n"), "5\r\nfirst\r\n"];
        let pause = Piece::Pause(Duration::from_millis(200));
        pieces
            .map(Piece::bytes)
            .into_iter()
            .chain([pause, Piece::bytes(format!("4\r\nlast\r\n0\r\n{end}\r\n"))])
            .collect()
    };
    stage.upstream.answer("/events", chunked("content-type: text/event-stream", ""));
    stage.upstream.answer("/rpc", chunked("content-type: application/grpc", "grpc-status: 0\r\n"));
    stage.upstream.answer("/trailers", chunked("content-type: text/plain", "x-checksum: 1\r\n"));
    for path in ["/events", "/rpc", "/trailers"] {
        let (first, again) = twice(&stage, path);
        assert_eq!((first.status, first.body.as_str()), (200, "firstlast"), "{path}");
        assert_sealed(&again, 200, None);
    }
    assert_eq!(stage.upstream.count(), 3);
}

#[test]
fn bod_02_a_stream_is_not_delayed_by_the_capture_and_a_cut_one_is_no_success() {
    let stage = Stage::start(json!({}));
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    let late = vec![Piece::bytes(head), Piece::Pause(Duration::from_secs(1)), Piece::bytes("0\r\n\r\n")];
    stage.upstream.answer("/slow", late);
    let mut client = lockkeeper_tests::raw::RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
    let host = stage.envoy.address();
    let request = format!("POST /slow HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer a\r\nidempotency-key: s\r\n");
    let start = std::time::Instant::now();
    client.send(format!("{request}content-length: 0\r\n\r\n").as_bytes()).expect("Envoy reads");
    assert_eq!(client.receive_head().expect("an answer").status, 200);
    assert!(start.elapsed() < Duration::from_millis(800), "the head waited for the end: {:?}", start.elapsed());
    stage
        .upstream
        .answer("/cut", vec![Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"), Piece::Close]);
    let _ = stage.envoy.client().send(&order("/cut"));
    // Nobody knows what it did: its lease lapses, and until then it counts as running.
    let again = stage.send(&order("/cut"));
    assert!(!is_replay(&again) && again.status == 409, "{again:?}");
    assert_eq!(stage.upstream.count(), 2);
}

/// Each status that an upstream may answer with, and whether the retry is a replay or runs again.
#[test]
fn rpl_15_outcomes_are_replayed_and_attempts_are_not() {
    let stage = Stage::start(json!({ "on_unknown": "retry_after_lease" }));
    let replayed = [200, 201, 202, 301, 303, 400, 402, 404, 405, 410, 412, 415, 422, 451];
    let again = [401, 403, 408, 409, 421, 423, 425, 429, 500, 502, 503, 504];
    let mut runs = 0;
    for (statuses, is_kept) in [(&replayed[..], true), (&again[..], false)] {
        for status in statuses {
            let path = format!("/{status}");
            stage.upstream.answer_whole(&path, &[&format!("HTTP/1.1 {status} X"), "retry-after: 9"], b"x");
            let first = stage.send(&order(&path));
            let second = retried(&stage, &path);
            assert_eq!((first.status, second.status), (*status, *status));
            assert_eq!(is_replay(&second), is_kept, "{status}");
            assert_eq!(second.header("retry-after"), (!is_kept).then_some("9"), "{status}");
            runs += if is_kept { 1 } else { 2 };
            assert_eq!(stage.upstream.count(), runs, "{status}");
        }
    }
}

#[test]
fn b_8_a_replay_tells_what_is_left_of_the_quota_for_replays_and_scripts_may_read_it() {
    const APP: &str = "https://app.example.com";
    let rules = idempotency(json!({ "replay_limit": { "capacity": 5, "refill": "1/m" } }));
    let mut file = policy(rules);
    file["cors"] = json!({ "allow_origins": [APP], "allow_credentials": true });
    let stage = Stage::start_with(file, |config| config);
    stage.upstream.answer_whole("/o", &[CREATED, "location: /o/1", "vary: accept"], b"{}");
    let ask = |origin: &str| stage.send(&order("/o").header("origin", origin));
    assert_eq!(ask(APP).header("ratelimit"), None);
    let again = ask(APP);
    assert!(is_replay(&again), "{again:?}");
    let left = again.header("ratelimit").expect("the quota is told");
    assert!(left.starts_with("\"replay_limit\";r=4;t="), "{left}");
    assert_eq!(again.header("ratelimit-policy"), Some("\"replay_limit\";q=5;w=300"));
    assert_eq!(again.header("access-control-allow-origin"), Some(APP));
    assert_eq!(again.header("access-control-allow-credentials"), Some("true"));
    let exposed = again.header("access-control-expose-headers").expect("scripts are told");
    for name in ["idempotent-replayed", "location", "ratelimit"] {
        assert!(exposed.split(", ").any(|one| one == name), "{name} in {exposed}");
    }
    // In one line or two.
    let vary = values(&again, "vary").join(&b","[..]);
    let vary: std::collections::BTreeSet<&[u8]> = vary.split(|byte| b", ".contains(byte)).collect();
    assert!([&b"accept"[..], b"origin"].iter().all(|name| vary.contains(name)), "{vary:?}");
    let stranger = ask("https://evil.example");
    assert_eq!(stranger.header("access-control-allow-origin"), None);
    assert!(is_replay(&stranger));
}
