//! What a limiter decides and tells, over each transport and by itself, also when its module panics; its faults and types.

use crate::world::{DEADLINE, from_client, send, telling, told};
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Redis, RestFront, Workerd, WorkerdConfig, paths, poll, tools, wrangler};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn example() -> std::path::PathBuf {
    paths::workspace().join("edge-worker/example")
}

fn bundled_example() -> TempDir {
    paths::built_worker(paths::worker());
    let out = tempfile::tempdir().expect("a temporary directory");
    wrangler::bundle(&example(), out.path()).unwrap_or_else(|error| panic!("{error:#}"));
    out
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
    assert_compiles(&example());
}

#[test]
fn the_types_fit_what_the_documentation_shows() {
    let text = std::fs::read_to_string(paths::workspace().join("docs/WORKER.md")).expect("the documentation is there");
    let shown = text.split_once("```ts\n").and_then(|(_, rest)| rest.split_once("```")).expect("an example").0;
    let rest = "interface Environment { STORE_URL: string; STORE_PASSWORD?: string }\n\
                declare function answer(request: Request): Promise<Response>;\n";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = json!({ "extends": example().join("tsconfig.json"), "files": ["worker.ts"] });
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("a file is written");
    write("worker.ts", &format!("{shown}{rest}"));
    write("tsconfig.json", &config.to_string());
    std::fs::copy(example().join("policy.json"), directory.path().join("policy.json")).expect("a file is copied");
    assert_compiles(directory.path());
}

fn assert_compiles(project: &Path) {
    let mut node = Command::new("node");
    node.arg(tools::typescript().expect("TypeScript is there")).arg("--project").arg(project);
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

#[test]
fn the_store_is_told_the_user_the_password_and_the_database_of_the_options() {
    let redis = Redis::start().expect("Redis starts");
    let mut admin = redis.connection();
    let gateway = ["SETUSER", "gateway", "on", ">right", "~*", "+@all"];
    redis::cmd("ACL").arg(&gateway).exec(&mut admin).expect("Redis knows users");
    redis::cmd("ACL").arg(&["SETUSER", "default", "off"]).exec(&mut admin).expect("Redis knows users");
    let directory = telling(&paths::built_worker(paths::worker()));
    let limit =
        json!({ "name": "once", "algorithm": "fixed_window", "limit": 1, "window": "1d", "key": ["client_address"] });
    let policy = json!({ "version": 1, "policies": { "p": { "limits": [limit] } }, "default_policy": "p" });
    for (password, decided_by) in [("right", "store"), ("wrong", "local")] {
        let store = json!({ "url": format!("redis://{}", redis.address()), "deadlineMs": DEADLINE.as_millis(),
                            "user": "gateway", "password": password, "database": 3 });
        let config = WorkerdConfig::built_in(directory.path().to_owned()).policy(&policy);
        let config = config.variable("OPTIONS", &json!({ "store": store }).to_string());
        let workerd = Workerd::start(&config).expect("workerd starts");
        let seen = told(&workerd, &from_client("/"));
        assert_eq!((&seen["outcome"], &seen["decidedBy"]), (&json!("allowed"), &json!(decided_by)), "{seen}");
    }
    redis::cmd("SELECT").arg(3).exec(&mut admin).expect("Redis has it");
    let keys: usize = redis::cmd("DBSIZE").query(&mut admin).expect("Redis answers");
    assert_eq!(keys, 1);
}
