//! What the host must look up for the requests of a policy, each once.

use super::limit::Scope;
use super::policies::Demands;
use super::{Access, Limit};
use crate::client_address::AddressSource;
use crate::identity::{Attribute, KeyPart};

/// The header that every CORS preflight has, and hardly any other request.
pub const PREFLIGHT_MARK: &str = "access-control-request-method";

/// The headers that tell a CORS preflight from other OPTIONS requests.
pub(crate) const PREFLIGHT_HEADERS: [&str; 2] = ["origin", PREFLIGHT_MARK];

/// Those of a policy's limits and claims, of its own access lists and of the file's.
pub(super) fn of_policy(demands: &Demands, access: &Access, scope: &Scope<'_>) -> Vec<Attribute> {
    let lists = access.attributes().chain(scope.access.attributes());
    let limits = demands.limits.iter().flat_map(Limit::attributes);
    let idempotency = demands.idempotency.iter().flat_map(|idempotency| idempotency.attributes());
    let lock = demands.lock.iter().flat_map(|lock| lock.parts()).filter_map(KeyPart::attribute);
    let needed = lists.chain(limits).chain(idempotency).chain(lock);
    distinct(needed.flat_map(|attribute| scope.source.attributes_for(attribute)))
}

/// The same, and what tells a preflight.
pub(super) fn with_preflight(attributes: &[Attribute]) -> Vec<Attribute> {
    let headers = PREFLIGHT_HEADERS.map(|name| Attribute::Header(name.to_owned()));
    distinct(attributes.iter().cloned().chain(headers))
}

/// Those of several lists.
pub(super) fn united<'a>(lists: impl Iterator<Item = &'a [Attribute]>) -> Vec<Attribute> {
    distinct(lists.flatten().cloned())
}

/// Those of requests that no policy is for.
pub(super) fn without_policy(of_file: &Access, source: AddressSource) -> Vec<Attribute> {
    if of_file.block.is_empty() { Vec::new() } else { source.attributes_for(Attribute::ClientAddress) }
}

fn distinct(attributes: impl Iterator<Item = Attribute>) -> Vec<Attribute> {
    let mut needed: Vec<Attribute> = Vec::new();
    for attribute in attributes {
        if !needed.contains(&attribute) {
            needed.push(attribute);
        }
    }
    needed
}
