//! The answers clients get: 429, 503 and 400 as problem details (RFC 9457), and the rate-limit fields
//! (draft-ietf-httpapi-ratelimit-headers 09 to 11).

use crate::decision::{Action, Answer, GrpcStatus, Header, LimitVerdict};
use crate::identity::KeyPart;
use crate::policy::{Cost, HeaderMode, Policy};

/// How long a client should stay away when the store failed and the policy denies: the breaker looks again each second.
const UNAVAILABLE_RETRY_AFTER_S: u64 = 1;

/// Lets the request pass with the fields of the limits that were counted.
pub fn forward(mode: HeaderMode, policy: &Policy, verdicts: &[LimitVerdict]) -> Action {
    Action::Forward { response_headers: rate_limit_headers(mode, policy, verdicts) }
}

/// 429: at least one enforced limit denies.
pub fn too_many_requests(mode: HeaderMode, policy: &Policy, verdicts: &[LimitVerdict]) -> Action {
    let denying: Vec<&LimitVerdict> = enforced(policy, verdicts).filter(|one| !one.verdict.admitted).collect();
    let retry_us = denying.iter().map(|one| one.verdict.retry_us).max().unwrap_or(0);
    let names: Vec<&str> =
        denying.iter().filter_map(|one| policy.limits.get(one.limit)).map(|limit| limit.label.as_str()).collect();
    let mut headers = problem_headers();
    headers.push(("retry-after", whole_seconds(retry_us).max(1).to_string()));
    headers.extend(rate_limit_headers(mode, policy, verdicts));
    Action::Answer(Answer {
        status: 429,
        headers,
        body: problem(
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Too many requests",
            429,
            &names,
        ),
        grpc_status: GrpcStatus::ResourceExhausted,
        grpc_message: format!("rate limit exceeded: {}", names.join(", ")),
    })
}

/// 503: the store failed and the policy says deny. `limits` names those that could not be checked.
pub fn unavailable(limits: &[&str]) -> Action {
    let mut headers = problem_headers();
    headers.push(("retry-after", UNAVAILABLE_RETRY_AFTER_S.to_string()));
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    Action::Answer(Answer {
        status: 503,
        headers,
        body: problem(kind, "Rate limits cannot be checked at the moment", 503, limits),
        grpc_status: GrpcStatus::Unavailable,
        grpc_message: "rate limits cannot be checked at the moment".into(),
    })
}

/// 403: the client is on a block list.
pub fn blocked() -> Action {
    Action::Answer(Answer {
        status: 403,
        headers: problem_headers(),
        body: problem("about:blank", "Forbidden", 403, &[]),
        grpc_status: GrpcStatus::PermissionDenied,
        grpc_message: "forbidden".into(),
    })
}

/// 400: the request lacks a part of a limit's key.
pub fn missing_key(part: &KeyPart) -> Action {
    // Constants and metadata are the operator's; only what the client can mend is named.
    let what = match part {
        KeyPart::Header(name) => format!("The request header {name} is required"),
        _ => "The request lacks an identity".into(),
    };
    bad_request(what)
}

fn bad_request(what: String) -> Action {
    Action::Answer(Answer {
        status: 400,
        headers: problem_headers(),
        body: problem("about:blank", &what, 400, &[]),
        grpc_status: GrpcStatus::InvalidArgument,
        grpc_message: what,
    })
}

/// 400: the header that says a request's cost holds no number.
pub fn illegible_cost(cost: &Cost) -> Action {
    let name = cost.header().unwrap_or_default();
    bad_request(format!("The request header {name} must be a whole number"))
}

fn problem_headers() -> Vec<Header> {
    vec![("content-type", "application/problem+json".into()), ("cache-control", "no-store".into())]
}

fn problem(kind: &str, title: &str, status: u16, violated: &[&str]) -> String {
    let mut problem = serde_json::json!({ "type": kind, "title": title, "status": status });
    if let (Some(object), false) = (problem.as_object_mut(), violated.is_empty()) {
        object.insert("violated-policies".into(), violated.iter().copied().collect());
    }
    problem.to_string()
}

fn rate_limit_headers(mode: HeaderMode, policy: &Policy, verdicts: &[LimitVerdict]) -> Vec<Header> {
    if mode == HeaderMode::Off || enforced(policy, verdicts).next().is_none() {
        return Vec::new();
    }
    let limits = || enforced(policy, verdicts).filter_map(|one| Some((policy.limits.get(one.limit)?, one)));
    let state = limits().map(|(limit, one)| {
        format!("\"{}\";r={};t={}", limit.label, one.verdict.remaining, whole_seconds(one.verdict.reset_us))
    });
    let quota = limits().map(|(limit, one)| format!("\"{}\"{}", limit.label, limit.grant(one.override_index).quota));
    vec![("ratelimit", joined(state)), ("ratelimit-policy", joined(quota))]
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// Limits that only measure are not shown to clients.
fn enforced<'a>(policy: &'a Policy, verdicts: &'a [LimitVerdict]) -> impl Iterator<Item = &'a LimitVerdict> {
    verdicts.iter().filter(|one| policy.limits.get(one.limit).is_some_and(|limit| limit.enforce))
}

/// Rounded up, so that waiting this long is long enough (RFC 9110 §10.2.3 knows no fractions).
fn whole_seconds(us: u64) -> u64 {
    us.div_ceil(1_000_000)
}
