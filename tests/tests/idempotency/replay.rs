//! What a retry gets of a request that is done.

use crate::world::{World, payment};
use serde_json::json;

#[test]
fn a_retry_gets_the_same_answer_and_the_upstream_runs_once() {
    let world = World::start(json!({}));
    let first = world.send(&payment("k1", "{\"amount\":1}"));
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.header("idempotent-replayed"), None);
    let seen = world.upstream.take();
    let headers = &seen[0]["headers"];
    assert_eq!(headers["idempotency-attempt"], "1");
    assert_eq!(headers["fencing-token"].as_str().map(str::len), Some(16), "{headers}");
    let again = world.send(&payment("\"k1\"", "{\"amount\":1}"));
    assert_eq!((again.status, &again.body), (200, &first.body), "{again:?}");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_eq!(world.upstream.count(), 1);
    let other = world.send(&payment("k1", "{\"amount\":2}"));
    assert_eq!(other.status, 422, "{other:?}");
    assert_eq!(world.upstream.count(), 1);
}
