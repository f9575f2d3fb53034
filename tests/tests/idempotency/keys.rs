//! The key itself: its spellings, its bounds, and the requests that it does not concern.

use crate::stage::Stage;
use crate::world::{idempotency, payment, policy};
use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::raw::RawConnection;
use serde_json::{Value, json};

const UUID: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";

fn problem(answer: &Response) -> String {
    let problem: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("no problem: {answer:?}"));
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    problem["code"].as_str().unwrap_or_default().to_owned()
}

fn is_replay(answer: &Response) -> bool {
    answer.header("idempotent-replayed") == Some("true")
}

#[test]
fn idm_07_quoted_and_bare_spellings_are_one_key_and_malformed_ones_none() {
    let stage = Stage::start(json!({ "required": true }));
    let keyed = |key: &[u8]| {
        let request = Request::new("POST", "/payments").header("authorization", "Bearer a");
        request.header("IDEMPOTENCY-KEY", key).body("{}")
    };
    let first = stage.send(&keyed(UUID.as_bytes()));
    assert!(first.status == 200 && !is_replay(&first), "{first:?}");
    for same in [format!("\"{UUID}\""), format!(" {UUID} "), format!("\"{UUID}\";v=1; w=\"x\"")] {
        assert!(is_replay(&stage.send(&keyed(same.as_bytes()))), "{same}");
    }
    assert_eq!(stage.upstream.count(), 1);
    assert_eq!(stage.upstream.seen()[0].header("idempotency-key"), Some(UUID), "the upstream sees the key");
    let (longest, too_long) = ("k".repeat(255), "k".repeat(256));
    let quoted = format!("\"{too_long}\"");
    let invalid: [&[u8]; 10] = [
        b"",
        b"\"\"",
        b"\"a\\q\"",
        b"\"a",
        b"\"a\tb\"",
        b"a\tb",
        b"\xc3\xa9",
        b"a,b",
        too_long.as_bytes(),
        quoted.as_bytes(),
    ];
    for key in invalid {
        let answer = stage.send(&keyed(key));
        assert_eq!((answer.status, problem(&answer).as_str()), (400, "idempotency-key-invalid"), "{key:?}");
    }
    let twice = keyed(b"a").header("idempotency-key", "b");
    assert_eq!(problem(&stage.send(&twice)), "idempotency-key-invalid");
    let same_twice = keyed(b"a").header("idempotency-key", "a");
    assert_eq!(problem(&stage.send(&same_twice)), "idempotency-key-invalid");
    let missing = Request::new("POST", "/payments").header("authorization", "Bearer a").body("{}");
    assert_eq!(problem(&stage.send(&missing)), "idempotency-key-missing");
    assert_eq!(stage.upstream.count(), 1, "nothing refused has passed");
    assert_eq!(stage.send(&keyed(longest.as_bytes())).status, 200);
    let claims: usize = redis::cmd("DBSIZE").query(&mut stage.redis.connection()).expect("Redis answers");
    assert_eq!(claims, 4, "two records, each with its fence: the store was not asked about the others");
}

#[test]
fn p_1_other_methods_and_requests_without_a_key_pass_untouched() {
    let stage = Stage::start(json!({}));
    for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"] {
        for _ in 0..2 {
            let request = Request::new(method, "/payments").header("authorization", "Bearer a");
            let answer = stage.send(&request.header("idempotency-key", "not,a,key"));
            assert!(answer.status == 200 && !is_replay(&answer), "{method}: {answer:?}");
        }
    }
    assert_eq!(stage.upstream.count(), 10);
    assert_eq!(stage.upstream.seen()[0].header("idempotency-key"), Some("not,a,key"));
    for _ in 0..2 {
        let optional = Request::new("POST", "/payments").header("authorization", "Bearer a").body("{}");
        assert!(!is_replay(&stage.send(&optional)));
    }
    assert_eq!(stage.upstream.count(), 12);
    assert!(stage.upstream.seen().iter().all(|seen| seen.header("fencing-token").is_none()));
    let keys: usize = redis::cmd("DBSIZE").query(&mut stage.redis.connection()).expect("Redis answers");
    assert_eq!(keys, 0, "the store holds nothing of them");
}

#[test]
fn prt_06_only_the_gateway_tells_the_upstream_fence_and_attempt() {
    let stage = Stage::start(json!({}));
    let forged = |request: Request| {
        let request = request.header("fencing-token", "9999999999999999").header("idempotency-attempt", "7");
        stage.send(&request.header("fencing_token", "9999999999999999").header("idempotency_attempt", "7"))
    };
    forged(payment("k", "{}"));
    forged(Request::get("/payments").header("authorization", "Bearer a"));
    let seen = stage.upstream.seen();
    assert_eq!(seen[0].header("idempotency-attempt"), Some("1"));
    let fence = seen[0].header("fencing-token").expect("a fence");
    assert!(fence.len() == 16 && fence != "9999999999999999", "{fence}");
    assert_eq!((seen[1].header("fencing-token"), seen[1].header("idempotency-attempt")), (None, None));
    for seen in seen {
        let names = (seen.header("fencing_token"), seen.header("idempotency_attempt"));
        assert_eq!(names, (None, None), "servers that know no hyphens in names take these for the gateway's");
    }
}

#[test]
fn p_5_who_has_no_scope_is_refused_where_keys_are_required_and_unprotected_elsewhere() {
    let anonymous = Request::new("POST", "/payments").header("idempotency-key", "k").body("{}");
    let strict = Stage::start(json!({ "required": true }));
    let answer = strict.send(&anonymous);
    assert_eq!((answer.status, problem(&answer).as_str()), (400, "idempotency-scope-missing"));
    assert_eq!(strict.upstream.begun(), 0);
    let lenient = Stage::start(json!({}));
    for _ in 0..2 {
        assert!(!is_replay(&lenient.send(&anonymous)), "a bucket shared by all who are unknown");
    }
    assert_eq!(lenient.upstream.count(), 2);
}

#[test]
fn p_8_an_upgrade_is_never_claimed_for_good() {
    let stage = Stage::start_with(policy(idempotency(json!({}))), |mut config| {
        config.connection_manager()["upgrade_configs"] = json!([{ "upgrade_type": "websocket" }]);
        config
    });
    let switched = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";
    stage.upstream.answer("/payments", vec![lockkeeper_tests::Piece::bytes(switched)]);
    for _ in 0..2 {
        let mut client = RawConnection::open(stage.envoy.address()).expect("Envoy accepts");
        let head = format!("GET /payments HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer a\r\n", stage.envoy.address());
        let upgrade = "idempotency-key: k\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";
        client.send(format!("{head}{upgrade}").as_bytes()).expect("Envoy reads");
        assert_eq!(client.receive_head().expect("an answer").status, 101);
    }
    let keys: usize = redis::cmd("DBSIZE").query(&mut stage.redis.connection()).expect("Redis answers");
    assert_eq!(keys, 0);
}
