//! What Workers do wrong with requests and responses is answered at once, and hurts nobody else.

use crate::world::{DEADLINE, limiter, send, with_script};
use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::{Redis, Workerd, paths, poll};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Does with the request, and settles with, what the path says.
const CARELESS: &str = r#"
import { Lockkeeper } from "./lockkeeper.js";
export { StoreConnection } from "./lockkeeper.js";

const READ = {
  "/read": (request) => request.text(),
  "/locked": (request) => request.body.getReader(),
  "/drained": async (request) => {
    const reader = request.body.getReader();
    while (!(await reader.read()).done);
    reader.releaseLock();
  },
};
const ANSWERS = {
  "/nothing": () => undefined,
  "/text": () => "text",
  "/like": () => ({ status: 200, headers: new Headers(), body: null }),
  "/error": () => Response.error(),
  "/used": async () => {
    const response = new Response("used");
    await response.text();
    return response;
  },
  "/taken": () => {
    const response = new Response("taken");
    response.body.getReader();
    return response;
  },
  "/socket": () => new Response(null, { status: 101, webSocket: new WebSocketPair()[0] }),
  "/objects": () => streamed({}),
  "/slow": async () => {
    await scheduler.wait(1_500);
    return new Response("slow", { headers: { "content-length": "4" } });
  },
  "/lost": async ({ signal }) => {
    const fail = () => {
      throw new Error("a listener fails");
    };
    const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
    signal.addEventListener("abort", fail);
    await aborted;
    return new Response("aborted");
  },
  "/buffers": () => streamed(new TextEncoder().encode("whole").slice().buffer),
  "/views": () => streamed(new DataView(new TextEncoder().encode("a whole").slice().buffer, 2)),
};

let limiter;
export default {
  async fetch(request, environment) {
    limiter ??= await Lockkeeper.create(environment.POLICY, JSON.parse(environment.OPTIONS));
    const { pathname } = new URL(request.url);
    await READ[pathname]?.(request);
    const decision = await limiter.decide(request);
    if (pathname === "/twice") {
      decision.settle(new Response("once"));
      const again = await limiter.decide(request);
      return again.response ?? again.settle(new Response("twice"));
    }
    const answer = ANSWERS[pathname] ?? (() => new Response("done"));
    return decision.response ?? decision.settle(answer(decision.request));
  },
};

function streamed(chunk) {
  const begin = (controller) => {
    controller.enqueue(chunk);
    controller.close();
  };
  return new Response(new ReadableStream({ start: begin }), { headers: { "content-length": "5" } });
}
"#;

const UNUSABLE: [&str; 7] = ["/nothing", "/text", "/like", "/error", "/used", "/taken", "/socket"];

fn careless() -> TempDir {
    with_script(&paths::built_worker(paths::worker()), CARELESS)
}

fn one_policy(policy: &Value) -> Value {
    json!({ "version": 1, "policies": { "p": policy }, "default_policy": "p" })
}

fn keyed(rules: &Value) -> Value {
    let mut idempotency = json!({ "scope": ["header:authorization"], "lease": "3s", "on_unknown": "reject" });
    idempotency.as_object_mut().expect("an object").extend(rules.as_object().expect("an object").clone());
    one_policy(&json!({ "idempotency": idempotency }))
}

fn request(path: &str, key: &str) -> Request {
    let request = Request::new("POST", path).header("authorization", "Bearer a").header("idempotency-key", key);
    request.body("body")
}

/// The answer, which must come long before any watchdog.
fn at_once(workerd: &Workerd, request: &Request) -> Response {
    let began = Instant::now();
    let answer = send(workerd, request);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}: {answer:?}", began.elapsed());
    answer
}

/// The answers to `/slow`, which runs meanwhile, and to its repetition.
fn slow_beside(workerd: &Workerd, redis: &Redis, meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| send(workerd, &request("/slow", "slow")));
        poll::until("the slow one runs", DEADLINE, || {
            let keys: usize = redis::cmd("DBSIZE").query(&mut redis.connection()).expect("Redis answers");
            (keys > 0).then_some(())
        })
        .expect("it runs");
        meanwhile();
        let slow = slow.join().expect("an answer");
        assert_eq!((slow.status, slow.body.as_str()), (200, "slow"), "{}", workerd.process().log_tail());
    });
    let replay = send(workerd, &request("/slow", "slow"));
    assert_eq!((replay.status, replay.header("idempotent-replayed")), (200, Some("true")), "{replay:?}");
}

#[test]
fn a_body_that_was_read_before_the_decision_has_no_fingerprint_and_is_answered_at_once() {
    let redis = Redis::start().expect("Redis starts");
    let directory = careless();
    let workerd = limiter(directory.path(), &redis, &keyed(&json!({ "fingerprint": { "body": "raw" } })));
    slow_beside(&workerd, &redis, || {
        for path in ["/read", "/locked", "/drained", "/twice"] {
            let answer = at_once(&workerd, &request(path, path));
            assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true), "{path}: {answer:?}");
        }
    });
    assert_eq!(at_once(&workerd, &request("/", "whole")).status, 200);
}

