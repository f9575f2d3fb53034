//! How the Worker introduces itself to a real Redis: users and passwords, databases, TLS; and what becomes of its
//! requests when Redis, or the Worker, does not accept the other.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Certificates, Redis, Upstream, Workerd, WorkerdConfig, poll, ports, redis_server};
use serde_json::{Value, json};
use std::time::Duration;

/// Far above what the machine takes under load.
const DEADLINE: Duration = Duration::from_secs(5);
/// Of requests that wait in vain.
const SHORT: Duration = Duration::from_millis(400);
/// What an answer may take beyond it, on a machine under load.
const SLACK: Duration = Duration::from_millis(400);
const SOCKETS: [Transport; 2] = [Transport::DurableObject, Transport::Tcp];

/// Limits by path, one for each way to bear the store's absence, and a lock.
fn policy() -> Value {
    let limited = |mode: &str| {
        let limit =
            json!({ "name": "all", "algorithm": "fixed_window", "limit": 1, "window": "1d", "key": ["header:x-user"] });
        json!({ "limits": [limit], "limits_on_store_failure": mode })
    };
    let locked = json!({ "lock": { "key": ["header:x-user"] } });
    json!({ "version": 1, "namespace": "prod",
            "policies": { "allow": limited("allow"), "deny": limited("deny"), "lock": locked },
            "routes": [{ "match": { "path": "/allow" }, "policy": "allow" },
                       { "match": { "path": "/deny" }, "policy": "deny" },
                       { "match": { "path": "/lock" }, "policy": "lock" }] })
}

/// A Redis that knows a user `gateway` with the password `right` and no more rights than it needs, by TLS too, and an origin.
struct World {
    redis: Redis,
    admin: redis::Connection,
    secure_port: u16,
    certificates: Certificates,
    upstream: Upstream,
}

impl World {
    fn start() -> World {
        let certificates = Certificates::make().expect("openssl makes certificates");
        let secure_port = ports::free().port();
        let options = certificates.redis_options(secure_port);
        let options: Vec<_> = options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let redis = Redis::start_with(&options).expect("Redis starts");
        let mut admin = redis.connection();
        let rights = rights();
        redis::cmd("ACL").arg(rights.split(' ').collect::<Vec<_>>()).exec(&mut admin).expect("Redis knows users");
        let upstream = Upstream::start().expect("a loopback port is free");
        World { redis, admin, secure_port, certificates, upstream }
    }

    /// What no user is asked for: the connection that does it stays.
    fn change_default_user(&mut self, rules: &[&str]) {
        redis::cmd("ACL").arg("SETUSER").arg("default").arg(rules).exec(&mut self.admin).expect("Redis knows users");
    }

    fn config(&self, transport: Transport, deadline: Duration) -> WorkerdConfig {
        let config = WorkerdConfig::built().store(transport, self.redis.address()).deadline(deadline);
        config.origin(self.upstream.address()).policy(&policy())
    }

    fn secure(&self, config: WorkerdConfig) -> WorkerdConfig {
        config.variable("STORE_URL", &format!("rediss://localhost:{}", self.secure_port))
    }

    fn keys(&mut self, database: u32) -> usize {
        redis::cmd("SELECT").arg(database).exec(&mut self.admin).expect("Redis has it");
        redis::cmd("DBSIZE").query(&mut self.admin).expect("Redis answers")
    }

    fn forget_all(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.admin).expect("Redis answers");
    }
}

/// Those that the documentation recommends, and that to select a database.
fn rights() -> String {
    format!("{} +select", redis_server::documented_rights())
        .replace("lockkeeper", "gateway")
        .replace("PASSWORD", "right")
}

fn as_gateway(config: WorkerdConfig, password: &str) -> WorkerdConfig {
    config.variable("STORE_USER", "gateway").variable("STORE_PASSWORD", password)
}

fn start(config: &WorkerdConfig) -> Workerd {
    Workerd::start(config).expect("workerd starts")
}

fn ask(workerd: &Workerd, path: &str) -> Response {
    workerd.client().send(&Request::get(path).header("x-user", "one")).expect("workerd answers")
}

fn assert_decides(workerd: &Workerd) {
    let statuses = [(); 2].map(|()| ask(workerd, "/deny").status);
    assert_eq!(statuses, [200, 429], "{}", workerd.process().log_tail());
}

