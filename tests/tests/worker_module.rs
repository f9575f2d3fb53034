//! The limiter as JavaScript and TypeScript Workers import it, in real workerd: the example as wrangler bundles it, its
//! types, its errors, and a module that panics.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Redis, RestFront, Workerd, WorkerdConfig, paths, poll, tools, wrangler};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Long: these tests are about decisions, on machines under load.
const DEADLINE: Duration = Duration::from_secs(5);

/// Makes a limiter of what the variables say and tells what it did: of requests with a key the policy's answer, if any; of
/// `/slow` late, of `/broken` never.
const TELLING: &str = r#"
import { Lockkeeper, LockkeeperError } from "./lockkeeper.js";
export { StoreConnection } from "./lockkeeper.js";

let limiter;
export default {
  async fetch(request, environment) {
    try {
      limiter ??= await Lockkeeper.create(environment.POLICY, JSON.parse(environment.OPTIONS));
    } catch (error) {
      const { name, code, faults } = error;
      return Response.json({ name, code, faults, isTyped: error instanceof LockkeeperError });
    }
    const decision = await limiter.decide(request);
    const { outcome, decidedBy, policy, limit, response } = decision;
    const told = { outcome, decidedBy, policy, limit, answer: response?.status };
    if (response) return request.headers.has("idempotency-key") ? response : Response.json(told);
    return decision.settle(answer(decision.request, told));
  },
};

async function answer(request, told) {
  const { pathname } = new URL(request.url);
  if (pathname === "/slow") await new Promise((resolve) => setTimeout(resolve, 2_000));
  if (pathname === "/broken") throw new Error("broken");
  const sent = await request.text();
  const body = JSON.stringify({ ...told, sent, fence: request.headers.get("fencing-token") });
  return new Response(body, { headers: { "content-type": "application/json", "content-length": body.length } });
}
"#;

fn example() -> std::path::PathBuf {
    paths::workspace().join("edge-worker/example")
}

fn bundled_example() -> TempDir {
    paths::built_worker(paths::worker());
    let out = tempfile::tempdir().expect("a temporary directory");
    wrangler::bundle(&example(), out.path()).unwrap_or_else(|error| panic!("{error:#}"));
    out
}

/// The build in `directory` with another script at its head.
fn telling(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary directory");
    let copied = Command::new("cp").arg("-r").arg(directory.join(".")).arg(copy.path()).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is copied", directory.display());
    std::fs::write(copy.path().join("worker.js"), TELLING).expect("a file is written");
    copy
}

fn from_client(path: &str) -> Request {
    Request::get(path).header("cf-connecting-ip", "192.0.2.7")
}

fn send(workerd: &Workerd, request: &Request) -> Response {
    workerd.client().send(request).expect("workerd answers")
}

fn told(workerd: &Workerd, request: &Request) -> Value {
    let answer = send(workerd, request);
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{answer:?}\n{}", workerd.process().log_tail()))
}