#[test]
fn a_request_whose_body_was_read_is_not_sent_on_and_gives_back_what_it_held() {
    let redis = Redis::start().expect("Redis starts");
    let directory = careless();
    let workerd = limiter(directory.path(), &redis, &keyed(&json!({ "fingerprint": { "body": "at_completion" } })));
    for path in ["/read", "/locked", "/drained"] {
        let answer = at_once(&workerd, &request(path, "key"));
        assert_eq!((answer.status, answer.header("idempotency-outcome")), (502, None), "{path}: {answer:?}");
    }
    assert_eq!(at_once(&workerd, &request("/", "key")).body, "done");
}

#[test]
fn a_module_that_fails_does_not_let_a_body_pass_that_is_read() {
    let redis = Redis::start().expect("Redis starts");
    let directory = with_script(&paths::built_worker(paths::worker_trap()), CARELESS);
    let limit =
        json!({ "name": "all", "algorithm": "fixed_window", "limit": 9, "window": "1d", "key": ["constant:all"] });
    let policy = one_policy(&json!({ "limits": [limit], "limits_on_store_failure": "allow" }));
    let workerd = limiter(directory.path(), &redis, &policy);
    for (path, status) in [("/read", 503), ("/locked", 503), ("/", 200)] {
        let answer = at_once(&workerd, &request(path, path).header("x-lockkeeper-trap", "1"));
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
}

#[test]
fn what_is_no_response_to_be_sent_leaves_the_outcome_unknown_and_nobody_else_hurt() {
    let redis = Redis::start().expect("Redis starts");
    let directory = careless();
    for respond in ["after_store", "at_once"] {
        let policy = keyed(&json!({ "respond": respond }));
        let workerd = limiter(directory.path(), &redis, &policy);
        redis::cmd("FLUSHALL").exec(&mut redis.connection()).expect("Redis answers");
        slow_beside(&workerd, &redis, || {
            for path in UNUSABLE {
                let answer = at_once(&workerd, &request(path, path));
                assert_eq!((answer.status, answer.header("idempotency-outcome")), (502, Some("unknown")), "{path}");
            }
        });
        for path in UNUSABLE {
            assert_eq!(at_once(&workerd, &request(path, path)).status, 409, "{path}");
        }
    }
}

#[test]
fn a_body_of_what_is_not_bytes_leaves_the_outcome_unknown() {
    let redis = Redis::start().expect("Redis starts");
    let directory = careless();
    let workerd = limiter(directory.path(), &redis, &keyed(&json!({ "respond": "after_store" })));
    slow_beside(&workerd, &redis, || {
        let answer = at_once(&workerd, &request("/objects", "objects"));
        assert_eq!((answer.status, answer.header("idempotency-outcome")), (502, Some("unknown")), "{answer:?}");
    });
    for path in ["/buffers", "/views"] {
        let answer = at_once(&workerd, &request(path, path));
        assert_eq!((answer.status, answer.body.as_str()), (200, "whole"), "{answer:?}");
    }
}

#[test]
fn a_slot_is_given_back_whatever_its_request_is_settled_with() {
    let redis = Redis::start().expect("Redis starts");
    let directory = careless();
    let slots = json!({ "limit": 1, "lease": "10s", "key": ["constant:all"] });
    let workerd = limiter(directory.path(), &redis, &one_policy(&json!({ "concurrency": slots })));
    for path in UNUSABLE {
        let answer = at_once(&workerd, &Request::get(path));
        assert_eq!((answer.status, answer.header("idempotency-outcome")), (502, None), "{path}: {answer:?}");
        let next = || (send(&workerd, &Request::get("/")).status == 200).then_some(());
        poll::until("the slot is free", Duration::from_secs(1), next).expect("it is given back");
    }
}

#[test]
fn a_listener_that_fails_when_a_lease_is_lost_hurts_nobody() {
    let redis = Redis::start().expect("Redis starts");
    let directory = careless();
    let lock = json!({ "key": ["constant:one"], "lease": "1s", "on_lease_lost": "cancel" });
    let workerd = limiter(directory.path(), &redis, &one_policy(&json!({ "lock": lock })));
    std::thread::scope(|scope| {
        let lost = scope.spawn(|| send(&workerd, &Request::get("/lost")));
        poll::until("the lock is taken", DEADLINE, || {
            let keys: usize = redis::cmd("DBSIZE").query(&mut redis.connection()).expect("Redis answers");
            (keys > 0).then_some(())
        })
        .expect("the lock is taken");
        redis::cmd("FLUSHALL").exec(&mut redis.connection()).expect("Redis answers");
        let lost = lost.join().expect("an answer");
        assert_eq!((lost.status, lost.body.as_str()), (200, "aborted"), "{lost:?}\n{}", workerd.process().log_tail());
    });
    assert!(!workerd.process().log().contains("panic"), "{}", workerd.process().log_tail());
}
