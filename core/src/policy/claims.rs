//! What a policy demands of requests that must not run twice: idempotency keys, and locks on resources.

use crate::idempotency::fingerprint;
use crate::identity::{Attribute, KeyPart};
use crate::policy::{Limit, MissingKey};

/// Tells which content codings the client of a replay reads.
pub(crate) const ACCEPT_ENCODING: &str = "accept-encoding";
/// A digest of the request's body that the client declares (RFC 9530).
pub(crate) const CONTENT_DIGEST: &str = "content-digest";

/// How requests with an idempotency key are treated.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// The request header that carries the key, in lower case.
    pub header: String,
    /// Whether a request without the header is refused.
    pub required: bool,
    /// The methods it is for.
    pub methods: Vec<String>,
    /// Bytes of a key, least and most.
    pub key_bytes: (usize, usize),
    /// Who may use the same key for something else: parts of the identity beside method, route and key. Empty only with
    /// `shared_scope`.
    pub scope: Vec<KeyPart>,
    /// What makes two requests the same.
    pub fingerprint: FingerprintRules,
    /// How often an instance holds a body of one client's for the fingerprint; `None` when that is not bounded, or no
    /// body is held.
    pub hold_limit: Option<Limit>,
    /// How long a claim lasts.
    pub lease: LeaseRules,
    /// How long an outcome is kept, in microseconds.
    pub retention_us: u64,
    /// What happens to a retry when nobody knows what became of the first run.
    pub on_unknown: OnUnknown,
    /// What happens when the store cannot take the claim.
    pub on_store_failure: ClaimFailure,
    /// How long a duplicate of a running request waits for its outcome before it is answered, in microseconds.
    pub wait_us: u64,
    /// What replays, conflicts and mismatches are charged to; `None` when they are free.
    pub replay_limit: Option<Limit>,
    /// When the client gets the response.
    pub respond: Respond,
    /// What is kept of the response.
    pub stored: StoredRules,
    /// Whether the upstream sees the key.
    pub forward_key: bool,
    /// Response header of replays, in lower case.
    pub replayed_header: String,
    /// Request header that tells the upstream the fencing token, in lower case.
    pub fence_header: String,
    /// Request header that tells the upstream which attempt this is, in lower case.
    pub attempt_header: String,
    /// Status while another request with the key runs.
    pub in_flight_status: u16,
    /// Status when the key was used for another request.
    pub mismatch_status: u16,
    /// What the problem types of the answers start with.
    pub problem_base: String,
    /// The start of its store keys, up to the identity.
    pub store_key_prefix: String,
}

impl Idempotency {
    /// Every part of a request that it looks at, beside the key and the fingerprint.
    pub fn parts(&self) -> impl Iterator<Item = &KeyPart> {
        // Replays are counted by scope; only where there is none does their limit look at something of its own.
        let own = self.replay_limit.iter().filter(|_| self.scope.is_empty());
        self.scope.iter().chain(own.chain(&self.hold_limit).flat_map(Limit::parts))
    }

    /// What the host must look up for it.
    pub(super) fn attributes(&self) -> impl Iterator<Item = Attribute> {
        let digest = (self.fingerprint.body == BodyFingerprint::AtCompletion).then_some(CONTENT_DIGEST);
        let own = [self.header.as_str(), ACCEPT_ENCODING].into_iter().chain(digest);
        let headers = own.chain(fingerprint::headers(&self.fingerprint)).map(|name| Attribute::Header(name.to_owned()));
        headers.chain(self.parts().filter_map(KeyPart::attribute))
    }
}

/// What makes two requests with one key the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FingerprintRules {
    /// What of the body.
    pub body: BodyFingerprint,
    /// Request headers that count, in lower case.
    pub headers: Vec<String>,
    /// The largest body that is read for it.
    pub max_body_bytes: usize,
    /// What happens above.
    pub over_max: OverMax,
    /// Names these rules: a record that was made by others has an unknown fingerprint.
    pub recipe: String,
}

/// What of a body makes it the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFingerprint {
    /// Every byte.
    Raw,
    /// The JSON value, whatever its spelling; what is no JSON counts by its bytes.
    Json,
    /// Every byte, but known only when the request has passed: for gateways that cannot hold bodies.
    AtCompletion,
    /// Nothing.
    Ignored,
}

/// What happens to a body that is larger than is read for its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverMax {
    /// 413
    Reject,
    /// The request passes with the rest of its fingerprint.
    Unfingerprinted,
}

/// How long a claim lasts without its holder's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRules {
    /// Time until a silent holder counts as gone, in microseconds. Renewed at a third of it.
    pub lease_us: u64,
    /// It is not renewed beyond this, in microseconds since the claim.
    pub max_lease_us: u64,
    /// What happens to the holder's request when the lease is lost.
    pub on_lost: OnLeaseLost,
}

/// What happens to a request that has lost its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLeaseLost {
    /// It goes on.
    Continue,
    /// Its stream is reset.
    Cancel,
}

/// What happens to a retry when the outcome of the first run is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// At most once: refused until an operator decides or the record expires.
    Reject,
    /// One at a time: runs again once the lease has lapsed.
    RetryAfterLease,
}

/// What happens when the store cannot take a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimFailure {
    /// The request passes unprotected.
    Allow,
    /// This instance protects by itself.
    Local,
    /// 503
    Deny,
}

/// When the client gets the response of a request that holds a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Respond {
    /// Once its record is stored.
    AfterStore,
    /// As it comes.
    AtOnce,
}

/// What is kept of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRules {
    /// A larger body is not kept: the record is sealed.
    pub max_body_bytes: usize,
    /// Response headers that are kept, in lower case: the standard ones, with what the policy adds or takes away.
    pub headers: Vec<String>,
    /// Whether a response that sets a cookie is kept without it, or not at all.
    pub seal_set_cookie: bool,
}

/// Mutual exclusion on a resource, across all gateways.
#[derive(Clone, Debug)]
pub struct Lock {
    /// What names the resource.
    pub key: Vec<KeyPart>,
    /// What happens when a part of the key is missing.
    pub on_missing_key: MissingKey,
    /// The methods it is for; empty: all.
    pub methods: Vec<String>,
    /// How long it is held without its holder's word.
    pub lease: LeaseRules,
    /// How long a request waits for it, in microseconds.
    pub wait_us: u64,
    /// What happens when the store cannot take it.
    pub on_store_failure: ClaimFailure,
    /// Request header that tells the upstream the fencing token, in lower case.
    pub fence_header: String,
    /// What the problem types of the answers start with.
    pub problem_base: String,
    /// The start of its store keys, up to the identity.
    pub store_key_prefix: String,
}

impl Lock {
    /// Every part of a request that it looks at.
    pub fn parts(&self) -> impl Iterator<Item = &KeyPart> {
        self.key.iter().chain(self.on_missing_key.fallback())
    }
}
