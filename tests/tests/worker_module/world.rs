//! Workers that make a limiter of what their variables say.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::{Redis, Workerd, WorkerdConfig};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Long: these tests are about decisions, on machines under load.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Makes a limiter of what the variables say and tells what it did: of requests with a key the policy's answer, if any; of
/// `/slow` late, of `/broken` never. What `/forgotten` holds it never settles.
pub const TELLING: &str = r#"
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
    if (new URL(request.url).pathname === "/forgotten") return Response.json(told);
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

/// The build in `directory` with [`TELLING`] at its head.
pub fn telling(directory: &Path) -> TempDir {
    with_script(directory, TELLING)
}

/// The build in `directory` with another script at its head.
pub fn with_script(directory: &Path, script: &str) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary directory");
    let copied = Command::new("cp").arg("-r").arg(directory.join(".")).arg(copy.path()).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is copied", directory.display());
    std::fs::write(copy.path().join("worker.js"), script).expect("a file is written");
    copy
}

pub fn from_client(path: &str) -> Request {
    Request::get(path).header("cf-connecting-ip", "192.0.2.7")
}

pub fn send(workerd: &Workerd, request: &Request) -> Response {
    workerd.client().send(request).expect("workerd answers")
}

pub fn told(workerd: &Workerd, request: &Request) -> Value {
    let answer = send(workerd, request);
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{answer:?}\n{}", workerd.process().log_tail()))
}

/// A Worker that makes a limiter of that policy.
pub fn limiter(directory: &Path, redis: &Redis, policy: &Value) -> Workerd {
    let store = json!({ "url": format!("redis://{}", redis.address()), "deadlineMs": DEADLINE.as_millis() });
    let config = WorkerdConfig::built_in(directory.to_owned()).policy(policy);
    let options = json!({ "store": store, "bodies": { "deadlineMs": DEADLINE.as_millis() } });
    Workerd::start(&config.variable("OPTIONS", &options.to_string())).expect("workerd starts")
}
