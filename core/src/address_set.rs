//! Sets of client addresses, given as networks and asked in logarithmic time: a block list may be long.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::order;

/// A set of IPv4 and IPv6 addresses. IPv4-mapped IPv6 addresses are IPv4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// First and last addresses as IPv6, sorted, neither touching nor overlapping.
    ranges: Vec<(u128, u128)>,
}

impl AddressSet {
    /// All addresses of the networks.
    pub fn new(networks: &[IpNet]) -> AddressSet {
        let all = networks.iter().map(|net| (number(net.network()), number(net.broadcast())));
        let mut ranges: Vec<(u128, u128)> = Vec::with_capacity(networks.len());
        for (first, last) in order::sorted(all.collect()) {
            match ranges.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => ranges.push((first, last)),
            }
        }
        AddressSet { ranges }
    }

    /// Whether it has no addresses.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = number(address);
        let after = self.ranges.partition_point(|(first, _)| *first <= address);
        let range = after.checked_sub(1).and_then(|index| self.ranges.get(index));
        range.is_some_and(|(_, last)| address <= *last)
    }
}

/// IPv4 addresses stand where IPv6 maps them to.
fn number(address: IpAddr) -> u128 {
    let mapped = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    u128::from(mapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(networks: &[&str]) -> AddressSet {
        AddressSet::new(&networks.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_found_in_the_networks_that_hold_it() {
        let set = set(&["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32", "10.1.0.0/16", "192.0.2.8/31"]);
        let rows: [(&str, bool); 14] = [
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("9.255.255.255", false),
            ("11.0.0.0", false),
            ("192.0.2.6", false),
            ("192.0.2.7", true),
            ("192.0.2.9", true),
            ("192.0.2.10", false),
            ("::ffff:10.1.2.3", true),
            ("2001:DB8::1", true),
            ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("2001:db9::", false),
            ("::", false),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false),
        ];
        for (text, expected) in rows {
            assert_eq!(set.contains(address(text)), expected, "{text:?}");
        }
    }

    #[test]
    fn the_whole_of_a_family_does_not_hold_the_other() {
        let all_of_ipv4 = set(&["0.0.0.0/0"]);
        assert!(all_of_ipv4.contains(address("255.255.255.255")) && !all_of_ipv4.contains(address("2001:db8::1")));
        let everything = set(&["::/0", "192.0.2.0/24"]);
        let last = address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        assert!(everything.contains(last) && everything.contains(address("192.0.2.1")));
        assert!(set(&[]).is_empty() && !set(&[]).contains(last));
    }
}
