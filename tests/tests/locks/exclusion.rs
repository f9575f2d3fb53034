//! One request at a time at a resource, whichever gateway it comes through.

use crate::world::{World, lock, problem, put};
use lockkeeper_tests::gated_upstream::Go;
use serde_json::json;

#[test]
fn while_a_request_runs_others_for_its_resource_get_423_at_every_gateway() {
    let world = World::start(lock(json!({})));
    let first = world.begin(0, &put("/a"));
    world.upstream.arrived(1);
    for gateway in [0, 1] {
        let refused = world.send(gateway, &put("/a"));
        assert_eq!(refused.status, 423, "{refused:?}");
        let wait: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((1..=5).contains(&wait), "{refused:?}");
        assert_eq!(refused.header("cache-control"), Some("no-store"));
        let problem = problem(&refused);
        assert_eq!(problem["code"], "resource-locked");
        assert_eq!(problem["type"], "urn:lockkeeper:problem:resource-locked");
        assert_eq!((&problem["retryable"], &problem["status"]), (&json!(true), &json!(423)));
    }
    // Another resource is another lock.
    let other = world.begin(1, &put("/b"));
    world.upstream.arrived(2);
    world.upstream.open(Go::Answer(200));
    assert_eq!((first.join().expect("an answer").status, other.join().expect("an answer").status), (200, 200));
    world.free();
    assert_eq!(world.send(1, &put("/a")).status, 200);
    assert_eq!(world.upstream.count(), 3, "those that were refused never reached the upstream");
}

#[test]
fn each_holder_has_a_higher_token_than_all_before_it_and_no_client_can_set_one() {
    let world = World::start(lock(json!({})));
    world.upstream.open(Go::Answer(200));
    let forged = put("/a").header("fencing-token", "9007199254740991").header("Fencing-Token", "1");
    for number in 0..6 {
        assert_eq!(world.send(number % 2, &forged).status, 200);
        world.free();
        if number == 3 {
            // The store forgets everything: its clock keeps the tokens rising.
            redis::cmd("FLUSHALL").query::<()>(&mut world.redis.connection()).expect("flushed");
        }
    }
    let tokens: Vec<String> =
        world.upstream.arrived(6).iter().map(|arrived| arrived.header("fencing-token").to_owned()).collect();
    assert!(tokens.iter().all(|token| token.len() == 16 && token.bytes().all(|byte| byte.is_ascii_digit())));
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(world.upstream.arrived(6).iter().all(|arrived| arrived.head.matches("fencing-token").count() == 1));
}

#[test]
fn methods_without_a_lock_pass_a_locked_resource() {
    let world = World::start(lock(json!({ "methods": ["PUT"] })));
    let holder = world.begin(0, &put("/a"));
    world.upstream.arrived(1);
    let reader = world.begin(1, &lockkeeper_tests::http::Request::get("/a"));
    let seen = world.upstream.arrived(2);
    assert_eq!(seen[1].header("fencing-token"), "");
    world.upstream.open(Go::Answer(200));
    assert_eq!((holder.join().expect("an answer").status, reader.join().expect("an answer").status), (200, 200));
}
