//! What was decided for a request: let it pass or answer it, and who decided why.

use std::borrow::Cow;

use crate::algorithm::Verdict;
use crate::lease::{Lease, LeaseCall};
use crate::policy::LimitId;

/// The end of a decision.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What the host does.
    pub action: Action,
    /// What concerns claims, if anything does.
    pub claimed: Option<Box<Claimed>>,
    /// Seconds until `x-ratelimit-reset`, where that field is wanted: see [`Decision::complete`].
    pub reset_in_s: Option<u64>,
    /// What metrics, access log and headers say about it.
    pub report: Report,
}

impl Decision {
    /// A response that is complete but for what [`Decision::complete`] adds.
    pub(crate) fn new(action: Action, report: Report) -> Decision {
        Decision { action, claimed: None, reset_in_s: None, report }
    }
}

/// What a decision means for claims.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// How the request changes on its way to the upstream.
    pub upstream: UpstreamRequest,
    /// What the request holds until it ends, if anything.
    pub lease: Option<Lease>,
    /// What the store is to be told at once, whatever the action: of claims that the request may hold and does not want.
    pub releases: Vec<LeaseCall>,
}

/// How a forwarded request differs from what the client sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamRequest {
    /// Fields that go, whoever sent them.
    pub removed: Vec<String>,
    /// Fields that are set.
    pub set: Vec<Header>,
    /// Whether the gateway's own retries are off: the request must not run twice.
    pub once: bool,
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
    /// Further fields as the upstream once sent them: a replay's.
    pub stored_headers: Vec<(String, Vec<u8>)>,
    /// The HTTP content.
    pub body: Vec<u8>,
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
    /// The stored response of an earlier request with the same key.
    Replayed,
    /// Another request with the same key runs: 409.
    InFlight,
    /// The key was used for another request: 422.
    Mismatch,
    /// Nobody knows what became of the earlier request with this key: 409.
    OutcomeUnknown,
    /// The earlier request is done, but its response was not kept: 409.
    NotRetained,
    /// Too many replays and conflicts: 429.
    ReplayLimited,
    /// Too many requests of one client's whose bodies are held: 429.
    HoldLimited,
    /// Another request holds the lock: 423.
    Locked,
    /// The idempotency key is missing or malformed, or the body cannot be fingerprinted: 400 or 413.
    KeyRejected,
}

impl Outcome {
    /// All of them, for hosts that define metrics beforehand.
    pub const ALL: [Outcome; 16] = [
        Outcome::Allowed,
        Outcome::Blocked,
        Outcome::Denied,
        Outcome::Exempt,
        Outcome::ShadowBlocked,
        Outcome::Unavailable,
        Outcome::Rejected,
        Outcome::Replayed,
        Outcome::InFlight,
        Outcome::Mismatch,
        Outcome::OutcomeUnknown,
        Outcome::NotRetained,
        Outcome::ReplayLimited,
        Outcome::HoldLimited,
        Outcome::Locked,
        Outcome::KeyRejected,
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
            Outcome::Replayed => "replayed",
            Outcome::InFlight => "in_flight",
            Outcome::Mismatch => "mismatch",
            Outcome::OutcomeUnknown => "outcome_unknown",
            Outcome::NotRetained => "not_retained",
            Outcome::ReplayLimited => "replay_limited",
            Outcome::HoldLimited => "hold_limited",
            Outcome::Locked => "locked",
            Outcome::KeyRejected => "key_rejected",
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
    /// The policy itself, without the store.
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

impl Answer {
    /// The content as text, with replacement characters where it is not UTF-8.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}
