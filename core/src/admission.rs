//! What a request asks of the store beside its limits: claims on its idempotency key and on a lock, and who asks.

use crate::answer::{self, KeyProblem};
use crate::claim::{Ask, ClaimKind, Fingerprint, Granted, Owner};
use crate::decision::Action;
use crate::engine::Counted;
use crate::idempotency::fingerprint::{self, BodyHasher, Head};
use crate::idempotency::{content_digest, key};
use crate::identity::{Identity, IdentityHasher, KeyPart};
use crate::policy::{
    ACCEPT_ENCODING, BodyFingerprint, CONTENT_DIGEST, Idempotency, Limit, Lock, OnUnknown, OverMax, Policy,
};
use crate::values::Values;

/// What the host knows of a request that may come to hold something.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// 128 bits from the host's cryptographic generator, drawn for this request; `None` when it has none: nothing can be
    /// claimed.
    pub owner: Option<Owner>,
    /// The highest fencing token that this host has seen.
    pub floor: u64,
    /// What the headers say of the body.
    pub body: Body,
}

/// What is known of a request's body at its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// There is none.
    #[default]
    Absent,
    /// It has this many bytes.
    Bytes(u64),
    /// Its length shows when it ends.
    Unknown,
}

/// What one request asks for, or holds when granted.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub owner: Owner,
    /// The claims: that of the idempotency key first.
    pub asks: Vec<Ask>,
    /// What the client reads, should its answer be a replay.
    pub accept_encoding: Option<Vec<u8>>,
    /// The limit on replays and conflicts, counted.
    pub replay: Option<Counted>,
    /// How long the request has waited for others to end, in microseconds.
    pub waited_us: u64,
    /// How often.
    pub waits: u32,
    /// Whether an earlier command of this request may have been carried out.
    pub may_hold: bool,
    /// What this instance granted by itself.
    pub local: Option<Vec<Granted>>,
}

impl Asked {
    /// A request that asks for slots alone.
    pub fn slots(arrival: &Arrival) -> Asked {
        Asked {
            owner: arrival.owner.unwrap_or(Owner::NONE),
            asks: Vec::new(),
            replay: None,
            accept_encoding: None,
            waited_us: 0,
            waits: 0,
            may_hold: false,
            local: None,
        }
    }

    /// How long to wait before the store is asked again, within `wait_us` in all; `None` when they are over. Longer each
    /// time, and different for each request, so that those who wait for one lock do not come back together.
    pub fn next_wait_us(&mut self, wait_us: u64) -> Option<u64> {
        let left_us = wait_us.checked_sub(self.waited_us).filter(|left_us| *left_us > 0)?;
        let spread = self.random_nibble().saturating_mul(WAIT_SPREAD_US) / 16;
        let base = WAIT_US.saturating_mul(u64::from(self.waits).saturating_add(1)).min(WAIT_MAX_US);
        self.waits = self.waits.saturating_add(1);
        let pause_us = base.saturating_add(spread).min(left_us);
        self.waited_us = self.waited_us.saturating_add(pause_us);
        Some(pause_us)
    }

    /// The owner is random, so its digits are.
    fn random_nibble(&self) -> u64 {
        let digits = self.owner.as_bytes();
        let place = usize::try_from(self.waits).unwrap_or(0) % Owner::LENGTH;
        let digit = digits.get(place).and_then(|digit| char::from(*digit).to_digit(16));
        digit.map_or(0, u64::from)
    }
}

/// The first wait, the longest, and what is added to each at random, in microseconds.
const WAIT_US: u64 = 20_000;
const WAIT_MAX_US: u64 = 200_000;
const WAIT_SPREAD_US: u64 = 30_000;

/// What becomes of the body before the claims can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyWanted {
    /// Nothing: the fingerprint is complete.
    No,
    /// It is read, up to so many bytes.
    UpTo(usize),
}

/// Collects the claims of a request, or tells how it is answered when it cannot have them.
pub(crate) fn asked(
    policy: &Policy,
    values: &Values<'_>,
    arrival: &Arrival,
) -> Result<Option<(Asked, BodyWanted)>, Action> {
    let mut asked =
        Asked { accept_encoding: values.header(ACCEPT_ENCODING).map(<[u8]>::to_vec), ..Asked::slots(arrival) };
    let mut wanted = BodyWanted::No;
    if let Some(rules) = policy.idempotency.as_deref().filter(|rules| is_for(&rules.methods, values))
        && let Some((ask, body)) = idempotency_ask(rules, values, arrival)?
    {
        asked.replay = rules.replay_limit.as_ref().and_then(|limit| replay(limit, values));
        asked.asks.push(ask);
        wanted = body;
    }
    if let Some(rules) = policy.lock.as_deref().filter(|rules| is_for(&rules.methods, values))
        && let Some(ask) = lock_ask(rules, values, arrival)?
    {
        asked.asks.push(ask);
    }
    Ok((!asked.asks.is_empty()).then_some((asked, wanted)))
}

/// An empty list is for all.
fn is_for(methods: &[String], values: &Values<'_>) -> bool {
    methods.is_empty() || methods.iter().any(|method| method == values.selection.method())
}

