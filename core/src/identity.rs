//! Who is being limited: typed key parts, encoded injectively and hashed to a fixed length, so that the user's text
//! never reaches a key's name and no two identities collide.

use std::net::IpAddr;

use ipnet::{Ipv4Net, Ipv6Net};
use sha2::{Digest, Sha256};

use crate::normalize;

/// A value that the host looks up for a request before a decision begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The client's address as text, with or without a port.
    ClientAddress,
    /// A request header by its lower-case name; several lines are joined by `,` in their order (RFC 9110 §5.3).
    Header(String),
    /// A scalar of the host's request metadata, such as a verified claim: filter name, then the path inside.
    Metadata(Vec<String>),
}

/// One part of a limit's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The client's network: its address cut to the configured prefix.
    ClientAddress,
    /// A request header.
    Header(String),
    /// Request metadata, verified by the host.
    Metadata(Vec<String>),
    /// The request method.
    Method,
    /// The normalised host.
    Host,
    /// The normalised path.
    Path,
    /// A cookie, by its name in the case given.
    Cookie(String),
    /// A parameter of the query, by its decoded name.
    Query(String),
    /// A parameter of the matched route's path, such as `{id}`.
    PathParameter(String),
    /// The pattern of the matched route; a request that no route matches has the empty one.
    Route,
    /// The same text for every request.
    Constant(String),
}

impl KeyPart {
    /// What the host must look up for this part, if anything.
    pub fn attribute(&self) -> Option<Attribute> {
        match self {
            KeyPart::ClientAddress => Some(Attribute::ClientAddress),
            KeyPart::Header(name) => Some(Attribute::Header(name.clone())),
            KeyPart::Metadata(path) => Some(Attribute::Metadata(path.clone())),
            KeyPart::Cookie(_) => Some(Attribute::Header("cookie".into())),
            KeyPart::Method
            | KeyPart::Host
            | KeyPart::Path
            | KeyPart::Query(_)
            | KeyPart::PathParameter(_)
            | KeyPart::Route
            | KeyPart::Constant(_) => None,
        }
    }

    /// The part as policy files write it.
    pub fn text(&self) -> String {
        match self {
            KeyPart::ClientAddress => "client_address".into(),
            KeyPart::Header(name) => format!("header:{name}"),
            KeyPart::Metadata(path) => format!("metadata:{}", metadata_text(path)),
            KeyPart::Method => "method".into(),
            KeyPart::Host => "host".into(),
            KeyPart::Path => "path".into(),
            KeyPart::Cookie(name) => format!("cookie:{name}"),
            KeyPart::Query(name) => format!("query:{name}"),
            KeyPart::PathParameter(name) => format!("path:{name}"),
            KeyPart::Route => "route".into(),
            KeyPart::Constant(text) => format!("constant:{text}"),
        }
    }

    /// Kinds never change their number: they are part of every stored key.
    fn kind(&self) -> u8 {
        match self {
            KeyPart::ClientAddress => 1,
            KeyPart::Header(_) => 2,
            KeyPart::Metadata(_) => 3,
            KeyPart::Method => 4,
            KeyPart::Host => 5,
            KeyPart::Path => 6,
            KeyPart::Constant(_) => 7,
            KeyPart::Cookie(_) => 8,
            KeyPart::Query(_) => 9,
            KeyPart::PathParameter(_) => 10,
            KeyPart::Route => 11,
        }
    }
}

/// The steps joined by dots; a step that holds a dot stands in `['…']`.
fn metadata_text(path: &[String]) -> String {
    let mut text = String::new();
    for step in path {
        match step.contains('.') {
            true => text.extend(["['", step, "']"]),
            false if text.is_empty() => text.push_str(step),
            false => text.extend([".", step]),
        }
    }
    text
}

/// How many leading bits of a client's address identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefixes {
    /// 0 to 32.
    pub ipv4: u8,
    /// 0 to 128. One subscriber usually holds a /64.
    pub ipv6: u8,
}

