//! Who is turned away or let through before any limit counts: block lists and exemptions.

use std::net::IpAddr;

use ipnet::IpNet;

use super::ValueMatch;
use super::error::PolicyErrors;
use super::names::is_header_name;
use super::reader::{Members, Place};
use super::routes::read_methods;
use crate::address_set::AddressSet;
use crate::identity::Attribute;

/// The most networks of a list, and headers of an exemption.
const NETWORKS_MAX: usize = 10_000;
const HEADERS_MAX: usize = 16;

/// Whom a file or a policy blocks, and whose requests it does not count.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Clients that are turned away.
    pub block: AddressSet,
    /// Requests that no limit counts.
    pub exempt: Exemptions,
}

/// Requests that no limit counts; one of the lists suffices.
#[derive(Clone, Debug, Default)]
pub struct Exemptions {
    /// From these clients.
    pub client_addresses: AddressSet,
    /// With these methods; `GET` includes `HEAD`.
    pub methods: Vec<String>,
    /// With one of these headers: its lower-case name and its value.
    pub headers: Vec<(String, ValueMatch)>,
}

impl Access {
    /// What the host must look up for it.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = Attribute> {
        let headers = self.exempt.headers.iter().map(|(name, _)| Attribute::Header(name.clone()));
        self.needs_address().then_some(Attribute::ClientAddress).into_iter().chain(headers)
    }

    /// Whether the client's address matters.
    pub(crate) fn needs_address(&self) -> bool {
        !self.block.is_empty() || !self.exempt.client_addresses.is_empty()
    }
}

impl Exemptions {
    /// Whether a request with that method, client address and headers is exempt.
    pub(crate) fn hold<'v>(
        &self,
        method: &str,
        address: Option<IpAddr>,
        header: impl Fn(&str) -> Option<&'v [u8]>,
    ) -> bool {
        let has_method = |named: &String| named == method || (method == "HEAD" && named == "GET");
        let has_header =
            |(name, wanted): &(String, ValueMatch)| header(name).is_some_and(|value| wanted.matches_header(value));
        self.methods.iter().any(has_method)
            || address.is_some_and(|address| self.client_addresses.contains(address))
            || self.headers.iter().any(has_header)
    }
}

/// Reads the members `block` and `exempt` of a file or a policy.
pub(super) fn read(object: &Members<'_>, errors: &mut PolicyErrors) -> Option<Access> {
    let none = Some(AddressSet::default());
    let block = object.optional("block").map_or(none, |place| read_networks(&place, errors));
    let exempt = object.optional("exempt").map_or(Some(Exemptions::default()), |place| read_exemptions(&place, errors));
    Some(Access { block: block?, exempt: exempt? })
}

fn read_exemptions(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Exemptions> {
    let object = place.object(errors, "an object with client_addresses, methods or headers")?;
    let addresses =
        object.optional("client_addresses").map_or(Some(AddressSet::default()), |place| read_networks(&place, errors));
    let methods = object.optional("methods").map_or(Some(Vec::new()), |place| read_methods(&place, errors));
    let headers = object.optional("headers").map_or(Some(Vec::new()), |place| read_headers(&place, errors));
    object.finish(errors, &["client_addresses", "methods", "headers"]);
    Some(Exemptions { client_addresses: addresses?, methods: methods?, headers: headers? })
}

fn read_headers(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<(String, ValueMatch)>> {
    let object = place.object(errors, "an object such as {\"x-internal-token\": \"…\"}")?;
    let members = object.all();
    if members.len() > HEADERS_MAX {
        place.reject(errors, format!("at most {HEADERS_MAX} headers"));
    }
    object.finish(errors, &[]);
    let headers = members.iter().map(|(name, place)| read_header(name, place, errors));
    headers.collect::<Vec<_>>().into_iter().collect()
}

fn read_header(name: &str, place: &Place<'_>, errors: &mut PolicyErrors) -> Option<(String, ValueMatch)> {
    if !is_header_name(name) {
        errors.push(&place.path, "a name that no header has", "a header such as \"x-internal-token\"");
    }
    let expected = "the value that exempts, or its start and a *";
    let text = place.text(errors, expected)?;
    if matches!(text, "" | "*") {
        place.reject(errors, format!("{expected}; a header that only has to be there can be sent by anybody"));
    }
    Some((name.to_ascii_lowercase(), ValueMatch::of_header(text)))
}

fn read_networks(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<AddressSet> {
    let places = place.list(errors, "a list of networks such as [\"192.0.2.0/24\"]")?;
    if places.len() > NETWORKS_MAX {
        place.reject(errors, format!("at most {NETWORKS_MAX} networks"));
    }
    let networks: Vec<Option<IpNet>> = places.iter().map(|place| read_network(place, errors)).collect();
    networks.into_iter().collect::<Option<Vec<IpNet>>>().map(|networks| AddressSet::new(&networks))
}

fn read_network(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<IpNet> {
    let expected = "a network such as \"192.0.2.0/24\" or \"2001:db8::/32\", or an address";
    let text = place.text(errors, expected)?;
    let network = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    match network {
        None => place.reject(errors, expected),
        // Whoever writes this means either the network or the one address; guessing would block or free too many.
        Some(network) if network.trunc() != network => {
            place.reject(
                errors,
                format!("{:?} for the network, or {:?}", network.trunc().to_string(), network.addr().to_string()),
            );
        }
        Some(_) => {}
    }
    network
}
