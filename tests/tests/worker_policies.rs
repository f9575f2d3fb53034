//! The policy in a KV namespace, while the Worker runs in real workerd: other versions, faulty ones, and a namespace that
//! fails.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::origin::{self, Origin, Piece};
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Redis, StepClock, Upstream, Workerd, WorkerdConfig, poll};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);
/// As the documentation says.
const LOOKS_EVERY_S: i64 = 30;

/// The entries of a namespace, behind a server that speaks its protocol.
struct Namespace {
    entries: Arc<Mutex<BTreeMap<String, String>>>,
    server: Origin,
}

impl Namespace {
    fn start() -> Namespace {
        let entries = Arc::<Mutex<BTreeMap<String, String>>>::default();
        let known = Arc::clone(&entries);
        let server = Origin::start(Arc::new(move |seen| {
            let path = seen.path().split('?').next().unwrap_or_default().replace("%3A", ":");
            let entry = known.lock().expect("no holder panics").get(path.trim_start_matches('/')).cloned();
            vec![Piece::Bytes(entry.map_or_else(|| origin::response(404, ""), |entry| origin::response(200, &entry)))]
        }));
        Namespace { entries, server: server.expect("a loopback port is free") }
    }

    fn put(&self, name: &str, entry: &str) {
        self.entries.lock().expect("no holder panics").insert(name.to_owned(), entry.to_owned());
    }

    fn put_version(&self, version: &str, policy: &str) {
        self.put(&format!("policy:{version}"), policy);
        self.put("version", version);
    }
}

struct World {
    clock: StepClock,
    looks: i64,
    namespace: Namespace,
    _redis: Redis,
    _upstream: Upstream,
    workerd: Workerd,
}

impl World {
    fn start(namespace: Namespace) -> World {
        let clock = StepClock::build().expect("the clock is built");
        let redis = Redis::start().expect("Redis starts");
        let upstream = Upstream::start().expect("a loopback port is free");
        let config =
            WorkerdConfig::built().store(Transport::Tcp, redis.address()).deadline(SOON).variable("LOG_SAMPLE", "0");
        let config = config.origin(upstream.address()).policies(namespace.server.address());
        let config = clock.environment().iter().fold(config, |config, (name, value)| config.variable(name, value));
        let workerd = Workerd::start(&config).expect("workerd starts");
        World { clock, looks: 0, namespace, _redis: redis, _upstream: upstream, workerd }
    }

    fn ask(&self, user: &str) -> Response {
        self.workerd.client().send(&Request::get("/").header("x-user", user)).expect("workerd answers")
    }

    /// How many requests the policy in force grants; asked of a user of its own.
    fn limit(&self) -> Option<String> {
        let answer = self.ask("who looks");
        let field = answer.header("ratelimit-policy")?;
        field.split(';').find_map(|member| member.strip_prefix("q=")).map(str::to_owned)
    }

    /// Lets the time come at which the isolate looks, and it looks.
    fn let_it_look(&mut self) {
        let before = self.namespace.server.count();
        self.looks += 1;
        self.clock.set(self.looks * (LOOKS_EVERY_S + 1));
        let has_looked = || {
            self.ask("who looks");
            (self.namespace.server.count() > before).then_some(())
        };
        poll::until("it looks", SOON, has_looked).expect("it looks");
    }

    fn await_limit(&self, limit: &str) {
        let is_in_force = || (self.limit().as_deref() == Some(limit)).then_some(());
        poll::until("the policy is in force", SOON, is_in_force)
            .unwrap_or_else(|error| panic!("{limit}: {error:#}\n{}", self.workerd.process().log_tail()));
    }

    fn await_log(&self, text: &str) {
        poll::until("the log tells", SOON, || self.workerd.process().log().contains(text).then_some(()))
            .unwrap_or_else(|error| panic!("{text}: {error:#}\n{}", self.workerd.process().log_tail()));
    }
}

