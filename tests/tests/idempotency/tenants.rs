//! Keys of one client and another: neither sees, blocks or learns of the other's; and nothing secret is told or kept.

use crate::stage::Stage;
use crate::world::{idempotency, payment, policy};
use lockkeeper_tests::Piece;
use lockkeeper_tests::http::{Request, Response};
use serde_json::json;
use std::time::Duration;

fn of(client: &str, key: &str, body: &str) -> Request {
    let request = Request::new("POST", "/payments").header("authorization", format!("Bearer {client}"));
    request.header("idempotency-key", key).body(body)
}

fn is_run(answer: &Response) -> bool {
    answer.status == 200 && answer.header("idempotent-replayed").is_none()
}

#[test]
fn ten_01_the_same_key_of_two_clients_is_two_operations_at_any_time() {
    let stage = Stage::start(json!({}));
    let slow = |body: &str| {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        vec![Piece::Pause(Duration::from_millis(700)), Piece::bytes(answer)]
    };
    stage.upstream.answer("/payments", slow("secret of a"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| stage.send(&of("a", "order-1", "{}")));
        while stage.upstream.begun() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        // While it runs: neither 409 nor 422 tells b of it.
        stage.upstream.answer("/payments", slow("for b"));
        let other = stage.send(&of("b", "order-1", "{\"other\":1}"));
        assert!(is_run(&other) && other.body == "for b", "{other:?}");
        assert!(is_run(&first.join().expect("the first ends")));
    });
    let again = stage.send(&of("a", "order-1", "{}"));
    assert_eq!((again.header("idempotent-replayed"), again.body.as_str()), (Some("true"), "secret of a"));
    // Whoever is nobody gets nothing of anybody's.
    let anonymous = Request::new("POST", "/payments").header("idempotency-key", "order-1").body("{}");
    assert!(is_run(&stage.send(&anonymous)));
    assert_eq!(stage.upstream.count(), 3);
}

#[test]
fn sec_59_no_spelling_of_scope_and_key_is_that_of_another_pair() {
    let rules = idempotency(json!({ "scope": ["header:authorization", "header:x-shop"] }));
    let stage = Stage::start_with(policy(rules), |config| config);
    let send = |client: &str, shop: &str, key: &str| {
        let request = Request::new("POST", "/payments").header("authorization", client).header("x-shop", shop);
        stage.send(&request.header("idempotency-key", key).body("{}"))
    };
    let pairs = [
        ("ab", "c", "d"),
        ("a", "bc", "d"),
        ("a", "b", "cd"),
        ("a", "b}:r", "d"),
        ("a", "b", "}:r"),
        ("ab", "cd", "d"),
    ];
    for (client, shop, key) in pairs {
        assert!(is_run(&send(client, shop, key)), "{client} {shop} {key}");
        assert!(!is_run(&send(client, shop, key)), "{client} {shop} {key}");
    }
}

#[test]
fn sec_60_nothing_secret_is_logged_told_or_kept() {
    const SECRETS: [&str; 3] = ["tok-17-secret", "key-4711-secret", "body-42-secret"];
    let [token, key, body] = SECRETS;
    let stage = Stage::start(json!({}));
    stage.upstream.answer_whole("/payments", &["HTTP/1.1 200 OK", "set-cookie: sid=cookie-99-secret"], b"done");
    let first = stage.send(&of(token, key, body));
    assert!(is_run(&first), "{first:?}");
    let answers = [
        stage.send(&of(token, key, "another")),
        stage.send(&of(token, &format!("{key},{key}"), body)),
        stage.send(&of(token, key, body)),
    ];
    assert_eq!(answers.each_ref().map(|answer| answer.status), [422, 400, 200]);
    for answer in &answers {
        let told = format!("{:?} {}", answer.headers, answer.body);
        assert!(!SECRETS.iter().any(|secret| told.contains(secret)), "{told}");
    }
    let mut redis = stage.redis.connection();
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis).expect("Redis answers");
    let mut kept = names.join(" ");
    for name in names.iter().filter(|name| name.ends_with(":r")) {
        let fields: Vec<Vec<u8>> = redis::cmd("HGETALL").arg(name).query(&mut redis).expect("a record is a hash");
        kept.extend(fields.iter().map(|field| String::from_utf8_lossy(field).into_owned()));
    }
    for secret in SECRETS.iter().chain(&["cookie-99-secret"]) {
        assert!(!kept.contains(secret), "{secret} is in the store");
        assert!(!stage.envoy.process().log().contains(secret), "{secret} is in the log");
    }
    let metrics = stage.envoy.admin().prometheus();
    assert!(!SECRETS.iter().any(|secret| metrics.contains(secret)));
}

#[test]
fn obs_01_each_outcome_of_a_key_is_counted_once_and_labels_come_from_the_policy() {
    let stage = Stage::start(json!({}));
    stage.send(&payment("k1", "x"));
    stage.send(&payment("k1", "x"));
    stage.send(&payment("k1", "y"));
    stage.send(&payment("bad,key", "y"));
    let expected = [("allowed", "store"), ("replayed", "store"), ("mismatch", "store"), ("key_rejected", "policy")];
    let names = expected.map(|(outcome, by)| {
        let prefix = "wasmcustom.lockkeeper_decisions.policy.payments.limit.all.outcome";
        format!("{prefix}.{outcome}.decided_by.{by}")
    });
    let counted = lockkeeper_tests::poll::until("each is counted", Duration::from_secs(5), || {
        let stats = stage.envoy.admin().stats();
        let counts: Vec<u64> = names.iter().map(|name| stats.get(name).copied().unwrap_or(0)).collect();
        let all: u64 = stats
            .iter()
            .filter(|(name, _)| name.starts_with("wasmcustom.lockkeeper_decisions."))
            .map(|(_, count)| count)
            .sum();
        (all >= 4).then_some((counts, all))
    });
    assert_eq!(counted.expect("decisions are counted"), (vec![1; 4], 4));
}

#[test]
fn b_11_a_record_that_is_none_is_never_taken_for_absent() {
    let stage = Stage::start(json!({}));
    assert!(is_run(&stage.send(&payment("k", "x"))));
    let mut redis = stage.redis.connection();
    let names: Vec<String> = redis::cmd("KEYS").arg("*:r").query(&mut redis).expect("Redis answers");
    let [record] = &names[..] else { panic!("one record: {names:?}") };
    let spoil: [&[&str]; 6] = [
        &["HSET", record, "c", "100"],
        &["HSET", record, "c", "999"],
        &["HSET", record, "v", "99"],
        &["HDEL", record, "s"],
        &["DEL", record],
        &["SET", record, "foreign"],
    ];
    for command in spoil {
        let mut call = redis::cmd(command[0]);
        call.arg(&command[1..]).exec(&mut redis).expect("Redis answers");
        if command[0] == "DEL" {
            continue;
        }
        let answer = stage.send(&payment("k", "x"));
        assert_eq!(answer.status, 503, "{command:?}: {answer:?}");
        assert!(answer.body.contains("store-unavailable"), "{command:?}: {answer:?}");
    }
    assert_eq!(stage.upstream.count(), 1);
}