#[test]
fn the_example_limits_over_each_transport_and_by_itself_without_the_store() {
    let out = bundled_example();
    for transport in Transport::ALL {
        println!("{transport:?}");
        let mut redis = Redis::start().expect("Redis starts");
        let front = RestFront::start(redis.address()).expect("a loopback port is free");
        let store = if transport == Transport::Rest { front.address() } else { redis.address() };
        let config = WorkerdConfig::built_in(out.path().to_owned()).store(transport, store).deadline(DEADLINE);
        let config = config.variable("STORE_DEADLINE_MS", &DEADLINE.as_millis().to_string());
        let workerd = Workerd::start(&config).expect("workerd starts");
        let first = send(&workerd, &from_client("/"));
        assert_eq!((first.status, first.body.as_str()), (200, "You asked for /\n"), "{}", workerd.process().log_tail());
        assert!(first.header("ratelimit").is_some_and(|field| field.contains(";r=4")), "{first:?}");
        for status in [200, 200, 429] {
            let answer = send(&workerd, &from_client("/report"));
            assert_eq!((answer.status, answer.header("x-ratelimit-degraded")), (status, None), "{answer:?}");
        }
        redis.kill();
        let local = send(&workerd, &from_client("/"));
        assert_eq!((local.status, local.header("x-ratelimit-degraded")), (200, Some("local")), "{local:?}");
        assert_eq!(send(&workerd, &from_client("/report")).status, 503);
        redis.restart().expect("Redis starts again");
        poll::until("the store decides again", DEADLINE, || {
            (send(&workerd, &from_client("/report")).status == 200).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", workerd.process().log_tail()));
    }
}

#[test]
fn the_types_fit_the_example() {
    let mut node = Command::new("node");
    node.arg(tools::typescript().expect("TypeScript is there")).arg("--project").arg(example());
    let output = node.output().expect("node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_decision_tells_what_came_out_and_faults_are_typed_and_named_as_in_the_options() {
    let redis = Redis::start().expect("Redis starts");
    let directory = telling(&paths::built_worker(paths::worker()));
    let limit =
        json!({ "name": "once", "algorithm": "fixed_window", "limit": 1, "window": "1d", "key": ["client_address"] });
    let policy = json!({ "version": 1, "policies": { "p": { "limits": [limit] } }, "default_policy": "p" });
    let store = json!({ "url": format!("redis://{}", redis.address()), "deadlineMs": DEADLINE.as_millis() });
    let start = |policy: &Value, options: Value| {
        let config = WorkerdConfig::built_in(directory.path().to_owned()).policy(policy);
        Workerd::start(&config.variable("OPTIONS", &options.to_string())).expect("workerd starts")
    };
    let workerd = start(&policy, json!({ "store": store }));
    let rows = [("allowed", Value::Null, Value::Null), ("denied", json!(429), json!("once"))];
    for (outcome, answer, limit) in rows {
        let seen = told(&workerd, &from_client("/"));
        assert_eq!((&seen["outcome"], &seen["answer"], &seen["limit"]), (&json!(outcome), &answer, &limit));
        assert_eq!((&seen["decidedBy"], &seen["policy"]), (&json!("store"), &json!("p")));
    }
    let refused = |policy: &Value, options: Value, code: &str, fault: &str| {
        let seen = told(&start(policy, options), &from_client("/"));
        assert_eq!((&seen["name"], &seen["code"]), (&json!("LockkeeperError"), &json!(code)), "{seen}");
        assert_eq!(seen["isTyped"], true);
        let faults: Vec<&str> = seen["faults"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert!(faults.iter().any(|text| text.starts_with(fault)), "{seen}");
    };
    refused(&json!({ "version": 1, "polices": {} }), json!({ "store": store }), "policy", "$.polices");
    refused(&policy, json!({ "store": { "url": "redis://me:secret@store:6379" } }), "options", "store.url: expected");
    refused(
        &policy,
        json!({ "store": { "url": "redis://s:1", "pasword": "x" } }),
        "options",
        "store.pasword: expected",
    );
    refused(&policy, json!({ "store": store, "local": { "share": 2 } }), "options", "local.share: expected");
}

#[test]
fn a_module_that_panics_decides_as_the_policy_says_and_is_replaced() {
    let redis = Redis::start().expect("Redis starts");
    let directory = telling(&paths::built_worker(paths::worker_trap()));
    let options =
        json!({ "store": { "url": format!("redis://{}", redis.address()), "deadlineMs": DEADLINE.as_millis() } });
    for (mode, outcome) in [("deny", "unavailable"), ("allow", "allowed")] {
        let limit = json!({ "name": "all", "algorithm": "fixed_window", "limit": 100, "window": "1d", "key": ["client_address"] });
        let policies = json!({ "p": { "limits": [limit], "limits_on_store_failure": mode } });
        let policy = json!({ "version": 1, "default_policy": "p", "policies": policies });
        let config = WorkerdConfig::built_in(directory.path().to_owned()).policy(&policy);
        let workerd = Workerd::start(&config.variable("OPTIONS", &options.to_string())).expect("workerd starts");
        let panicked = told(&workerd, &from_client("/").header("x-lockkeeper-trap", "1"));
        assert_eq!(
            (&panicked["outcome"], &panicked["decidedBy"]),
            (&json!(outcome), &json!("failure_mode")),
            "{panicked}"
        );
        let next = told(&workerd, &from_client("/"));
        assert_eq!(next["decidedBy"], "store", "{next}\n{}", workerd.process().log_tail());
    }
}

/// A Worker that makes a limiter of that policy.
fn limiter(directory: &Path, redis: &Redis, policy: &Value) -> Workerd {
    let store = json!({ "url": format!("redis://{}", redis.address()), "deadlineMs": DEADLINE.as_millis() });
    let config = WorkerdConfig::built_in(directory.to_owned()).policy(policy);
    let options = json!({ "store": store, "bodies": { "deadlineMs": DEADLINE.as_millis() } });
    Workerd::start(&config.variable("OPTIONS", &options.to_string())).expect("workerd starts")
}

#[test]
fn what_a_request_with_a_key_was_settled_with_is_replayed() {
    let redis = Redis::start().expect("Redis starts");
    let directory = telling(&paths::built_worker(paths::worker()));
    let rules = json!({ "scope": ["header:authorization"], "on_unknown": "reject" });
    let policy = json!({ "version": 1, "policies": { "p": { "idempotency": rules } }, "default_policy": "p" });
    let workerd = limiter(directory.path(), &redis, &policy);
    let keyed = |path: &str, key: &str, body: &str| {
        let request = Request::new("POST", path).header("authorization", "Bearer a").header("idempotency-key", key);
        send(&workerd, &request.body(body))
    };
    let run = keyed("/", "k", "one");
    assert_eq!((run.status, run.header("idempotent-replayed")), (200, None), "{run:?}");
    let told: Value = serde_json::from_str(&run.body).expect("what the Worker tells");
    assert_eq!((&told["outcome"], &told["sent"]), (&json!("allowed"), &json!("one")));
    let replay = keyed("/", "k", "one");
    assert_eq!((replay.status, replay.header("idempotent-replayed")), (200, Some("true")), "{replay:?}");
    assert_eq!(replay.body, run.body);
    assert_eq!(keyed("/", "k", "another").status, 422);
    let broken = keyed("/broken", "b", "one");
    assert_eq!((broken.status, broken.header("idempotency-outcome")), (502, Some("unknown")), "{broken:?}");
    let again = keyed("/broken", "b", "one");
    assert_eq!((again.status, again.header("idempotent-replayed")), (409, None), "{again:?}");
}

#[test]
fn a_lock_is_held_until_its_request_is_settled() {
    let redis = Redis::start().expect("Redis starts");
    let directory = telling(&paths::built_worker(paths::worker()));
    let policy = json!({ "version": 1, "default_policy": "p",
                         "policies": { "p": { "lock": { "key": ["header:x-account"] } } } });
    let workerd = limiter(directory.path(), &redis, &policy);
    let ask = |path: &str| told(&workerd, &Request::get(path).header("x-account", "7"));
    let fence = |seen: &Value| seen["fence"].as_str().map(str::to_owned).unwrap_or_else(|| panic!("no token: {seen}"));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| ask("/slow"));
        poll::until("the lock is taken", DEADLINE, || {
            let keys: usize = redis::cmd("DBSIZE").query(&mut redis.connection()).expect("Redis answers");
            (keys > 0).then_some(())
        })
        .expect("the lock is taken");
        let refused = ask("/");
        assert_eq!((&refused["outcome"], &refused["answer"]), (&json!("locked"), &json!(423)), "{refused}");
        let earlier = fence(&slow.join().expect("the Worker answers"));
        let next =
            poll::until("the lock is free", DEADLINE, || Some(ask("/")).filter(|seen| seen["outcome"] == "allowed"));
        assert!(fence(&next.expect("the lock is given back")) > earlier);
    });
}