impl Default for AddressPrefixes {
    fn default() -> AddressPrefixes {
        AddressPrefixes { ipv4: 32, ipv6: 64 }
    }
}

impl AddressPrefixes {
    /// The network of an address given as text (`192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]:80`), in one spelling.
    /// IPv4-mapped IPv6 addresses are IPv4. `None` when the text is no address.
    pub fn network(&self, text: &str) -> Option<String> {
        self.network_of(parse_address(text)?)
    }

    /// The network of an address.
    pub fn network_of(&self, address: IpAddr) -> Option<String> {
        match address.to_canonical() {
            IpAddr::V4(address) => Ipv4Net::new(address, self.ipv4).ok().map(ipv4_text),
            IpAddr::V6(address) => Ipv6Net::new(address, self.ipv6).ok().map(|net| net.trunc().to_string()),
        }
    }
}

/// The network without what stands behind its prefix: `192.0.2.0/24`. Each request has one, and formatting it cost more
/// than hashing it.
fn ipv4_text(network: Ipv4Net) -> String {
    let mut text = String::with_capacity("255.255.255.255/32".len());
    for octet in network.network().octets() {
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(itoa::Buffer::new().format(octet));
    }
    text.push('/');
    text.push_str(itoa::Buffer::new().format(network.prefix_len()));
    text
}

/// An address given as text, with or without a port, brackets and zone.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').map_or(text, |rest| rest.split(']').next().unwrap_or(rest));
    let without_zone = bare.split('%').next().unwrap_or(bare);
    match without_zone.rsplit_once(':') {
        // An IPv6 address has at least two colons.
        Some((host, _)) if !host.contains(':') => host.parse().ok().map(IpAddr::V4),
        _ => without_zone.parse().ok(),
    }
}

/// The hash of one identity: the first half of SHA-256 over its typed, length-prefixed parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity([u8; 16]);

impl Identity {
    /// The store key between `prefix` and `suffix`: the identity as 32 lower-case hex digits in braces, which make it
    /// the hash tag.
    pub fn store_key(&self, prefix: &str, suffix: &str) -> String {
        let length = prefix.len().saturating_add(suffix.len()).saturating_add(34);
        let mut key = String::with_capacity(length);
        key.push_str(prefix);
        key.push('{');
        push_hex(&self.0, &mut key);
        key.push('}');
        key.push_str(suffix);
        key
    }
}

/// Collects the parts of one identity.
#[derive(Clone, Default)]
pub struct IdentityHasher {
    hasher: Sha256,
}

impl IdentityHasher {
    /// Adds one part and its value. The name is part of it: `header:a` never equals `header:b`. Other hosts'
    /// implementations follow `tests/vectors/store_keys.json`: the kind's byte; the name of a header, a cookie or a
    /// parameter, or the number of a metadata path's steps (8 bytes, least first) and each step; the value. Texts follow
    /// their length in 8 bytes, least first. Of the value of a header or a cookie no blanks behind commas count.
    pub fn push(&mut self, part: &KeyPart, value: &[u8]) {
        self.hasher.update([part.kind()]);
        match part {
            KeyPart::Header(name) | KeyPart::Cookie(name) | KeyPart::Query(name) | KeyPart::PathParameter(name) => {
                self.push_sized(name.as_bytes());
            }
            KeyPart::Metadata(path) => {
                self.push_count(path.len());
                path.iter().for_each(|step| self.push_sized(step.as_bytes()));
            }
            KeyPart::ClientAddress
            | KeyPart::Method
            | KeyPart::Host
            | KeyPart::Path
            | KeyPart::Route
            | KeyPart::Constant(_) => {}
        }
        match part {
            KeyPart::Header(_) | KeyPart::Cookie(_) => self.push_sized(&normalize::joined(value)),
            _ => self.push_sized(value),
        }
    }

    fn push_sized(&mut self, bytes: &[u8]) {
        self.push_count(bytes.len());
        self.hasher.update(bytes);
    }

