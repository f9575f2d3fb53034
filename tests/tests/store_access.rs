//! How the filter introduces itself to a real Redis: users and passwords, databases, TLS; and what becomes of requests when
//! Redis does not accept it.

use lockkeeper_tests::{Certificates, Envoy, EnvoyConfig, Redis, poll, ports, redis_server};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const DECIDER: &str = "x-decided-by";
const LIMIT: u64 = 1_000_000;

fn config(store: SocketAddr) -> EnvoyConfig {
    let limit =
        json!({ "name": "all", "algorithm": "fixed_window", "limit": LIMIT, "window": "1d", "key": ["constant:all"] });
    let policy = json!({ "version": 1, "namespace": "prod", "policies": { "api": { "limits": [limit] } }, "default_policy": "api" });
    let host = json!({ "degraded_header": DECIDER, "deadline": "500ms" });
    EnvoyConfig::shipped().policy(policy).host(host).redis(store).direct_response().without_access_log()
}

fn start(config: &EnvoyConfig) -> Envoy {
    Envoy::start(config).expect("Envoy starts")
}

/// Who decides a request: the store, or whoever the response names.
fn decider(envoy: &Envoy) -> String {
    let response = envoy.client().get("/");
    assert_eq!(response.status, 200, "{response:?}");
    response.header(DECIDER).unwrap_or("store").to_owned()
}

fn assert_decided_by_the_store(envoy: &Envoy) {
    for _ in 0..3 {
        assert_eq!(decider(envoy), "store");
    }
}

fn wait_for_the_store(envoy: &Envoy) -> Duration {
    let start = Instant::now();
    let decided = || (decider(envoy) == "store").then_some(());
    poll::until("the store decides", Duration::from_secs(5), decided).unwrap_or_else(|error| panic!("{error:#}"));
    start.elapsed()
}

/// A Redis whose default user has a password, and a connection to it from before.
fn protected(password: &str) -> (Redis, redis::Connection) {
    let redis = Redis::start().expect("Redis starts");
    let mut admin = redis.connection();
    set_password(&mut admin, password);
    (redis, admin)
}

fn set_password(admin: &mut redis::Connection, password: &str) {
    let rules = ["SETUSER", "default", "resetpass", &format!(">{password}")];
    redis::cmd("ACL").arg(&rules).exec(admin).expect("Redis knows users");
}

fn keys(admin: &mut redis::Connection, database: u32) -> usize {
    redis::cmd("SELECT").arg(database).exec(admin).expect("Redis has it");
    redis::cmd("DBSIZE").query(admin).expect("Redis answers")
}

fn secure(config: EnvoyConfig, authority: &std::path::Path) -> EnvoyConfig {
    config.store_tls(json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "sni": "localhost",
        "common_tls_context": { "validation_context": {
            "trusted_ca": { "filename": authority },
            "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": "localhost" } }] } }
    }))
}

#[test]
fn a_password_is_said_first() {
    let (redis, _admin) = protected("right");
    let envoy = start(&config(redis.address()).host(json!({ "credentials": { "password": "right" } })));
    assert_decided_by_the_store(&envoy);
}

#[test]
fn a_user_with_the_documented_rights_and_a_password_of_the_environment() {
    let (redis, mut admin) = protected("somebody else's");
    let rights = redis_server::documented_rights().replace("PASSWORD", "right");
    redis::cmd("ACL").arg(rights.split(' ').collect::<Vec<_>>()).exec(&mut admin).expect("Redis knows users");
    let credentials = json!({ "user": "lockkeeper", "password_variable": "STORE_PASSWORD" });
    let config = config(redis.address()).host(json!({ "credentials": credentials }));
    let envoy = start(&config.environment("STORE_PASSWORD", "right").vm_variables(&["STORE_PASSWORD"]));
    assert_decided_by_the_store(&envoy);
}

#[test]
fn a_database_gets_the_keys_and_no_other_does() {
    let redis = Redis::start().expect("Redis starts");
    let mut admin = redis.connection();
    let envoy = start(&config(redis.address()).host(json!({ "database": 3 })));
    assert_decided_by_the_store(&envoy);
    assert_eq!([0, 3].map(|database| keys(&mut admin, database)), [0, 1]);
}

