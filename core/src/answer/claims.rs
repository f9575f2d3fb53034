//! The answers about idempotency keys and locks. Each says in its members `code` and `retryable` what a client is to do:
//! titles are for people.

use serde_json::{Map, Value};

use super::{UNAVAILABLE_RETRY_AFTER_S, problem_with};
use crate::claim::Kept;
use crate::decision::{Action, Answer, GrpcStatus, Outcome};
use crate::idempotency::key::KeyError;
use crate::idempotency::replay::{self, Client, Replay};
use crate::idempotency::stored::{self, Sealed, Stored};
use crate::policy::{Idempotency, Limit};
use crate::rate_limit_fields::whole_seconds;

/// What is wrong with a request's key, before any store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyProblem {
    /// There is none, and the policy requires it.
    Missing,
    /// It is none.
    Invalid(KeyError),
    /// Nobody knows whose it is: a part of the scope is missing.
    NoScope,
    /// The body is too large to be compared with that of a retry.
    BodyTooLarge,
}

/// 400 or 413.
pub fn key_problem(rules: &Idempotency, problem: &KeyProblem) -> Action {
    let header = &rules.header;
    let (slug, status, title) = match problem {
        KeyProblem::Missing => ("idempotency-key-missing", 400, format!("The request header {header} is required")),
        KeyProblem::Invalid(error) => ("idempotency-key-invalid", 400, format!("The request header {header} {error}")),
        KeyProblem::NoScope => {
            ("idempotency-scope-missing", 400, format!("The request lacks the identity that its {header} belongs to"))
        }
        KeyProblem::BodyTooLarge => {
            let bytes_max = rules.fingerprint.max_body_bytes;
            let title = format!("With the request header {header} a body may have at most {bytes_max} bytes");
            ("idempotency-body-too-large", 413, title)
        }
    };
    Problem::of(&rules.problem_base, slug, status, &title).into()
}

/// 503: the body did not come in time, or this instance holds too many.
pub fn body_not_held(rules: &Idempotency) -> Action {
    let title = "The body could not be read in time to tell whether this request already ran";
    Problem::of(&rules.problem_base, "idempotency-body-not-read", 503, title)
        .retryable_after(UNAVAILABLE_RETRY_AFTER_S)
        .grpc(GrpcStatus::Unavailable)
        .into()
}

/// What a client gets of a request that is done: what was kept of its response, or that nothing was. `None` when the
/// record holds what we did not write. `accept_encoding` is what the client reads.
pub fn of_kept(rules: &Idempotency, kept: &Kept, accept_encoding: Option<&[u8]>) -> Option<(Outcome, Action)> {
    let (status, headers) = match kept {
        Kept::Sealed { status, headers, .. } | Kept::Done { status, headers, .. } => (*status, headers),
    };
    if !(200..=599).contains(&status) {
        return None;
    }
    let sealed = Sealed { status, headers: stored::decode_headers(headers)? };
    let replayed = match kept {
        Kept::Sealed { .. } => None,
        Kept::Done { body, encoding, .. } => {
            let stored = Stored::from_kept(status, sealed.headers.clone(), body, *encoding)?;
            let client = Client { is_head: false, accept_encoding };
            replay::replay(stored, &client, &rules.replayed_header)
        }
    };
    Some(match replayed {
        Some(replay) => (Outcome::Replayed, Action::Answer(as_answer(replay))),
        None => (Outcome::NotRetained, not_retained(rules, &sealed)),
    })
}

/// A replay is the upstream's own answer, so it has no gRPC status of ours.
fn as_answer(replay: Replay) -> Answer {
    Answer {
        status: replay.status,
        headers: replay.headers,
        stored_headers: replay.stored_headers,
        body: replay.body,
        grpc_status: GrpcStatus::Aborted,
        grpc_message: String::new(),
    }
}

/// 409 unless the policy says 423: another request with the key runs. `remaining_us` is what is left of its lease.
pub fn in_flight(rules: &Idempotency, remaining_us: u64) -> Action {
    let title = "A request with this idempotency key is in progress";
    Problem::of(&rules.problem_base, "idempotency-in-progress", rules.in_flight_status, title)
        .retryable_after(holder_retry_after_s(remaining_us))
        .grpc(GrpcStatus::Aborted)
        .into()
}

/// 409: nobody knows what became of the request that had the key, and it must not run again. Only an operator or the
/// end of the record changes that, which is what gRPC's 9 says.
pub fn outcome_unknown(rules: &Idempotency) -> Action {
    let title = "The outcome of the request with this idempotency key is unknown";
    Problem::of(&rules.problem_base, "idempotency-outcome-unknown", 409, title)
        .grpc(GrpcStatus::FailedPrecondition)
        .into()
}

