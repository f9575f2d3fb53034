//! Several policies for one route: one decision, all or nothing, and who is reported.

use lockkeeper_core::decision::{Decision, Outcome};
use lockkeeper_core::engine::Engine;
use lockkeeper_core::policy::{FailureMode, LimitId};
use lockkeeper_core::selection::Selection;
use lockkeeper_core::store::StoreFailure;

use crate::support::*;

const ADMITS: (bool, u64, u64, u64) = (true, 5, 1_000_000, 0);

fn denies(seconds: u64) -> (bool, u64, u64, u64) {
    (false, 0, seconds * 1_000_000, seconds * 1_000_000)
}

/// Policies `global`, `login` and `watch`, with these further members; `/login` and `/all` have several of them.
fn three(global: &str, login: &str) -> Engine {
    let limits = |limits: &[String], more: &str| format!(r#"{{"limits": [{}]{more}}}"#, limits.join(","));
    engine(&format!(
        r#"{{"version": 1, "policies": {{"global": {}, "login": {}, "watch": {}}}, "default_policy": "global", "routes": [
            {{"match": {{"path": "/login"}}, "policies": ["global", "login"]}},
            {{"match": {{"path": "/all"}}, "policies": ["watch", "login", "global"]}},
            {{"match": {{"path": "/again"}}, "policies": ["global", "login"]}},
            {{"match": {{"path": "/one"}}, "policies": ["login"]}}]}}"#,
        limits(&[limit("all")], global),
        limits(&[limit("per-ip").replace("constant:all", "header:x"), limit("all")], login),
        limits(&[shadow("seen")], "")
    ))
}

fn login(engine: &Engine, verdicts: &[(bool, u64, u64, u64)]) -> Decision {
    let selection = engine.select("POST", "a", "/login");
    decision(call(engine.begin(&selection, &[Some(b"v".to_vec())])).resume(Ok(reply(verdicts))))
}

fn keys(engine: &Engine, selection: &Selection) -> Vec<String> {
    let values = vec![Some(b"v".to_vec()); engine.attributes(selection).len()];
    let call = call(engine.begin(selection, &values));
    call.counted().iter().map(|counted| counted.store_key.clone()).collect()
}

#[test]
fn all_limits_go_into_one_call_and_count_where_each_policy_counts() {
    let engine = three("", "");
    let keys = |path: &str| keys(&engine, &engine.select("POST", "a", path));
    let together = keys("/login");
    assert_eq!(together.len(), 3);
    assert_eq!(together, [keys("/"), keys("/one")].concat(), "the same counters as the policies alone");
    assert_eq!(keys("/again"), together);
}

#[test]
fn a_denial_is_reported_with_its_own_policy_and_an_admission_with_the_last() {
    let engine = three("", "");
    let rows = [
        ([ADMITS, ADMITS, ADMITS], 1, None, Outcome::Allowed),
        ([denies(1), ADMITS, ADMITS], 0, Some(0), Outcome::Denied),
        ([denies(1), denies(2), ADMITS], 1, Some(0), Outcome::Denied),
        ([denies(2), ADMITS, denies(1)], 0, Some(0), Outcome::Denied),
        ([denies(2), ADMITS, denies(2)], 0, Some(0), Outcome::Denied),
        ([ADMITS, ADMITS, denies(1)], 1, Some(1), Outcome::Denied),
    ];
    for (verdicts, policy, limit, outcome) in rows {
        let report = login(&engine, &verdicts).report;
        assert_eq!((report.policy, report.limit, report.outcome), (Some(policy), limit, outcome), "{verdicts:?}");
    }
}

