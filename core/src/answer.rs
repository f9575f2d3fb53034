//! The answers clients get: 429, 503, 403 and 400, as problem details (RFC 9457) unless the policy words them itself.

mod claims;

pub use claims::{
    KeyProblem, body_not_held, hold_limited, in_flight, key_problem, key_reused, locked, not_retained, of_kept,
    outcome_unknown, replay_limited, store_unavailable,
};
use serde_json::{Map, Value};

use crate::decision::{Action, Answer, GrpcStatus, Header, LimitVerdict};
use crate::identity::KeyPart;
use crate::policy::{Cost, CustomAnswer, MissingKey, Policy, Rejection};
use crate::rate_limit_fields::whole_seconds;

/// How long a client should stay away when the store failed and the policy denies: the breaker looks again each second.
const UNAVAILABLE_RETRY_AFTER_S: u64 = 1;

/// 429: at least one enforced limit denies. `fields` tell what is left.
pub fn too_many_requests(
    custom: &CustomAnswer,
    policy: &Policy,
    verdicts: &[LimitVerdict],
    fields: Vec<Header>,
) -> Action {
    let limits = verdicts.iter().filter_map(|one| Some((policy.limits.get(one.limit)?, &one.verdict)));
    let denying: Vec<_> = limits.filter(|(limit, verdict)| limit.enforce && !verdict.admitted).collect();
    let retry_us = denying.iter().map(|(_, verdict)| verdict.retry_us).max().unwrap_or(0);
    let names: Vec<&str> = denying.iter().map(|(limit, _)| limit.label.as_str()).collect();
    let kind = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    let mut answer = Answer {
        grpc_status: GrpcStatus::ResourceExhausted,
        grpc_message: format!("rate limit exceeded: {}", names.join(", ")),
        ..problem_answer(kind, "Too many requests", custom.status.unwrap_or(429), &names)
    };
    answer.headers.push(("retry-after".into(), whole_seconds(retry_us).max(1).to_string()));
    answer.headers.extend(fields);
    Action::Answer(worded(answer, custom))
}

/// 503: the store failed and the policy says deny. `limits` names those that could not be checked.
pub fn unavailable(custom: &CustomAnswer, limits: &[&str]) -> Action {
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    let title = "Rate limits cannot be checked at the moment";
    let mut answer = Answer {
        grpc_status: GrpcStatus::Unavailable,
        grpc_message: title.to_ascii_lowercase(),
        ..problem_answer(kind, title, custom.status.unwrap_or(503), limits)
    };
    answer.headers.push(("retry-after".into(), UNAVAILABLE_RETRY_AFTER_S.to_string()));
    Action::Answer(worded(answer, custom))
}

/// The answer in the policy's own words, where it has some.
fn worded(mut answer: Answer, custom: &CustomAnswer) -> Answer {
    if let Some((content_type, body)) = &custom.body {
        answer.body = body.clone().into_bytes();
        let own = answer.headers.iter_mut().find(|(name, _)| name == "content-type");
        own.into_iter().for_each(|(_, value)| value.clone_from(content_type));
    }
    answer.headers.extend(custom.headers.iter().cloned());
    answer.grpc_status = custom.grpc_status.unwrap_or(answer.grpc_status);
    answer
}

/// 403: the client is on a block list.
pub fn blocked() -> Action {
    Action::Answer(Answer {
        grpc_status: GrpcStatus::PermissionDenied,
        grpc_message: "forbidden".into(),
        ..problem_answer("about:blank", "Forbidden", 403, &[])
    })
}

/// The answer to a request that lacks this part of a key; `None` when the key is then left out.
pub fn lacking(part: &KeyPart, rule: &MissingKey) -> Option<Action> {
    match rule {
        MissingKey::Skip => None,
        MissingKey::Reject(rejection) => Some(missing_key(part, *rejection)),
        MissingKey::Fallback(_) => Some(missing_key(part, Rejection::BadRequest)),
    }
}

/// 400 or 401: the request lacks a part of a limit's key.
fn missing_key(part: &KeyPart, rejection: Rejection) -> Action {
    // Only what the client can mend is named; constants and metadata are the operator's.
    let what = match part {
        KeyPart::Header(name) => format!("The request header {name} is required"),
        KeyPart::Cookie(name) => format!("The cookie {name} is required"),
        KeyPart::Query(name) => format!("The query parameter {name} is required"),
        _ => "The request lacks an identity".into(),
    };
    rejected(rejection, &what)
}

/// 400: the path holds a malformed percent code, and no limit applies to what it may mean to the upstream.
pub fn malformed_path() -> Action {
    rejected(Rejection::BadRequest, "The path holds a malformed percent code")
}

fn rejected(rejection: Rejection, what: &str) -> Action {
    Action::Answer(match rejection {
        Rejection::BadRequest => problem_answer("about:blank", what, 400, &[]),
        Rejection::Unauthorized => {
            let mut answer = problem_answer("about:blank", what, 401, &[]);
            // RFC 9110 §15.5.2 wants a challenge with each 401.
            answer.headers.push(("www-authenticate".into(), "Bearer".into()));
            answer.grpc_status = GrpcStatus::Unauthenticated;
            answer
        }
    })
}

/// 400: the header that says a request's cost holds no number.
pub fn illegible_cost(cost: &Cost) -> Action {
    let name = cost.header().unwrap_or_default();
    rejected(Rejection::BadRequest, &format!("The request header {name} must be a whole number"))
}

/// A problem of the client's request, until its gRPC status says something else.
fn problem_answer(kind: &str, title: &str, status: u16, violated: &[&str]) -> Answer {
    let mut members = Map::new();
    if !violated.is_empty() {
        members.insert("violated-policies".into(), violated.iter().copied().collect());
    }
    problem_with(kind, title, status, members)
}

/// The same, with further members.
fn problem_with(kind: &str, title: &str, status: u16, members: Map<String, Value>) -> Answer {
    let mut problem = members;
    problem.insert("type".into(), kind.into());
    problem.insert("title".into(), title.into());
    problem.insert("status".into(), status.into());
    let problem = Value::Object(problem);
    Answer {
        status,
        headers: vec![
            ("content-type".into(), "application/problem+json".into()),
            ("cache-control".into(), "no-store".into()),
        ],
        stored_headers: Vec::new(),
        body: problem.to_string().into_bytes(),
        grpc_status: GrpcStatus::InvalidArgument,
        grpc_message: title.to_owned(),
    }
}
