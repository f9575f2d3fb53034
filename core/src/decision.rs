//! What was decided for a request: let it pass or answer it, and who decided why.

use std::borrow::Cow;

use crate::algorithm::Verdict;
use crate::policy::LimitId;

/// The end of a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What the host does.
    pub action: Action,
    /// Seconds until `x-ratelimit-reset`, where that field is wanted: see [`Decision::complete`].
    pub reset_in_s: Option<u64>,
    /// What metrics, access log and headers say about it.
    pub report: Report,
}

impl Decision {
    /// A response that is complete but for what [`Decision::complete`] adds.
    pub(crate) fn new(action: Action, report: Report) -> Decision {
        Decision { action, reset_in_s: None, report }
    }
}

/// What the host does with the request.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Let it pass, and add these fields to the response, beside the upstream's own.
    Forward {
        /// Name and value; names are lower case.
        response_headers: Vec<Header>,
    },
    /// Do not let it pass: answer.
    Answer(Answer),
}

/// A field name in lower case and its value.
pub type Header = (Cow<'static, str>, String);

/// An answer for either kind of client.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The HTTP fields, content type included.
    pub headers: Vec<Header>,
    /// The HTTP content.
    pub body: String,
    /// What a gRPC client gets instead: status code and message.
    pub grpc_status: GrpcStatus,
    /// The message of the gRPC status.
    pub grpc_message: String,
}

/// The gRPC status codes we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcStatus {
    /// 3: the request lacks a part of a key.
    InvalidArgument = 3,
    /// 7: the client is blocked.
    PermissionDenied = 7,
    /// 8: a limit denies.
    ResourceExhausted = 8,
    /// 9: the key was used for another request.
    FailedPrecondition = 9,
    /// 10: another request holds what this one needs.
    Aborted = 10,
    /// 14: the store failed and the policy says deny.
    Unavailable = 14,
    /// 16: the request lacks a part of a key, and the policy takes that for a missing credential.
    Unauthenticated = 16,
}

/// Who decided, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Index of the policy in the file: that of [`Report::limit`], else the last of those that apply, if any.
    pub policy: Option<usize>,
    /// Index in that policy of the limit that decided: the denying one with the longest wait, or the one whose key was missing.
    pub limit: Option<usize>,
    /// What came out.
    pub outcome: Outcome,
    /// Who decided.
    pub decided_by: DecidedBy,
    /// Limits with `enforce: false` that would have denied.
    pub shadow_denials: Vec<LimitId>,
}

impl Report {
    /// The request lacks what a limit needs to count it.
    pub fn rejected(limit: LimitId) -> Report {
        Report { limit: Some(limit.limit), ..Report::uncounted(Some(limit.policy), Outcome::Rejected) }
    }

    /// Decided without counting.
    pub fn uncounted(policy: Option<usize>, outcome: Outcome) -> Report {
        Report { policy, limit: None, outcome, decided_by: DecidedBy::Policy, shadow_denials: Vec::new() }
    }
}

/// What came out of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request passes.
    Allowed,
    /// The client is on a block list: 403.
    Blocked,
    /// A limit denied it: 429.
    Denied,
    /// The request passes uncounted: an exemption, or a preflight.
    Exempt,
    /// The client is on a block list, but the file only measures: the request passes.
    ShadowBlocked,
    /// The store failed and the policy says deny: 503.
    Unavailable,
    /// The request lacks a part of a key, or its path is malformed: 400, or 401.
    Rejected,
}

impl Outcome {
    /// All of them, for hosts that define metrics beforehand.
    pub const ALL: [Outcome; 7] = [
        Outcome::Allowed,
        Outcome::Blocked,
        Outcome::Denied,
        Outcome::Exempt,
        Outcome::ShadowBlocked,
        Outcome::Unavailable,
        Outcome::Rejected,
    ];

    /// A word for metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Blocked => "blocked",
            Outcome::Denied => "denied",
            Outcome::Exempt => "exempt",
            Outcome::ShadowBlocked => "shadow_blocked",
            Outcome::Unavailable => "unavailable",
            Outcome::Rejected => "rejected",
        }
    }
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store, with global counters.
    Store,
    /// This instance's own limiter: the store failed.
    Local,
    /// The policy's failure mode: the store failed.
    FailureMode,
    /// The policy itself, without counting.
    Policy,
}

impl DecidedBy {
    /// All of them, for hosts that define metrics beforehand.
    pub const ALL: [DecidedBy; 4] = [DecidedBy::Store, DecidedBy::Local, DecidedBy::FailureMode, DecidedBy::Policy];

    /// A word for metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            DecidedBy::Store => "store",
            DecidedBy::Local => "local",
            DecidedBy::FailureMode => "failure_mode",
            DecidedBy::Policy => "policy",
        }
    }

    /// Whether the decision was made without the store though it was wanted.
    pub fn is_degraded(self) -> bool {
        matches!(self, DecidedBy::Local | DecidedBy::FailureMode)
    }
}

/// What one limit said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitVerdict {
    /// Index of the limit in the policy that applies.
    pub limit: usize,
    /// Index of the override that applies, if any.
    pub override_index: Option<usize>,
    /// Whether it admits, what remains and when more comes.
    pub verdict: Verdict,
}
