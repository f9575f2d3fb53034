//! What the host must look up for the requests of a policy, each once.

use super::{Access, Limit};
use crate::identity::Attribute;

/// The headers that tell a CORS preflight from other OPTIONS requests.
pub(crate) const PREFLIGHT_HEADERS: [&str; 2] = ["origin", "access-control-request-method"];

/// Those of a policy's limits, of its own access lists and of the file's.
pub(super) fn of_policy(limits: &[Limit], access: &Access, of_file: &Access) -> Vec<Attribute> {
    distinct(access.attributes().chain(of_file.attributes()).chain(limits.iter().flat_map(Limit::attributes)))
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
pub(super) fn without_policy(of_file: &Access) -> Vec<Attribute> {
    if of_file.block.is_empty() { Vec::new() } else { vec![Attribute::ClientAddress] }
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