/// The claim on the request's key; `None` when the request goes unprotected.
fn idempotency_ask(
    rules: &Idempotency,
    values: &Values<'_>,
    arrival: &Arrival,
) -> Result<Option<(Ask, BodyWanted)>, Action> {
    let Some(lines) = values.header(&rules.header) else {
        return if rules.required { Err(answer::key_problem(rules, &KeyProblem::Missing)) } else { Ok(None) };
    };
    let key =
        key::parse(lines, rules.key_bytes).map_err(|error| answer::key_problem(rules, &KeyProblem::Invalid(error)))?;
    let Some(identity) = scope(rules, values, &key) else {
        return if rules.required { Err(answer::key_problem(rules, &KeyProblem::NoScope)) } else { Ok(None) };
    };
    let (body, wanted) = match rules.fingerprint.body {
        BodyFingerprint::Ignored => (String::new(), BodyWanted::No),
        BodyFingerprint::AtCompletion => (declared_digest(values).unwrap_or_default(), BodyWanted::No),
        BodyFingerprint::Raw | BodyFingerprint::Json => match arrival.body {
            Body::Absent | Body::Bytes(0) => (BodyHasher::new(rules.fingerprint.body).finish(), BodyWanted::No),
            Body::Bytes(bytes) if bytes > rules.fingerprint.max_body_bytes as u64 => (over_max(rules)?, BodyWanted::No),
            Body::Bytes(_) | Body::Unknown => (String::new(), BodyWanted::UpTo(rules.fingerprint.max_body_bytes)),
        },
    };
    let fingerprint = Fingerprint { head: head(rules, values), body, recipe: rules.fingerprint.recipe.clone() };
    let (record_key, fence_key) = keys(&rules.store_key_prefix, &identity);
    let ask = Ask {
        kind: ClaimKind::Idempotency,
        record_key,
        fence_key,
        fingerprint,
        lease_us: rules.lease.lease_us,
        ttl_ms: rules.retention_us.div_ceil(1_000),
        on_unknown: rules.on_unknown,
        floor: arrival.floor,
    };
    Ok(Some((ask, wanted)))
}

/// What becomes of a body that is too large for its fingerprint: it has none, or the request is refused.
pub(crate) fn over_max(rules: &Idempotency) -> Result<String, Action> {
    match rules.fingerprint.over_max {
        OverMax::Reject => Err(answer::key_problem(rules, &KeyProblem::BodyTooLarge)),
        OverMax::Unfingerprinted => Ok(String::new()),
    }
}

/// Whose key it is, for what: the parts of the scope, host, method, path and key. `None` when a part is missing.
fn scope(rules: &Idempotency, values: &Values<'_>, key: &str) -> Option<Identity> {
    let mut hasher = IdentityHasher::default();
    hasher.push(&KeyPart::Constant("idempotency".into()), b"1");
    for part in &rules.scope {
        hasher.push(part, &values.value(part)?);
    }
    let selection = values.selection;
    hasher.push(&KeyPart::Host, selection.host().as_bytes());
    hasher.push(&KeyPart::Method, selection.method().as_bytes());
    hasher.push(&KeyPart::Path, selection.path().as_bytes());
    hasher.push(&KeyPart::Header(rules.header.clone()), key.as_bytes());
    Some(hasher.finish())
}

/// Where a claim's record stands, and beside it what is remembered of fences: one hash tag.
fn keys(prefix: &str, identity: &Identity) -> (String, String) {
    (identity.store_key(prefix, ":r"), identity.store_key(prefix, ":f"))
}

fn head(rules: &Idempotency, values: &Values<'_>) -> String {
    let selection = values.selection;
    let headers = fingerprint::headers(&rules.fingerprint).map(|name| values.header(name).map(<[u8]>::to_vec));
    let head = Head {
        method: selection.method(),
        host: selection.host(),
        path: selection.path(),
        query: selection.query(),
        values: &headers.collect::<Vec<_>>(),
    };
    fingerprint::head(&rules.fingerprint, &head)
}

fn declared_digest(values: &Values<'_>) -> Option<String> {
    content_digest::sha_256(values.header(CONTENT_DIGEST)?)
}

/// Replays and conflicts of one scope are counted together.
fn replay(limit: &Limit, values: &Values<'_>) -> Option<Counted> {
    let store_key = values.store_key(limit).ok()?;
    Some(Counted { limit: 0, override_index: None, cost: 1, store_key })
}

fn lock_ask(rules: &Lock, values: &Values<'_>, arrival: &Arrival) -> Result<Option<Ask>, Action> {
    let mut hasher = IdentityHasher::default();
    hasher.push(&KeyPart::Constant("lock".into()), b"1");
    let identity = match values.hash(hasher, &rules.key, &rules.on_missing_key) {
        Ok(identity) => identity,
        Err(part) => return answer::lacking(part, &rules.on_missing_key).map_or(Ok(None), Err),
    };
    let (record_key, fence_key) = keys(&rules.store_key_prefix, &identity);
    Ok(Some(Ask {
        kind: ClaimKind::Lock,
        record_key,
        fence_key,
        fingerprint: Fingerprint::default(),
        lease_us: rules.lease.lease_us,
        ttl_ms: LOCK_TTL_MS.max(rules.lease.max_lease_us.div_ceil(1_000)),
        on_unknown: OnUnknown::RetryAfterLease,
        floor: arrival.floor,
    }))
}

/// How long a lock's fence is remembered: afterwards the store's clock alone keeps tokens rising.
const LOCK_TTL_MS: u64 = 86_400_000;
