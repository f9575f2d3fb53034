//! A loaded policy file: every number checked, every name resolved. It cannot fail at request time.

mod access;
mod answers;
pub(crate) mod attributes;
mod claim;
mod claim_warnings;
mod claims;
mod combine;
mod concurrency;
mod cost;
pub mod error;
mod fingerprint;
mod hold_limit;
mod idempotency;
mod key;
mod limit;
pub mod load;
mod lock;
pub(crate) mod names;
pub mod node;
mod numbers;
mod overrides;
mod policies;
pub mod reader;
mod replay_limit;
mod request;
mod route_path;
mod routes;
mod stored;
mod suggest;
pub mod units;
pub mod warnings;

pub use access::{Access, Exemptions};
pub use answers::{AnswerRules, Cors, CustomAnswer, CustomAnswers, Origins};
pub(crate) use claims::{ACCEPT_ENCODING, CONTENT_DIGEST};
pub use claims::{
    BodyFingerprint, ClaimFailure, FingerprintRules, Idempotency, LeaseRules, Lock, OnLeaseLost, OnUnknown, OverMax,
    Respond, StoredRules,
};
pub use cost::{Cost, NoNumber};
pub use overrides::{Condition, Override, ValueMatch};

use crate::algorithm::Algorithm;
use crate::client_address::AddressSource;
use crate::identity::{AddressPrefixes, Attribute, KeyPart};
use crate::normalize::PathRules;
use crate::resp::push_bulk;
use crate::route::Routes;

/// Everything one policy file says.
#[derive(Clone, Debug)]
pub struct PolicySet {
    /// Starts every store key: deployments that share a store are kept apart by it.
    pub namespace: String,
    /// `false`: the whole file only measures.
    pub enforce: bool,
    /// How client addresses become networks.
    pub address_prefixes: AddressPrefixes,
    /// Where client addresses are taken from.
    pub address_source: AddressSource,
    /// Which paths are the same.
    pub path_rules: PathRules,
    /// How responses look.
    pub answers: AnswerRules,
    /// What answers say instead of our own words where their policy says nothing.
    pub custom: CustomAnswers,
    /// Clients that are turned away, and requests that no limit counts, whatever their policy.
    pub access: Access,
    /// Whether limits count CORS preflights.
    pub preflights: Preflights,
    /// What the host must look up for requests that no policy is for.
    pub attributes_without_policy: Vec<Attribute>,
    /// The policies of the file, in its order.
    pub policies: Vec<Policy>,
    /// The policies that routes with several of them amount to.
    pub combinations: Vec<Policy>,
    /// The routes.
    pub routes: Routes,
    /// Whether a route of the gateway may name the policy in its metadata.
    pub policy_from_route_metadata: bool,
    /// Index of the policy for requests that no route matches; without one they pass unlimited.
    pub default_policy: Option<usize>,
}

impl PolicySet {
    /// The policy that applies by the index of a route or of the default: one of the file, or a combination of those.
    pub fn applied(&self, index: usize) -> Option<&Policy> {
        let combination = || self.combinations.get(index.checked_sub(self.policies.len())?);
        self.policies.get(index).or_else(combination)
    }

    /// Whether the policy at index `policy` of the file is, or is one of, what [`PolicySet::applied`] gives for `applied`.
    pub(crate) fn applies(&self, applied: usize, policy: usize) -> bool {
        self.applied(applied).is_some_and(|applied| applied.members.contains(&policy))
    }

    /// What answers say for the policy at that index of the file.
    pub(crate) fn custom(&self, policy: Option<usize>) -> &CustomAnswers {
        policy.and_then(|index| self.policies.get(index)).map_or(&self.custom, |policy| &policy.custom)
    }

    /// Every policy that can apply to a request.
    pub fn all_applied(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().chain(&self.combinations)
    }
}

/// What one policy demands.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name in the file; names joined by `+` where several policies are combined.
    pub name: String,
    /// Its limits: decided together, all or nothing.
    pub limits: Vec<Limit>,
    /// How its requests with an idempotency key are treated; `None`: like any other.
    pub idempotency: Option<Box<Idempotency>>,
    /// The lock that its requests take, if any.
    pub lock: Option<Box<Lock>>,
    /// What happens when the store cannot decide.
    pub limits_on_store_failure: FailureMode,
    /// What the host must look up for a request, each once.
    pub attributes: Vec<Attribute>,
    /// The same for OPTIONS requests, and what tells preflights.
    pub preflight_attributes: Vec<Attribute>,
    /// Clients that it turns away, and requests that its limits do not count.
    pub access: Access,
    /// What its answers say instead of our own words.
    pub custom: CustomAnswers,
    /// Indices in [`PolicySet::policies`] of what it consists of: itself, or the policies that it combines.
    pub members: Vec<usize>,
}

impl Policy {
    /// Whether its requests claim anything: a key, or a lock.
    pub(crate) fn claims(&self) -> bool {
        self.idempotency.is_some() || self.lock.is_some()
    }

    /// Whether its requests may come to hold something until they end.
    pub fn may_hold(&self) -> bool {
        self.claims() || self.limits.iter().any(|limit| limit.base.algorithm.is_held())
    }

    /// Request headers that it sets for the upstream.
    pub(crate) fn reserved_headers(&self) -> impl Iterator<Item = String> {
        let idempotency = self.idempotency.as_deref();
        let headers = idempotency.map(|rules| [rules.fence_header.clone(), rules.attempt_header.clone()]);
        headers.into_iter().flatten().chain(self.lock.as_deref().map(|rules| rules.fence_header.clone()))
    }

    /// Index in [`PolicySet::policies`] of the one that is reported when no limit decided: the last that it combines.
    pub fn reported(&self) -> Option<usize> {
        self.members.last().copied()
    }