    fn push_count(&mut self, count: usize) {
        self.hasher.update(u64::try_from(count).unwrap_or(u64::MAX).to_le_bytes());
    }

    /// The finished identity.
    pub fn finish(self) -> Identity {
        let mut half = [0; 16];
        half.iter_mut().zip(self.hasher.finalize()).for_each(|(kept, byte)| *kept = byte);
        Identity(half)
    }
}

/// Eight hex digits that change when the meaning of a limit changes: its algorithm, window and key.
pub fn meaning(texts: &[String]) -> String {
    let mut hasher = IdentityHasher::default();
    texts.iter().for_each(|text| hasher.push_sized(text.as_bytes()));
    hex(hasher.hasher.finalize().get(..4).unwrap_or_default())
}

/// Lower-case hex digits, two for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    push_hex(bytes, &mut text);
    text
}

/// Appends the same.
pub(crate) fn push_hex(bytes: &[u8], text: &mut String) {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 0xf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_one_network_whatever_the_spelling() {
        let prefixes = AddressPrefixes::default();
        let rows = [
            ("192.0.2.1", Some("192.0.2.1/32")),
            ("192.0.2.1:4711", Some("192.0.2.1/32")),
            ("::ffff:192.0.2.1", Some("192.0.2.1/32")),
            ("[::ffff:c000:201]:80", Some("192.0.2.1/32")),
            ("2001:DB8:0:0:1::1", Some("2001:db8::/64")),
            ("[2001:db8::2]:443", Some("2001:db8::/64")),
            ("fe80::1%eth0", Some("fe80::/64")),
            ("/run/envoy.sock", None),
            ("", None),
            ("192.0.2.300", None),
        ];
        for (text, network) in rows {
            assert_eq!(prefixes.network(text).as_deref(), network, "{text:?}");
        }
    }

    #[test]
    fn lines_of_a_header_are_one_identity_however_the_host_joins_them() {
        let identity = |part: KeyPart, value: &[u8]| {
            let mut hasher = IdentityHasher::default();
            hasher.push(&part, value);
            hasher.finish()
        };
        let header = || KeyPart::Header("x-tenant".into());
        assert_eq!(identity(header(), b"a,b"), identity(header(), b"a, b"));
        assert_ne!(identity(header(), b"a,b"), identity(header(), b"a b"));
        let constant = || KeyPart::Constant("c".into());
        assert_ne!(identity(constant(), b"a,b"), identity(constant(), b"a, b"));
    }

    #[test]
    fn parts_cannot_be_shifted_into_each_other() {
        let header = |name: &str| KeyPart::Header(name.into());
        let identity = |parts: &[(KeyPart, &str)]| {
            let mut hasher = IdentityHasher::default();
            parts.iter().for_each(|(part, value)| hasher.push(part, value.as_bytes()));
            hasher.finish()
        };
        let all = [
            identity(&[(header("a"), "bc"), (header("d"), "")]),
            identity(&[(header("a"), "b"), (header("d"), "c")]),
            identity(&[(header("ab"), "c"), (header("d"), "")]),
            identity(&[(header("a"), "bc"), (KeyPart::Method, "")]),
            identity(&[(header("a"), "bc")]),
            identity(&[(KeyPart::Metadata(vec!["a".into()]), "bc")]),
            identity(&[(KeyPart::Metadata(vec!["a".into(), "b".into()]), "c")]),
            identity(&[(KeyPart::Constant("a".into()), "{}\0")]),
            identity(&[(KeyPart::Metadata(vec!["a".into()]), "b"), (KeyPart::ClientAddress, "")]),
            identity(&[(KeyPart::Metadata(vec!["a".into(), "b".into()]), "\0")]),
            identity(&[]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert_eq!(one.store_key("", "").len(), 34);
            assert!(all.iter().skip(index + 1).all(|other| other != one), "row {index}");
        }
    }
}
