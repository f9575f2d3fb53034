//! Which limits count a request, at what cost and with which numbers: several policies, overrides, exemptions, blocks.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, poll};
use serde_json::{Value, json};
use std::time::Duration;

fn start(policy: Value) -> (Redis, Envoy) {
    let redis = Redis::start().expect("Redis starts");
    let config = EnvoyConfig::shipped().redis(redis.address()).direct_response();
    let envoy = Envoy::start(&config.policy(policy).host(json!({ "deadline": "2s" }))).expect("Envoy starts");
    (redis, envoy)
}

/// A limit of so many a day.
fn daily(name: &str, limit: u64, key: &str) -> Value {
    json!({ "name": name, "algorithm": "fixed_window", "limit": limit, "window": "1d", "key": [key] })
}

fn with(mut object: Value, members: Value) -> Value {
    object.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
    object
}

fn send(envoy: &Envoy, request: Request) -> Response {
    envoy.client().send(&request).expect("an answer")
}

fn statuses(envoy: &Envoy, request: &Request, count: usize) -> Vec<u16> {
    (0..count).map(|_| send(envoy, request.clone()).status).collect()
}

/// How many lines of the access log have these values of policy, limit and outcome.
fn logged(envoy: &Envoy, requests: usize, wanted: Value) -> usize {
    let lines = poll::until("the access log", Duration::from_secs(5), || {
        Some(envoy.access_log()).filter(|lines| lines.len() >= requests)
    });
    let fields = |line: &Value| json!(["policy", "limit", "outcome"].map(|field| line[field].clone()));
    lines.expect("the access log is written").iter().filter(|line| fields(line) == wanted).count()
}

#[test]
fn several_policies_of_a_route_are_one_decision() {
    let (_redis, envoy) = start(json!({
        "version": 1,
        "policies": {
            "global": { "limits": [daily("all", 3, "constant:all")] },
            "login": { "limits": [daily("all", 2, "header:x-user")] }
        },
        "routes": [{ "match": { "path": "/login" }, "policies": ["global", "login"] }],
        "default_policy": "global"
    }));
    let login = |user: &str| Request::get("/login").header("x-user", user);
    assert_eq!(statuses(&envoy, &login("one"), 4), [200, 200, 429, 429]);
    let denied = send(&envoy, login("one"));
    let field = denied.header("ratelimit").expect("a field");
    assert!(field.starts_with("\"global.all\";r=1;t=") && field.contains("\"login.all\";r=0;t="), "{field}");
    let problem: Value = serde_json::from_str(&denied.body).expect("JSON");
    assert_eq!(problem["violated-policies"], json!(["login.all"]), "a denial by one charges neither");
    assert_eq!(statuses(&envoy, &Request::get("/other"), 2), [200, 429], "the same counter as on other routes");
    assert_eq!(statuses(&envoy, &login("two"), 1), [429]);
    assert_eq!(logged(&envoy, 8, json!(["login", "all", "denied"])), 3);
    assert_eq!(logged(&envoy, 8, json!(["login", null, "allowed"])), 2, "undecided by a limit: the last policy named");
    assert_eq!(logged(&envoy, 8, json!(["global", "all", "denied"])), 2);
    assert_eq!(logged(&envoy, 8, json!(["global", null, "allowed"])), 1);
}

#[test]
fn costs_come_from_a_header_and_plans_have_their_own_numbers() {
    let limit = with(
        daily("units", 10, "header:x-user"),
        json!({
            "cost": { "header": "x-cost", "default": 2, "max": 5 },
            "overrides": [{ "when": { "header:x-plan": "pro*" }, "limit": 20 }]
        }),
    );
    let (_redis, envoy) =
        start(json!({ "version": 1, "policies": { "api": { "limits": [limit] } }, "default_policy": "api" }));
    let get = |plan: &str, cost: Option<&str>| {
        let request = Request::get("/").header("x-user", "one").header("x-plan", plan);
        send(&envoy, cost.into_iter().fold(request, |request, cost| request.header("x-cost", cost)))
    };
    let left = |response: Response| {
        let field = response.header("ratelimit").unwrap_or_default();
        let remaining = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next()?.parse::<u64>().ok());
        (response.status, remaining)
    };
    assert_eq!(left(get("free", None)), (200, Some(8)));
    assert_eq!(left(get("free", Some("1"))), (200, Some(7)));
    assert_eq!(left(get("free", Some("99"))), (200, Some(2)), "at most 5");
    assert_eq!(left(get("free", Some("3"))), (429, Some(2)), "refused, and nothing is charged");
    assert_eq!(left(get("pro-2024", Some("3"))), (200, Some(9)), "the same counter, another limit");
    assert_eq!(get("pro", None).header("ratelimit-policy"), Some("\"units\";q=20;w=86400"));
    assert_eq!(left(get("free", Some("1"))), (429, Some(0)), "over the smaller limit: nothing is left");
    for garbage in ["-1", "1.5", "many"] {
        assert_eq!(get("free", Some(garbage)).status, 400, "{garbage}");
    }
}

#[test]
fn exempt_requests_pass_uncounted_and_blocked_clients_not_at_all() {
    let policy = |block: &str| {
        json!({
            "version": 1,
            "block": [block],
            "policies": { "api": { "limits": [daily("all", 1, "constant:all")],
                "exempt": { "headers": { "x-probe": "s3cret" }, "methods": ["TRACE"] } } },
            "default_policy": "api"
        })
    };
    let (_redis, envoy) = start(policy("203.0.113.0/24"));
    let probe = Request::get("/").header("x-probe", "s3cret");
    assert_eq!(statuses(&envoy, &probe, 3), [200; 3]);
    assert_eq!(statuses(&envoy, &Request::get("/").header("x-probe", "guess"), 2), [200, 429]);
    assert_eq!(statuses(&envoy, &probe, 1), [200]);
    assert_eq!(logged(&envoy, 6, json!(["api", null, "exempt"])), 4);
    let metric = "wasmcustom.lockkeeper_decisions.policy.api.limit.all.outcome.exempt.decided_by.policy";
    poll::until("the metric", Duration::from_secs(5), || (envoy.admin().stat(metric) == 4).then_some(()))
        .expect("exempt requests are counted apart");

    let (_redis, envoy) = start(policy("127.0.0.0/8"));
    let blocked = send(&envoy, probe);
    assert_eq!((blocked.status, blocked.header("cache-control")), (403, Some("no-store")));
    assert_eq!(logged(&envoy, 1, json!(["api", null, "blocked"])), 1);
}

#[test]
fn a_file_that_only_measures_lets_everything_pass_and_says_what_it_would_deny() {
    let (_redis, envoy) = start(json!({
        "version": 1, "enforce": false,
        "policies": { "api": { "limits": [daily("all", 1, "constant:all")], "limits_on_store_failure": "deny" } },
        "default_policy": "api"
    }));
    assert_eq!(statuses(&envoy, &Request::get("/"), 3), [200; 3]);
    assert_eq!(send(&envoy, Request::get("/")).header("ratelimit"), None);
    let metric = "wasmcustom.lockkeeper_decisions.policy.api.limit.all.outcome.shadow_denied.decided_by.store";
    poll::until("the metric", Duration::from_secs(5), || (envoy.admin().stat(metric) == 3).then_some(()))
        .expect("shadow denials are counted");
}
