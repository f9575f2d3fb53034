//! What a limiter is made of, where only JavaScript can say it: each fault is typed, and named as in the options.

use crate::world::{from_client, told, with_script};
use lockkeeper_tests::{Redis, Workerd, WorkerdConfig, paths};
use serde_json::{Value, json};

const CASES: &str = r#"
import { Lockkeeper, LockkeeperError } from "./lockkeeper.js";
export { StoreConnection } from "./lockkeeper.js";

const limit = { name: "once", algorithm: "fixed_window", limit: 9, window: "1d", key: ["client_address"] };
const policy = { version: 1, policies: { p: { limits: [limit] } }, default_policy: "p" };
const cyclic = { ...policy };
cyclic.self = cyclic;
const store = (more) => ({ store: { url: "redis://store:6379", ...more } });

const cases = (environment) => ({
  "/null": [policy, null],
  "/number": [policy, 7],
  "/cyclic": [cyclic, store()],
  "/big": [{ ...policy, version: 1n }, store()],
  "/nothing": [undefined, store()],
  "/user": [policy, store({ user: "me" })],
  "/time": [policy, store({ deadlineMs: "1s 5" })],
  "/never": [policy, store({ deadlineMs: Infinity })],
  "/nan": [policy, { ...store(), bodies: { deadlineMs: NaN } }],
  "/big_option": [policy, { ...store(), local: { sets: 8n } }],
  "/function": [policy, store({ password: () => "secret" })],
  "/url_fault": [policy, store({ url: new URL("redis://me:secret@store:6379") })],
  "/url": [policy, store({ url: new URL(environment.STORE_URL), deadlineMs: 4999.5, user: null })],
});

export default {
  async fetch(request, environment) {
    try {
      const { pathname } = new URL(request.url);
      const limiter = await Lockkeeper.create(...cases(environment)[pathname]);
      const { outcome, decidedBy } = await limiter.decide(request);
      return Response.json({ outcome, decidedBy });
    } catch (error) {
      const { name, code, faults } = error;
      return Response.json({ name, code, faults, isTyped: error instanceof LockkeeperError });
    }
  },
};
"#;

#[test]
fn each_fault_is_typed_and_named_as_in_the_options() {
    let redis = Redis::start().expect("Redis starts");
    let directory = with_script(&paths::built_worker(paths::worker()), CASES);
    let config = WorkerdConfig::built_in(directory.path().to_owned());
    let url = format!("redis://{}", redis.address());
    let workerd = Workerd::start(&config.variable("STORE_URL", &url)).expect("workerd starts");
    let rows = [
        ("/null", "options", "store.url: expected"),
        ("/number", "options", "store.url: expected"),
        ("/cyclic", "policy", "$: expected what JSON can say"),
        ("/big", "policy", "$: expected what JSON can say"),
        ("/nothing", "policy", ""),
        ("/user", "options", "store.password: expected the password of store.user"),
        ("/time", "options", "store.deadlineMs: expected a number from 1 to 10,000"),
        ("/never", "options", "store.deadlineMs: expected a number from 1 to 10,000"),
        ("/nan", "options", "bodies.deadlineMs: expected a number from 1 to 60,000"),
        ("/big_option", "options", "local.sets: expected text or a number"),
        ("/function", "options", "store.password: expected text or a number"),
        ("/url_fault", "options", "store.url: expected"),
    ];
    for (path, code, fault) in rows {
        let seen = told(&workerd, &from_client(path));
        assert_eq!((&seen["code"], &seen["isTyped"]), (&json!(code), &json!(true)), "{path}: {seen}");
        let faults: Vec<&str> = seen["faults"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert!(matches!(&*faults, [only] if only.starts_with(fault)), "{path}: {seen}");
        assert!(!seen.to_string().contains("secret"), "{path}: {seen}");
    }
    let seen = told(&workerd, &from_client("/url"));
    assert_eq!((&seen["outcome"], &seen["decidedBy"]), (&json!("allowed"), &json!("store")), "{seen}");
}