/// In time, as the policy says for the store's absence, each time; and the log names the reason, if there is one.
fn assert_degraded(workerd: &Workerd, reason: Option<&str>) {
    for _ in 0..3 {
        for (path, status) in [("/allow", 200), ("/deny", 503)] {
            let answer = ask(workerd, path);
            assert_eq!(answer.status, status, "{path}: {}", workerd.process().log_tail());
            assert!(answer.elapsed < SHORT + SLACK, "{path} took {:?}", answer.elapsed);
        }
    }
    if let Some(reason) = reason {
        let line = format!(r#"{{"connect":"{reason}","lockkeeper":"store"}}"#);
        poll::until("the log tells", DEADLINE, || workerd.process().log().contains(&line).then_some(()))
            .unwrap_or_else(|error| panic!("{error:#}\n{}", workerd.process().log_tail()));
    }
}

#[test]
fn a_user_and_a_database_over_both_kinds_of_sockets_plain_and_by_tls() {
    let mut world = World::start();
    world.change_default_user(&["off"]);
    for transport in SOCKETS {
        for is_secure in [false, true] {
            println!("{transport:?}, TLS: {is_secure}");
            let config = as_gateway(world.config(transport, DEADLINE), "right").variable("STORE_DATABASE", "3");
            let config = if is_secure { world.secure(config).trusts(world.certificates.authority()) } else { config };
            assert_decides(&start(&config));
            assert_eq!((world.keys(0), world.keys(3)), (0, 1), "the keys stand in the database that was selected");
            world.forget_all();
        }
    }
}

#[test]
fn a_store_that_was_missed_is_found_again_by_a_user_with_no_more_rights_than_it_needs() {
    let mut world = World::start();
    world.change_default_user(&["off"]);
    for transport in SOCKETS {
        println!("{transport:?}");
        let workerd = start(&as_gateway(world.config(transport, SHORT), "right"));
        poll::until("the store decides", DEADLINE, || (ask(&workerd, "/deny").status == 429).then_some(()))
            .expect("it does");
        world.redis.pause();
        assert_degraded(&workerd, None);
        world.redis.resume();
        poll::until("the store decides again", DEADLINE, || (ask(&workerd, "/deny").status == 429).then_some(()))
            .unwrap_or_else(|error| panic!("{error:#}\n{}", workerd.process().log_tail()));
    }
}

#[test]
fn a_password_without_a_user() {
    let mut world = World::start();
    world.change_default_user(&["resetpass", ">of-all"]);
    for transport in SOCKETS {
        println!("{transport:?}");
        assert_decides(&start(&world.config(transport, DEADLINE).variable("STORE_PASSWORD", "of-all")));
        world.forget_all();
    }
}

#[test]
fn credentials_and_databases_that_redis_refuses_are_a_failed_store() {
    let mut world = World::start();
    for transport in SOCKETS {
        let config = world.config(transport, SHORT);
        let right = as_gateway(config.clone(), "right");
        let unknown = right.clone().variable("STORE_USER", "nobody");
        let missing = right.clone().variable("STORE_DATABASE", "99");
        world.change_default_user(&["off"]);
        let rows = [
            ("a wrong password", as_gateway(config.clone(), "wrong"), Some("access")),
            ("an unknown user", unknown, Some("access")),
            ("no credentials", config, None),
            ("no such database", missing, Some("other")),
        ];
        for (what, config, reason) in rows {
            println!("{transport:?}, {what}");
            assert_degraded(&start(&config), reason);
        }
        world.change_default_user(&["on"]);
    }
}

#[test]
fn a_certificate_that_is_not_trusted_or_of_another_name_and_a_port_without_tls_are_a_failed_store() {
    let world = World::start();
    let strange = Certificates::make().expect("openssl makes certificates");
    for transport in SOCKETS {
        let config = world.secure(world.config(transport, SHORT));
        let trusting = config.clone().trusts(world.certificates.authority());
        let other_name = format!("rediss://127.0.0.1:{}", world.secure_port);
        let plain = format!("rediss://{}", world.redis.address());
        let rows = [
            ("an authority that nobody knows", config.clone()),
            ("another authority", config.trusts(strange.authority())),
            ("another name", trusting.clone().variable("STORE_URL", &other_name)),
            ("no TLS", trusting.variable("STORE_URL", &plain)),
        ];
        for (what, config) in rows {
            println!("{transport:?}, {what}");
            assert_degraded(&start(&config), None);
        }
    }
}

/// The command follows the credentials and the database in the same write, so Redis may carry it out where they are refused.
#[test]
fn what_redis_does_for_a_connection_that_it_refuses_is_given_back() {
    let world = World::start();
    let wrong = as_gateway(world.config(Transport::Tcp, SHORT), "wrong");
    let missing = world.config(Transport::Tcp, SHORT).variable("STORE_DATABASE", "99");
    let other = start(&world.config(Transport::Tcp, DEADLINE));
    for config in [wrong, missing] {
        let refused = start(&config);
        assert_eq!(ask(&refused, "/lock").status, 503);
        poll::until("the lock is free", DEADLINE, || (ask(&other, "/lock").status == 200).then_some(()))
            .unwrap_or_else(|error| panic!("{error:#}\n{}", other.process().log_tail()));
    }
}