/// The commands behind a refused greeting would run as the default user, or in database 0.
#[test]
fn nothing_is_asked_of_a_store_that_refuses_the_greeting() {
    let (redis, mut admin) = protected("right");
    for host in [
        json!({ "credentials": { "password": "wrong" } }),
        json!({ "credentials": { "password": "right" }, "database": 99 }),
        json!({ "credentials": { "user": "nobody", "password": "right" } }),
    ] {
        let envoy = start(&config(redis.address()).host(host.clone()));
        for _ in 0..3 {
            assert_eq!(decider(&envoy), "local", "{host}");
        }
        let refused = || (envoy.admin().stat("wasmcustom.lockkeeper_pipe_events.event.refused") > 0).then_some(());
        poll::until("the metric of a refused greeting", Duration::from_secs(5), refused).expect("it is counted");
        let log = envoy.process().log();
        assert!(log.contains("the store refuses"), "{log}");
    }
    assert_eq!(keys(&mut admin, 0), 0);
}

#[test]
fn credentials_that_become_right_are_accepted_soon() {
    let (redis, mut admin) = protected("old");
    let envoy = start(&config(redis.address()).host(json!({ "credentials": { "password": "new" } })));
    // Until the breaker is open.
    for _ in 0..20 {
        assert_eq!(decider(&envoy), "local");
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = || (envoy.admin().stat("wasmcustom.lockkeeper_store_calls.outcome.access") > 0).then_some(());
    poll::until("the metric of refused credentials", Duration::from_secs(5), refused).expect("it is counted");
    let log = envoy.process().log();
    assert!(log.contains("the store refuses"), "{log}");
    set_password(&mut admin, "new");
    let recovery = wait_for_the_store(&envoy);
    println!("the store decides {recovery:?} after it accepts the credentials");
    assert!(recovery < Duration::from_secs(2), "{recovery:?}");
}

#[test]
fn a_password_variable_that_the_vm_does_not_have_is_refused_at_load() {
    let lacking = |config: EnvoyConfig| {
        let config = config.host(json!({ "credentials": { "password_variable": "STORE_PASSWORD" } }));
        Envoy::validate(&config).expect_err("there is no password").to_string()
    };
    let shipped = || config(ports::free());
    let rows = [shipped(), shipped().vm_variables(&["STORE_PASSWORD"]).environment("STORE_PASSWORD", "")];
    for refusal in rows.map(lacking) {
        assert!(refusal.contains("$.host.credentials.password_variable: found a variable that"), "{refusal}");
    }
}

#[test]
fn tls_with_an_authority_that_is_trusted_and_one_that_is_not() {
    let [certificates, strangers] = [(), ()].map(|()| Certificates::make().expect("openssl makes certificates"));
    let secure_port = ports::free();
    let options = certificates.redis_options(secure_port.port());
    let options: Vec<_> = options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let redis = Redis::start_with(&options).expect("Redis starts");
    let mut admin = redis.connection();
    let envoy = start(&secure(config(secure_port), &strangers.authority()));
    assert_eq!(decider(&envoy), "local");
    assert_eq!(keys(&mut admin, 0), 0);
    let envoy = start(&secure(config(secure_port), &certificates.authority()));
    wait_for_the_store(&envoy);
    assert_decided_by_the_store(&envoy);
}

/// `redis_proxy` keeps the credentials itself, and would answer ours.
#[test]
fn envoys_own_client_introduces_itself() {
    let (redis, _admin) = protected("right");
    let auth: Value = json!({ "envoy.filters.network.redis_proxy": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions",
        "auth_password": { "inline_string": "right" } } });
    let policy = config(redis.address()).plugin_configuration()["policy"].clone();
    let mut config = EnvoyConfig::redis_proxy().policy(policy).host(json!({ "degraded_header": DECIDER }));
    config.cluster("redis")["typed_extension_protocol_options"] = auth;
    let envoy = start(&config.redis(redis.address()).direct_response());
    wait_for_the_store(&envoy);
    assert_decided_by_the_store(&envoy);
}