#[test]
fn limits_of_the_same_name_are_told_apart_by_their_policy() {
    let decision = login(&three("", ""), &[denies(1), ADMITS, denies(1)]);
    let answer = answer(&decision);
    let expected = r#""global.all";r=0;t=1, "per-ip";r=5;t=1, "login.all";r=0;t=1"#;
    assert_eq!(header(&answer.headers, "ratelimit"), Some(expected));
    assert!(answer.text().contains(r#"["global.all","login.all"]"#), "{}", answer.text());
}

#[test]
fn shadow_denials_keep_their_policy() {
    let engine = three("", "");
    let selection = engine.select("POST", "a", "/all");
    let call = call(engine.begin(&selection, &[Some(b"v".to_vec())]));
    let decision = decision(call.resume(Ok(reply(&[denies(9), ADMITS, ADMITS, ADMITS]))));
    assert_eq!(decision.report.outcome, Outcome::Allowed);
    assert_eq!(decision.report.shadow_denials, [LimitId { policy: 2, limit: 0 }]);
    assert_eq!(decision.report.policy, Some(0));
}

#[test]
fn the_strictest_failure_mode_holds_for_all() {
    let rows = [
        ("allow", "allow", FailureMode::Allow),
        ("allow", "local", FailureMode::Local),
        ("deny", "local", FailureMode::Deny),
        ("allow", "deny", FailureMode::Deny),
    ];
    for (first, second, expected) in rows {
        let mode = |mode: &str| format!(r#", "limits_on_store_failure": "{mode}""#);
        let engine = three(&mode(first), &mode(second));
        let selection = engine.select("POST", "a", "/login");
        let applied = engine.policy(&selection).expect("a policy");
        assert_eq!(applied.limits_on_store_failure, expected, "{first} and {second}");
    }
    let deny = three(r#", "limits_on_store_failure": "deny""#, "");
    let selection = deny.select("POST", "a", "/login");
    let call = call(deny.begin(&selection, &[Some(b"v".to_vec())]));
    let unavailable = decision(call.resume(Err(StoreFailure::Unknown)));
    assert_eq!((unavailable.report.outcome, unavailable.report.policy), (Outcome::Unavailable, Some(1)));
    assert!(answer(&unavailable).text().contains(r#"["global.all","per-ip","login.all"]"#));
}

#[test]
fn an_exemption_of_one_policy_leaves_the_limits_of_the_others() {
    let engine = three(r#", "exempt": {"methods": ["POST"]}"#, "");
    let selection = engine.select("POST", "a", "/login");
    let keys = keys(&engine, &selection);
    assert!(keys.len() == 2 && keys.iter().all(|key| key.starts_with("default:login.")), "{keys:?}");
    let both = three(r#", "exempt": {"methods": ["POST"]}"#, r#", "exempt": {"methods": ["POST"]}"#);
    let exempt = decision(both.begin(&both.select("POST", "a", "/login"), &[None]));
    assert_eq!((exempt.report.outcome, exempt.report.policy), (Outcome::Exempt, Some(1)));
}

#[test]
fn a_block_of_one_policy_blocks_and_is_reported_with_it() {
    let engine = three(r#", "block": ["203.0.113.0/24"]"#, "");
    let selection = engine.select("POST", "a", "/login");
    let values = vec![Some(b"203.0.113.1".to_vec()), Some(b"v".to_vec())];
    assert_eq!(engine.attributes(&selection).len(), values.len());
    let blocked = decision(engine.begin(&selection, &values));
    assert_eq!((blocked.report.outcome, blocked.report.policy), (Outcome::Blocked, Some(0)));
}

#[test]
fn a_missing_part_is_reported_with_its_policy() {
    let engine = three("", "");
    let rejected = decision(engine.begin(&engine.select("POST", "a", "/login"), &[None]));
    let report = rejected.report;
    assert_eq!((report.outcome, report.policy, report.limit), (Outcome::Rejected, Some(1), Some(0)));
}

#[test]
fn a_parameter_of_a_route_with_several_policies_is_known_to_each() {
    let json = r#"{"version": 1, "policies": {
        "a": {"limits": [{"name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["path:id"]}]},
        "b": {"limits": [{"name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["method"]}]}},
        "routes": [{"match": {"path": "/orders/{id}"}, "policies": ["b", "a"]}], "default_policy": "b"}"#;
    let engine = engine(json);
    let orders = |id: &str| keys(&engine, &engine.select("GET", "", &format!("/orders/{id}")));
    assert_eq!(orders("1")[0], orders("2")[0]);
    assert_ne!(orders("1")[1], orders("2")[1]);
    assert_eq!(engine.policies().warnings(), [], "both policies are used");
}
