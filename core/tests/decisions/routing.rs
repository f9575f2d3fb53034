//! Which policy a request gets, and what becomes of one that lacks what its policy counts by.

use lockkeeper_core::decision::{DecidedBy, GrpcStatus, Outcome};
use lockkeeper_core::engine::Engine;
use lockkeeper_core::identity::Attribute;
use lockkeeper_core::selection::{GatewayRoute, Selection};

use crate::support::*;

/// An engine with a policy for each name, the routes given, and more members of the file.
fn routed(policies: &[&str], routes: &str, more: &str) -> Engine {
    let policies: Vec<String> =
        policies.iter().map(|name| format!(r#""{name}": {{"limits": [{}]}}"#, limit(name))).collect();
    engine(&format!(r#"{{"version": 1, "policies": {{{}}}, "routes": [{routes}]{more}}}"#, policies.join(", ")))
}

fn policy_name<'e>(engine: &'e Engine, selection: &Selection) -> Option<&'e str> {
    selection.policy().map(|index| engine.policies().policies[index].name.as_str())
}

#[test]
fn a_route_with_headers_is_chosen_by_their_values_and_only_its_requests_are_looked_at() {
    let routes = r#"{"match": {"path": "/a"}, "policy": "a"},
        {"match": {"path": "/a", "headers": {"x-plan": "pro"}}, "policy": "pro"},
        {"match": {"path": "/a", "headers": {"x-plan": "pro", "x-beta": true}}, "policy": "beta"}"#;
    let engine = routed(&["a", "pro", "beta", "default"], routes, r#", "default_policy": "default""#);
    let elsewhere = engine.select("GET", "", "/b");
    assert_eq!(engine.route_headers(&elsewhere), []);
    let select = |plan: Option<&str>, beta: Option<&str>| {
        let selection = engine.select("GET", "", "/a");
        let headers = engine.route_headers(&selection);
        assert_eq!(headers, ["x-plan", "x-beta"].map(|name| Attribute::Header(name.into())));
        engine.select_by_headers(selection, &[plan, beta].map(|value| value.map(|text| text.as_bytes().to_vec())))
    };
    let rows = [
        (None, None, "a"),
        (Some(""), Some("1"), "a"),
        (Some("Pro"), None, "a"),
        (Some("pro"), None, "pro"),
        (Some("pro"), Some(""), "pro"),
        (Some("pro,pro"), None, "a"),
        (Some("pro"), Some("0"), "beta"),
        (None, Some("1"), "a"),
    ];
    for (plan, beta, wanted) in rows {
        assert_eq!(policy_name(&engine, &select(plan, beta)), Some(wanted), "{plan:?} {beta:?}");
    }
    // Without the values, headers count as missing.
    assert_eq!(policy_name(&engine, &engine.select("GET", "", "/a")), Some("a"));
}

#[test]
fn the_gateways_route_may_choose_by_its_name_or_name_the_policy() {
    let routes = r#"{"match": {"route_name": "checkout"}, "policy": "a"}, {"match": {"path": "/x"}, "policy": "b"}"#;
    let engine = routed(
        &["a", "b", "c"],
        routes,
        r#", "preflights": "count", "policy_from_route_metadata": true, "default_policy": "c""#,
    );
    let needs = engine.line_needs();
    assert!(needs.route_name && needs.route_policy && needs.target && !needs.authority && !needs.method, "{needs:?}");
    let rows = [
        (None, None, "b", false),
        (Some("checkout"), None, "a", false),
        (Some("other"), None, "b", false),
        (Some("checkout"), Some("b"), "b", false),
        (None, Some("a"), "a", false),
        (Some("checkout"), Some("nobody"), "c", true),
        (None, Some(""), "c", true),
    ];
    for (name, policy, wanted, unknown) in rows {
        let selection = engine.select_routed("GET", "", "/x", GatewayRoute { name, policy });
        assert_eq!(policy_name(&engine, &selection), Some(wanted), "{name:?} {policy:?}");
        assert_eq!(selection.names_unknown_policy(), unknown, "{name:?} {policy:?}");
    }
}

#[test]
fn a_line_that_no_policy_needs_is_not_asked_for() {
    let needs = routed(&["a"], "", r#", "preflights": "count", "default_policy": "a""#).line_needs();
    assert!(!(needs.method || needs.authority || needs.target || needs.route_name || needs.route_policy), "{needs:?}");
    let by_query = limit("q").replace(r#""key""#, r#""on_missing_key": {"fallback": "query:k"}, "key""#);
    assert!(engine_of(&by_query, "").line_needs().target);
}

#[test]
fn key_04_every_spelling_of_a_path_is_limited_and_a_malformed_one_never_passes_free() {
    let route =
        r#"{"match": {"host": "api.example.com", "path": "/v1/login", "methods": ["POST"]}, "policy": "login"}"#;
    let engine = routed(&["login"], route, "");
    let limited = [
        ("api.example.com", "/v1/login"),
        ("api.example.com", "//v1/login"),
        ("api.example.com", "/v1//login"),
        ("api.example.com", "/v1/./login"),
        ("api.example.com", "/x/../v1/login"),
        ("api.example.com", "/v1/%6Cogin"),
        ("api.example.com", "/v1/login/"),
        ("api.example.com", "/v1/login?x=1"),
        ("API.Example.COM", "/v1/login"),
        ("api.example.com:443", "/v1/login"),
        ("api.example.com.", "/v1/login"),
        ("api.example.com", "http://api.example.com/v1/login"),
    ];
    for (host, target) in limited {
        assert_eq!(policy_name(&engine, &engine.select("POST", host, target)), Some("login"), "{host} {target}");
        assert_eq!(policy_name(&engine, &engine.select("post", host, target)), Some("login"), "{host} {target}");
    }
    for target in ["/v1%2Flogin", "/v1/login;a=b", "/v1/logi", "/V1/login"] {
        let selection = engine.select("POST", "api.example.com", target);
        assert_eq!(policy_name(&engine, &selection), None, "{target}");
        assert_eq!(decision(engine.begin(&selection, &[])).report.outcome, Outcome::Allowed, "{target}");
    }
    for target in ["/v1/%login", "/v1/%6", "/%u006c", "/%zz/v1"] {
        let decision = decision(engine.begin(&engine.select("POST", "api.example.com", target), &[]));
        assert_eq!((decision.report.outcome, decision.report.policy), (Outcome::Rejected, None), "{target}");
        assert_eq!(answer(&decision).status, 400, "{target}");
    }
    let with_default = routed(&["login", "rest"], route, r#", "default_policy": "rest""#);
    let selection = with_default.select("POST", "api.example.com", "/v1/%login");
    assert_eq!(policy_name(&with_default, &selection), Some("rest"));
    call(with_default.begin(&selection, &[]));
}

#[test]
fn a_missing_key_is_unauthorized_where_the_policy_says_so() {
    let engine = engine_of(
        &limit("l").replace(r#"["constant:all"]"#, r#"["metadata:jwt_authn.sub"], "on_missing_key": {"reject": 401}"#),
        "",
    );
    let decision = decision(begin(&engine, &[None]));
    assert_eq!((decision.report.outcome, decision.report.decided_by), (Outcome::Rejected, DecidedBy::Policy));
    let answer = answer(&decision);
    assert_eq!((answer.status, answer.grpc_status), (401, GrpcStatus::Unauthenticated));
    assert_eq!(header(&answer.headers, "www-authenticate"), Some("Bearer"));
    assert_eq!(header(&answer.headers, "cache-control"), Some("no-store"));
}

#[test]
fn what_the_client_left_out_is_named() {
    for (key, title) in [("cookie:sid", "The cookie sid is required"), ("query:k", "The query parameter k is required")]
    {
        let engine = engine_of(&limit("l").replace("constant:all", key), "");
        let values: Vec<_> = engine.attributes(&engine.select("GET", "", "/")).iter().map(|_| None).collect();
        let decision = decision(begin(&engine, &values));
        assert_eq!(answer(&decision).grpc_message, title);
    }
}

#[test]
fn a_fallback_counts_in_the_place_of_the_missing_part_and_is_required_itself() {
    let key = r#"["header:x-key"], "on_missing_key": {"fallback": "client_address"}"#;
    let engine = engine_of(&limit("l").replace(r#"["constant:all"]"#, key), "");
    let store_key = |header: Option<&[u8]>, address: Option<&[u8]>| {
        call(begin(&engine, &[header, address])).counted()[0].store_key.clone()
    };
    let (one, two) = (Some(&b"192.0.2.7"[..]), Some(&b"192.0.2.8"[..]));
    assert_eq!(store_key(None, one), store_key(Some(b""), one), "empty is absent");
    assert_ne!(store_key(None, one), store_key(None, two));
    assert_ne!(store_key(Some(b"192.0.2.7/32"), one), store_key(None, one), "a client cannot name another's address");
    assert_eq!(store_key(Some(b"v"), one), store_key(Some(b"v"), two));
    let decision = decision(begin(&engine, &[None, None]));
    assert_eq!((decision.report.outcome, answer(&decision).status), (Outcome::Rejected, 400));
}
