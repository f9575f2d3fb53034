//! `lockkeeper inspect` and `lockkeeper unlock` against a real Redis that holds claims by the real scripts.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use lockkeeper_core::admission::Arrival;
use lockkeeper_core::capture::{End, RecordEnd};
use lockkeeper_core::claim::Owner;
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::idempotency::stored::Stored;
use lockkeeper_core::lease::Lease;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::resp::Decoder;
use lockkeeper_core::script;
use lockkeeper_tests::Redis;
use redis::Commands;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use support::{Directory, Run, lockkeeper};

const POLICY: &str = r#"{ "version": 1, "default_policy": "p", "policies": { "p": {
  "idempotency": { "scope": ["header:authorization"], "on_unknown": "reject", "replay_limit": false,
    "fingerprint": { "body": "ignored" } },
  "lock": { "key": ["header:x-account"], "fence_header": "lock-token" },
  "concurrency": { "limit": 2, "key": ["host"] } } } }"#;
const REQUEST: [&str; 10] = [
    "--method",
    "POST",
    "--url",
    "http://a.example/pay",
    "-H",
    "authorization: Bearer sesame",
    "-H",
    "idempotency-key: open-sesame",
    "-H",
    "x-account: 7",
];

struct World {
    redis: Redis,
    directory: Directory,
}

