//! Where the client's address is taken from: the host, or the entry of `x-forwarded-for` that a trusted proxy wrote.

use std::net::IpAddr;

use crate::identity::{AddressPrefixes, Attribute, parse_address};

/// The header to which each proxy appends the address it was called from.
pub const FORWARDED_FOR: &str = "x-forwarded-for";

/// Where the client's address is taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressSource {
    /// The address that the host holds for the client's.
    #[default]
    Host,
    /// The entry of `x-forwarded-for` at this place from the right, counted from 1. What stands left of it is the
    /// client's own text.
    ForwardedFor {
        /// At least 1.
        trusted_hops: usize,
    },
}

impl AddressSource {
    /// What the host must look up where `attribute` is wanted: for the client's address, what this source needs.
    pub fn attributes_for(self, attribute: Attribute) -> Vec<Attribute> {
        match (self, &attribute) {
            (AddressSource::ForwardedFor { .. }, Attribute::ClientAddress) => {
                vec![attribute, Attribute::Header(FORWARDED_FOR.into())]
            }
            _ => vec![attribute],
        }
    }

    /// The client's network, from the host's address and the lines of `x-forwarded-for`.
    pub fn network(
        self,
        prefixes: AddressPrefixes,
        host_address: Option<&[u8]>,
        forwarded_for: Option<&[u8]>,
    ) -> Option<String> {
        prefixes.network_of(self.address(host_address, forwarded_for)?)
    }

    /// The client's address. A header that is missing, too short, or no address up to the trusted entry leaves the
    /// host's address.
    pub fn address(self, host_address: Option<&[u8]>, forwarded_for: Option<&[u8]>) -> Option<IpAddr> {
        let address = |bytes: &[u8]| parse_address(std::str::from_utf8(bytes).ok()?);
        let forwarded = match self {
            AddressSource::Host => None,
            AddressSource::ForwardedFor { trusted_hops } => {
                let entries = forwarded_for.unwrap_or_default().rsplit(|byte| *byte == b',').take(trusted_hops);
                let addresses: Option<Vec<IpAddr>> = entries.map(address).collect();
                addresses.filter(|known| known.len() == trusted_hops).and_then(|mut known| known.pop())
            }
        };
        forwarded.or_else(|| address(host_address?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_trusted_entry_from_the_right_counts() {
        let rows: [(usize, Option<&str>, &str); 14] = [
            (1, Some("203.0.113.9"), "203.0.113.9/32"),
            (1, Some("198.51.100.1, 203.0.113.9"), "203.0.113.9/32"),
            (1, Some("198.51.100.1,203.0.113.9:4711"), "203.0.113.9/32"),
            (2, Some("a, 198.51.100.1 , 203.0.113.9"), "198.51.100.1/32"),
            (2, Some("unknown, [2001:db8::1]:443, 203.0.113.9"), "2001:db8::/64"),
            (1, None, "192.0.2.1/32"),
            (1, Some(""), "192.0.2.1/32"),
            (1, Some("garbage"), "192.0.2.1/32"),
            (1, Some("203.0.113.9,"), "192.0.2.1/32"),
            (1, Some("203.0.113.9, unknown"), "192.0.2.1/32"),
            // A malformed hop ends the walk: what stands left of it is not trusted.
            (2, Some("198.51.100.1, garbage"), "192.0.2.1/32"),
            (2, Some("198.51.100.1,, 203.0.113.9"), "192.0.2.1/32"),
            (2, Some("203.0.113.9"), "192.0.2.1/32"),
            (3, Some("198.51.100.1, 203.0.113.9"), "192.0.2.1/32"),
        ];
        for (trusted_hops, header, network) in rows {
            let source = AddressSource::ForwardedFor { trusted_hops };
            let header = header.map(str::as_bytes);
            let found = source.network(AddressPrefixes::default(), Some(b"192.0.2.1:99"), header);
            assert_eq!(found.as_deref(), Some(network), "{trusted_hops} of {header:?}");
        }
    }

    #[test]
    fn the_header_means_nothing_where_the_host_is_the_source() {
        let header = Some(&b"203.0.113.9"[..]);
        let found = AddressSource::Host.network(AddressPrefixes::default(), Some(b"192.0.2.1"), header);
        assert_eq!(found.as_deref(), Some("192.0.2.1/32"));
        assert_eq!(AddressSource::Host.network(AddressPrefixes::default(), None, header), None);
    }
}
