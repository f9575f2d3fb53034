//! A loaded policy file: every number checked, every name resolved. It cannot fail at request time.

pub mod error;
mod key;
mod limit;
pub mod load;
pub(crate) mod names;
pub mod node;
pub mod reader;
mod request;
mod route_path;
mod routes;
pub mod units;
pub mod warnings;

use crate::algorithm::Algorithm;
use crate::client_address::AddressSource;
use crate::identity::{AddressPrefixes, Attribute, KeyPart};
use crate::normalize::PathRules;
use crate::route::Routes;

/// Everything one policy file says.
#[derive(Clone, Debug)]
pub struct PolicySet {
    /// Starts every store key: deployments that share a store are kept apart by it.
    pub namespace: String,
    /// How client addresses become networks.
    pub address_prefixes: AddressPrefixes,
    /// Where client addresses are taken from.
    pub address_source: AddressSource,
    /// Which paths are the same.
    pub path_rules: PathRules,
    /// Which rate-limit header fields answers carry.
    pub rate_limit_headers: HeaderMode,
    /// The policies, by name.
    pub policies: Vec<Policy>,
    /// The routes.
    pub routes: Routes,
    /// Whether a route of the gateway may name the policy in its metadata.
    pub policy_from_route_metadata: bool,
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

impl Limit {
    /// Every part that may become part of the identity: those of the key, and the one that stands in for a missing one.
    pub fn parts(&self) -> impl Iterator<Item = &KeyPart> {
        let fallback = match &self.on_missing_key {
            MissingKey::Fallback(part) => Some(part),
            MissingKey::Reject(_) | MissingKey::Skip => None,
        };
        self.key.iter().chain(fallback)
    }

    /// What the host must look up for it.
    fn attributes(&self) -> impl Iterator<Item = Attribute> {
        self.parts().filter_map(KeyPart::attribute)
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

/// How a request is answered that lacks a part of a limit's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// 400
    BadRequest,
    /// 401
    Unauthorized,
}

/// The wire shape of the rate-limit fields, by the parameters they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderMode {
    /// `RateLimit: "name";r=…;t=…` (draft-ietf-httpapi-ratelimit-headers 09 to 11).
    Rt,
    /// None.
    Off,
}