impl World {
    fn new() -> World {
        let world = World { redis: Redis::start().unwrap(), directory: Directory::with(&[("policy.json", POLICY)]) };
        for script in [script::ADMIT, script::COMPLETE, script::RELEASE] {
            redis::cmd("SCRIPT").arg("LOAD").arg(script.text()).query::<String>(&mut world.redis.connection()).unwrap();
        }
        world
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Run {
        let store = format!("redis://{}/", self.redis.address());
        lockkeeper(&self.directory, &[&[command, "policy.json", "--store", &store], &REQUEST[..], arguments].concat())
    }

    fn inspect(&self) -> Value {
        let run = self.run("inspect", &["--json"]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        serde_json::from_str(&run.stdout).unwrap()
    }

    fn states(&self) -> [String; 2] {
        [0, 1].map(|claim| self.inspect()["claims"][claim]["state"].as_str().unwrap().to_owned())
    }

    /// Takes the claims of the request, as a gateway does.
    fn take(&self, owner: u8) -> Lease {
        let engine = Engine::new(PolicySet::from_json(POLICY.as_bytes(), LoadOptions::default()).unwrap());
        let selection = engine.select("POST", "a.example", "/pay");
        let header = |name: &str| REQUEST.iter().find_map(|text| text.strip_prefix(&format!("{name}: ")));
        let values = engine.attributes(&selection).iter().map(|attribute| match attribute {
            lockkeeper_core::identity::Attribute::Header(name) => header(name).map(|value| value.as_bytes().to_vec()),
            _ => None,
        });
        let arrival = Arrival { owner: Some(Owner::new([owner; 16])), ..Arrival::default() };
        let Step::Call(call) = engine.begin_arrived(&selection, &values.collect::<Vec<_>>(), &arrival) else {
            panic!("no call")
        };
        let mut command = Vec::new();
        call.write("t", &mut command);
        let Step::Decide(decision) = call.resume(Ok(self.exchange(&command))) else { panic!("not decided") };
        decision.claimed.unwrap().lease.unwrap()
    }

    fn end(&self, lease: &Lease, end: &End) {
        for call in lease.end(end) {
            let mut command = Vec::new();
            call.write("t", &mut command);
            self.exchange(&command);
        }
    }

    fn exchange(&self, command: &[u8]) -> lockkeeper_core::resp::Reply {
        let mut stream = TcpStream::connect(self.redis.address()).unwrap();
        stream.write_all(command).unwrap();
        let mut decoder = Decoder::default();
        loop {
            if let Some(reply) = decoder.next_reply().unwrap() {
                return reply;
            }
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            decoder.extend(&bytes[..count]);
        }
    }

    fn record_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.redis.connection().keys("*:r").unwrap();
        keys.sort();
        keys
    }
}

fn done() -> End {
    let headers = vec![("location".into(), b"/secret".to_vec())];
    End { record: RecordEnd::Keep(Stored { status: 201, headers, body: b"the secret".to_vec() }), is_over: true }
}

#[test]
fn a_claim_is_shown_from_free_to_done_without_what_is_nobodys_business() {
    let world = World::new();
    assert_eq!(world.states(), ["free", "free"]);
    let lease = world.take(0xab);
    let held = world.inspect();
    let claim = &held["claims"][0];
    assert_eq!((&claim["kind"], &claim["state"]), (&json!("idempotency"), &json!("running")));
    assert_eq!((&claim["owner"], &claim["attempt"]), (&json!("abababab"), &json!(1)));
    assert!((1..=30_000_000).contains(&claim["lease_left_us"].as_i64().unwrap()), "{claim}");
    let slots = &held["limits"][0];
    assert_eq!((&slots["remaining"], &slots["slots"][0]["owner"]), (&json!(1), &json!("abababab")));
    world.end(&lease, &done());
    assert_eq!(world.states(), ["done", "free"]);
    let text = world.run("inspect", &[]).stdout;
    for shown in ["state      done\n", "status     201\n", "owner      abababab…\n", "lock default:p.lock:{"] {
        assert!(text.contains(shown), "{shown:?} in {text}");
    }
    for secret in ["secret", "sesame", "ababababab"] {
        assert!(!text.contains(secret), "{secret:?} in {text}");
    }
}

#[test]
fn what_runs_or_is_unknown_is_given_back_after_a_yes() {
    let world = World::new();
    world.take(1);
    let records = world.record_keys();
    redis::cmd("HSET").arg(&records[0]).arg("d").arg(5).query::<()>(&mut world.redis.connection()).unwrap();
    assert_eq!(world.states(), ["unknown", "running"]);
    let unasked = world.run("unlock", &[]);
    assert_eq!(unasked.code, 2);
    assert!(unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    assert_eq!(world.record_keys(), records);
    let one = world.run("unlock", &["--claim", "lock", "--yes"]);
    assert_eq!(one.code, 0, "{}{}", one.stdout, one.stderr);
    assert!(one.stdout.ends_with("lock: given back\n"), "{}", one.stdout);
    assert_eq!(world.states(), ["unknown", "free"]);
    let other = world.run("unlock", &["--yes"]);
    assert!(other.stdout.contains("lease      ended ") && other.stdout.ends_with("idempotency: given back\n"));
    assert_eq!((other.code, world.states()), (0, ["free", "free"].map(str::to_owned)));
    let nothing = world.run("unlock", &["--yes"]);
    assert_eq!(nothing.code, 1);
    assert!(nothing.stdout.ends_with("nothing was given back\n"), "{}", nothing.stdout);
    let again = world.take(2);
    assert_eq!(again.claims()[0].attempt, 2, "the attempt that was given back counts");
}

#[test]
fn what_is_done_stays_unless_it_is_to_be_forgotten_and_its_fence_is_remembered() {
    let world = World::new();
    let lease = world.take(1);
    world.end(&lease, &done());
    let refused = world.run("unlock", &["--yes"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stdout.contains("--forget"), "{}", refused.stdout);
    assert_eq!(world.states(), ["done", "free"]);
    let forgotten = world.run("unlock", &["--forget", "--yes"]);
    assert_eq!((forgotten.code, world.states()), (0, ["free", "free"].map(str::to_owned)));
    let next = world.take(2);
    assert!(next.claims()[0].held.fence > lease.claims()[0].held.fence);
    assert_eq!(next.claims()[0].attempt, 2);
}

#[test]
fn what_something_else_wrote_is_named_and_goes_only_when_it_is_to_be_forgotten() {
    let world = World::new();
    world.take(1);
    for key in world.record_keys() {
        redis::cmd("SET").arg(key).arg("foreign").query::<()>(&mut world.redis.connection()).unwrap();
    }
    assert_eq!(world.states(), ["corrupt", "corrupt"]);
    assert_eq!(world.run("unlock", &["--yes"]).code, 1);
    assert_eq!(world.record_keys().len(), 2);
    assert_eq!(world.run("unlock", &["--forget", "--yes"]).code, 0);
    assert!(world.record_keys().is_empty());
}

#[test]
fn a_store_that_may_drop_claims_is_warned_of() {
    let world = World::new();
    let mut connection = world.redis.connection();
    for (policy, warns) in [("volatile-ttl", true), ("allkeys-lru", true), ("noeviction", false)] {
        redis::cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg(policy).query::<()>(&mut connection).unwrap();
        let run = world.run("inspect", &[]);
        assert_eq!(
            (run.code, run.stderr.contains(&format!("maxmemory-policy {policy}"))),
            (0, warns),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn a_request_that_claims_nothing_has_nothing_to_give_back() {
    let world = World::new();
    let store = format!("redis://{}/", world.redis.address());
    let request =
        ["unlock", "policy.json", "--store", &store, "--url", "/", "-H", "x-account: 7", "--claim", "idempotency"];
    let run = lockkeeper(&world.directory, &request);
    assert_eq!((run.code, run.stdout.as_str()), (1, "the request has no such claim\n"));
}
