//! A loaded policy file: every number checked, every name resolved. It cannot fail at request time.

pub mod error;
mod limit;
pub mod load;
pub(crate) mod names;
pub mod node;
pub mod reader;
mod routes;
mod suggest;
pub mod units;

use crate::algorithm::Algorithm;
use crate::identity::{AddressPrefixes, Attribute, KeyPart};
use crate::route::Routes;

/// Everything one policy file says.
#[derive(Clone, Debug)]
pub struct PolicySet {
    /// Starts every store key: deployments that share a store are kept apart by it.
    pub namespace: String,
    /// How client addresses become networks.
    pub address_prefixes: AddressPrefixes,
    /// Which rate-limit header fields answers carry.
    pub rate_limit_headers: HeaderMode,
    /// The policies, by name.
    pub policies: Vec<Policy>,
    /// The routes, most specific first.
    pub routes: Routes,
    /// Index of the policy for requests that no route matches; without one they pass unlimited.
    pub default_policy: Option<usize>,
}

/// What one policy demands.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name in the file.
    pub name: String,
    /// Its limits: decided together, all or nothing.
    pub limits: Vec<Limit>,
    /// What happens when the store cannot decide.
    pub limits_on_store_failure: FailureMode,
    /// What the host must look up for a request, each once.
    pub attributes: Vec<Attribute>,
}

/// One limit of a policy.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its name in the file, unique within the policy.
    pub name: String,
    /// The algorithm with its numbers, as the store runs it.
    pub algorithm: Algorithm,
    /// The same scaled by the host's share, as the local limiter runs it.
    pub local_algorithm: Algorithm,
    /// Units that a request spends, at least one and at most the capacity.
    pub cost: u64,
    /// `false`: measured, never denying.
    pub enforce: bool,
    /// Whose requests are counted together.
    pub key: Vec<KeyPart>,
    /// What happens when a part of the key is missing.
    pub on_missing_key: MissingKey,
    /// The start of its store keys, up to the identity: namespace, policy, limit and meaning.
    pub store_key_prefix: String,
    /// Its arguments for the script, as they follow the tag, encoded for the wire.
    pub script_arguments: Vec<u8>,
    /// Its item of the `RateLimit-Policy` field.
    pub policy_item: String,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKey {
    /// Answer 400.
    Reject,
    /// The limit does not apply to the request.
    Skip,
}

/// The wire shape of the rate-limit fields, by the parameters they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderMode {
    /// `RateLimit: "name";r=…;t=…` (draft-ietf-httpapi-ratelimit-headers 09 to 11).
    Rt,
    /// None.
    Off,
}