/// So many a day for each user.
fn policy(limit: u32, more: Value) -> String {
    let each = json!({ "name": "each", "algorithm": "fixed_window", "limit": limit, "window": "1d", "key": ["header:x-user"] });
    let mut policies = json!({ "p": { "limits": [each], "limits_on_store_failure": "deny" } });
    policies.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({ "version": 1, "default_policy": "p", "policies": policies }).to_string()
}

#[test]
fn another_version_is_in_force_after_the_next_look_and_keeps_the_counters() {
    let namespace = Namespace::start();
    namespace.put_version("v1", &policy(10000, json!({})));
    let mut world = World::start(namespace);
    let left = |answer: &Response| {
        answer.header("ratelimit").and_then(|field| field.split(";r=").nth(1)?.split(';').next().map(str::to_owned))
    };
    assert_eq!(left(&world.ask("one")).as_deref(), Some("9999"));
    let limit =
        json!({ "name": "other", "algorithm": "token_bucket", "capacity": 9, "refill": "1/s", "key": ["host"] });
    world.namespace.put_version("v2", &policy(5000, json!({ "other": { "limits": [limit] } })));
    assert_eq!(world.limit().as_deref(), Some("10000"), "nobody looks before it is time");
    world.let_it_look();
    world.await_limit("5000");
    assert_eq!(left(&world.ask("one")).as_deref(), Some("4998"), "one of 5,000 was spent before");
}

#[test]
fn a_version_that_cannot_be_loaded_is_logged_and_changes_nothing_and_the_next_one_counts() {
    let namespace = Namespace::start();
    namespace.put_version("v1", &policy(10000, json!({})));
    let mut world = World::start(namespace);
    world.await_limit("10000");
    let faulty = [
        ("v2", "{ \"version\": 1, \"polices\": {} }", "polices"),
        ("v3", "no JSON", "policy v3"),
        (
            "v4",
            "{ \"version\": 1, \"default_policy\": \"p\", \"policies\": { \"p\": { \"idempotency\": { \"scope\": [\"client_address\"], \"shared_scope\": true, \"on_unknown\": \"reject\" } } } }",
            "expected \\\"header:authorization\\\"",
        ),
    ];
    for (version, policy, fault) in faulty {
        world.namespace.put_version(version, policy);
        world.let_it_look();
        world.await_log(fault);
        assert_eq!(world.limit().as_deref(), Some("10000"), "{version}");
    }
    world.namespace.put("version", "v5");
    world.let_it_look();
    world.await_log("policy:v5");
    assert_eq!(world.limit().as_deref(), Some("10000"), "the file of v5 is not there yet");
    world.namespace.put_version("v5", &policy(7000, json!({})));
    world.let_it_look();
    world.await_limit("7000");
}

#[test]
fn a_namespace_that_fails_changes_nothing() {
    let namespace = Namespace::start();
    namespace.put_version("v1", &policy(10000, json!({})));
    let mut world = World::start(namespace);
    world.await_limit("10000");
    for pieces in [vec![Piece::Bytes(origin::response(500, ""))], vec![Piece::Close]] {
        world.namespace.server.behave(origin::always(&pieces));
        world.let_it_look();
        assert_eq!(world.limit().as_deref(), Some("10000"), "{pieces:?}");
    }
}

#[test]
fn an_isolate_that_begins_with_a_faulty_version_recovers_with_the_next_one() {
    for (version, policy_there) in [("v1", Some("{}")), ("v2", None)] {
        let namespace = Namespace::start();
        namespace.put("version", version);
        policy_there.iter().for_each(|policy| namespace.put_version(version, policy));
        let mut world = World::start(namespace);
        assert_eq!(world.ask("one").status, 503);
        world.namespace.put_version("v3", &policy(7000, json!({})));
        assert_eq!(world.ask("one").status, 503, "nobody looks before it is time");
        world.let_it_look();
        world.await_limit("7000");
    }
}
