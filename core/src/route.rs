//! What a route matches, and which of several goes first. Precedence is fixed: a named route of the gateway before
//! none; exact host before suffix before any, longer before shorter; then the path, segment by segment from the left:
//! literal before parameter before everything below; then methods; then more headers before fewer; then the order of the
//! file.

mod index;
mod overlap;
mod path;

use std::cmp::Reverse;

use crate::normalize;

pub use index::{Found, Routes};
pub use path::{PathMatch, Segment};

/// What a request is matched by, normalised by [`crate::normalize`].
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The name of the gateway's own route, empty when it has none.
    pub route_name: &'a str,
    /// The method as sent.
    pub method: &'a str,
    /// The normalised host, empty when missing.
    pub host: &'a str,
    /// The normalised path.
    pub path: &'a str,
}

/// One route of the file.
#[derive(Clone, Debug)]
pub struct Route {
    /// The name of the gateway's own route.
    pub route_name: Option<String>,
    /// Hosts.
    pub host: HostMatch,
    /// Paths.
    pub path: PathMatch,
    /// Methods; empty means any. `GET` includes `HEAD`.
    pub methods: Vec<String>,
    /// Headers; all of them must match.
    pub headers: Vec<HeaderMatch>,
    /// Index of the policy.
    pub policy: usize,
    /// Route name, host and path as one text: what the key part `route` counts by.
    pub pattern: String,
}

/// The host part of a match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostMatch {
    /// Any host, a missing one too.
    Any,
    /// One host.
    Exact(String),
    /// Hosts that end with this text, dot included: `*.example.com` is `.example.com`.
    Suffix(String),
}

/// A header that a request must have. One without a value counts as missing, as it does in keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeaderMatch {
    /// Its name in lower case.
    pub name: String,
    /// The value it must have; `None` for any.
    pub value: Option<String>,
}

impl Route {
    /// Whether all but the headers match.
    pub fn matches_line(&self, line: RequestLine<'_>) -> bool {
        self.route_name.as_deref().is_none_or(|name| name == line.route_name)
            && self.host.matches(line.host)
            && self.path.matches(line.path)
            && self.matches_method(line.method)
    }

    /// Whether the method matches. Servers that read methods in any case are not to be fooled.
    pub fn matches_method(&self, method: &str) -> bool {
        let is = |wanted: &str| wanted.eq_ignore_ascii_case(method);
        self.methods.is_empty() || self.methods.iter().any(|wanted| is(wanted) || (wanted == "GET" && is("HEAD")))
    }

    /// The order of routes that match the same paths of the same hosts: those that name HEAD themselves, those that name
    /// methods, the others; of these the one with more headers, and with more headers of one value.
    fn rank(&self) -> impl Ord + use<> {
        let names_head = self.methods.iter().any(|method| method == "HEAD");
        let methods = u8::from(!self.methods.is_empty()).saturating_add(u8::from(names_head));
        let with_value = self.headers.iter().filter(|header| header.value.is_some()).count();
        Reverse((methods, self.headers.len(), with_value))
    }
}

impl HostMatch {
    /// Whether a normalised host matches.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            HostMatch::Any => true,
            HostMatch::Exact(name) => name == host,
            HostMatch::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
        }
    }

    /// As policy files write it; `*` for any.
    pub fn text(&self) -> String {
        match self {
            HostMatch::Any => "*".into(),
            HostMatch::Exact(name) => name.clone(),
            HostMatch::Suffix(suffix) => format!("*{suffix}"),
        }
    }
}

impl HeaderMatch {
    /// Whether the value of the header, or its absence, matches.
    pub fn matches(&self, value: Option<&[u8]>) -> bool {
        let value = value.filter(|value| !value.is_empty());
        match &self.value {
            Some(wanted) => value.is_some_and(|value| *normalize::joined(value) == *wanted.as_bytes()),
            None => value.is_some(),
        }
    }
}