    /// Every part of a request that its limits and claims look at.
    pub fn parts(&self) -> impl Iterator<Item = &KeyPart> {
        let limits = self.limits.iter().flat_map(Limit::parts);
        limits.chain(self.claim_parts().map(|(_, part)| part))
    }

    /// The same, each with the member of the policy that names it: `limits[0]`, `lock`.
    fn named_parts(&self) -> impl Iterator<Item = (String, &KeyPart)> {
        let limits = self.limits.iter().flat_map(|limit| limit.parts().map(|part| (limit.member(), part)));
        limits.chain(self.claim_parts().map(|(member, part)| (member.to_owned(), part)))
    }

    fn claim_parts(&self) -> impl Iterator<Item = (&'static str, &KeyPart)> {
        let idempotency = self.idempotency.iter().flat_map(|idempotency| idempotency.parts());
        let lock = self.lock.iter().flat_map(|lock| lock.parts());
        idempotency.map(|part| ("idempotency", part)).chain(lock.map(|part| ("lock", part)))
    }
}

/// One limit of a policy.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its place in the file.
    pub id: LimitId,
    /// Its name in the file, unique within the policy.
    pub name: String,
    /// Its name in header fields and problem details.
    pub label: String,
    /// What it grants.
    pub base: Grant,
    /// What it grants to some instead; the first that applies.
    pub overrides: Vec<Override>,
    /// Units that a request spends.
    pub cost: Cost,
    /// `false`: measured, never denying.
    pub enforce: bool,
    /// Whose requests are counted together.
    pub key: Vec<KeyPart>,
    /// What happens when a part of the key is missing.
    pub on_missing_key: MissingKey,
    /// The start of its store keys, up to the identity: namespace, policy, limit and meaning.
    pub store_key_prefix: String,
    /// Its arguments for the script up to the cost, encoded for the wire.
    pub script_head: Vec<u8>,
}

impl Limit {
    /// The member of its policy that it is: `limits[0]`, or `concurrency` behind them.
    pub fn member(&self) -> String {
        match self.base.algorithm.is_held() {
            true => "concurrency".to_owned(),
            false => format!("limits[{}]", self.id.limit),
        }
    }

    /// What it grants: by the override at that index, or to all others.
    pub fn grant(&self, override_index: Option<usize>) -> &Grant {
        override_index.and_then(|index| self.overrides.get(index)).map_or(&self.base, |chosen| &chosen.grant)
    }

    /// Every part of a request that it looks at: those of the key, the one that stands in for a missing one, and those
    /// that tell which override applies.
    pub fn parts(&self) -> impl Iterator<Item = &KeyPart> {
        let conditions = self.overrides.iter().flat_map(|one| &one.when);
        self.key.iter().chain(self.on_missing_key.fallback()).chain(conditions.map(|condition| &condition.part))
    }

    /// What the host must look up for it.
    fn attributes(&self) -> impl Iterator<Item = Attribute> {
        let cost = self.cost.header().map(|name| Attribute::Header(name.to_owned()));
        self.parts().filter_map(KeyPart::attribute).chain(cost)
    }
}

/// Where a limit stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitId {
    /// Index of its policy in [`PolicySet::policies`].
    pub policy: usize,
    /// Its index there.
    pub limit: usize,
}

/// The numbers of a limit.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The algorithm with its numbers, as the store runs it.
    pub algorithm: Algorithm,
    /// The same scaled by the host's share, as the local limiter runs it.
    pub local_algorithm: Algorithm,
    /// The script's arguments behind the cost, encoded for the wire; where a slot is held, without the owner and what
    /// follows it.
    pub script_numbers: Vec<u8>,
    /// The parameters of its item in the `RateLimit-Policy` field: `;q=100;w=60`.
    pub quota: String,
}

impl Grant {
    /// Appends the script's arguments behind the cost. `owner` is who holds the slot, if there is one to hold.
    pub fn write_numbers(&self, owner: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.script_numbers);
        if self.algorithm.is_held() {
            push_bulk(owner, out);
            push_bulk(b"0", out);
        }
    }
}

/// What happens when the store cannot decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    /// Let the request pass.
    Allow,
    /// Answer 503.
    Deny,
    /// This instance limits by itself.
    Local,
}

/// What happens when a request lacks a part of a limit's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingKey {
    /// Another part, which is none of the key, stands in its place. A request without that one gets 400.
    Fallback(KeyPart),
    /// Answer the request.
    Reject(Rejection),
    /// The limit does not apply to the request.
    Skip,
}

impl MissingKey {
    /// The part that stands in for a missing one.
    pub fn fallback(&self) -> Option<&KeyPart> {
        match self {
            MissingKey::Fallback(part) => Some(part),
            MissingKey::Reject(_) | MissingKey::Skip => None,
        }
    }
}

/// How a request is answered that lacks a part of a limit's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// 400
    BadRequest,
    /// 401
    Unauthorized,
}

/// Whether limits count CORS preflights: OPTIONS requests with `origin` and `access-control-request-method`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preflights {
    /// As any other request.
    Count,
    /// Not at all: browsers send them on their own, without credentials.
    Exempt,
}

/// The wire shape of the rate-limit fields, by the parameters they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderMode {
    /// `RateLimit: "name";r=…;t=…` (draft-ietf-httpapi-ratelimit-headers 09 to 11).
    Rt,
    /// `RateLimit: "name";a=…;w=…` (draft 12).
    Aw,
    /// `RateLimit: "name";r=…;t=…;a=…;w=…`: readers ignore the parameters that they do not know.
    Both,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds of Unix time.
    Legacy,
    /// None.
    Off,
}