/// 409: the request with the key is done, and its response was not kept.
pub fn not_retained(rules: &Idempotency, sealed: &Sealed) -> Action {
    let title = "The request with this idempotency key is done, and its response was not retained";
    let problem = Problem::of(&rules.problem_base, "idempotency-response-not-retained", 409, title)
        .member("original-status", sealed.status)
        .grpc(GrpcStatus::FailedPrecondition);
    match sealed.header("location") {
        Some(location) => problem.member("location", location).into(),
        None => problem.into(),
    }
}

/// 422 unless the policy says otherwise: the key was used for another request. It never helps to try again.
pub fn key_reused(rules: &Idempotency) -> Action {
    let title = "This idempotency key was used for a different request";
    Problem::of(&rules.problem_base, "idempotency-key-reused", rules.mismatch_status, title)
        .grpc(GrpcStatus::FailedPrecondition)
        .into()
}

/// 429: too many replays, conflicts and mismatches. `retry_us` is when there is room again.
pub fn replay_limited(rules: &Idempotency, retry_us: u64) -> Action {
    let title = "Too many retries with known idempotency keys";
    quota_exceeded(rules.replay_limit.as_ref(), "idempotency-replays-limited", title, retry_us)
}

/// 429: too many requests whose bodies must be read before they pass. `retry_us` is when there is room again.
pub fn hold_limited(rules: &Idempotency, retry_us: u64) -> Action {
    let title = "Too many requests with idempotency keys and bodies";
    quota_exceeded(rules.hold_limit.as_ref(), "idempotency-bodies-limited", title, retry_us)
}

fn quota_exceeded(limit: Option<&Limit>, slug: &str, title: &str, retry_us: u64) -> Action {
    let limit = limit.iter().map(|limit| limit.label.as_str()).collect::<Vec<_>>();
    Problem {
        kind: "https://iana.org/assignments/http-problem-types#quota-exceeded".into(),
        ..Problem::of("", slug, 429, title)
    }
    .member("violated-policies", limit)
    .retryable_after(whole_seconds(retry_us).max(1))
    .grpc(GrpcStatus::ResourceExhausted)
    .into()
}

/// 503: the store cannot take a claim, and no request of the policy passes without one.
pub fn store_unavailable(problem_base: &str) -> Action {
    let title = "Nobody can say at the moment whether this request already runs";
    Problem::of(problem_base, "store-unavailable", 503, title)
        .retryable_after(UNAVAILABLE_RETRY_AFTER_S)
        .grpc(GrpcStatus::Unavailable)
        .into()
}

/// 423: another request holds the lock. `remaining_us` is what is left of its lease.
pub fn locked(problem_base: &str, remaining_us: u64) -> Action {
    Problem::of(problem_base, "resource-locked", 423, "Another request holds the lock on this resource")
        .retryable_after(holder_retry_after_s(remaining_us))
        .grpc(GrpcStatus::Aborted)
        .into()
}

/// A holder that is alive renews its lease, and one that is done ends it early: what is left of it says little.
fn holder_retry_after_s(remaining_us: u64) -> u64 {
    whole_seconds(remaining_us).clamp(1, 5)
}

/// An answer in the making: the request's own fault, and of no use to repeat, unless it says otherwise.
struct Problem {
    kind: String,
    title: String,
    status: u16,
    members: Map<String, Value>,
    retry_after_s: Option<u64>,
    grpc_status: GrpcStatus,
}

impl Problem {
    fn of(base: &str, slug: &str, status: u16, title: &str) -> Problem {
        let problem = Problem {
            kind: format!("{base}{slug}"),
            title: title.to_owned(),
            status,
            members: Map::new(),
            retry_after_s: None,
            grpc_status: GrpcStatus::InvalidArgument,
        };
        problem.member("code", slug).member("retryable", false)
    }

    fn member(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.members.insert(name.into(), value.into());
        self
    }

    fn retryable_after(self, seconds: u64) -> Problem {
        Problem { retry_after_s: Some(seconds), ..self.member("retryable", true) }
    }

    fn grpc(self, grpc_status: GrpcStatus) -> Problem {
        Problem { grpc_status, ..self }
    }
}

impl From<Problem> for Action {
    fn from(problem: Problem) -> Action {
        let Problem { kind, title, status, members, retry_after_s, grpc_status } = problem;
        let mut answer = Answer { grpc_status, ..problem_with(&kind, &title, status, members) };
        answer.headers.extend(retry_after_s.map(|seconds| ("retry-after".into(), seconds.to_string())));
        Action::Answer(answer)
    }
}

#[cfg(test)]
mod tests;
