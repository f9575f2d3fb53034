//! The values of key parts for one request: from its selection, and from what the host looked up.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::identity::{Attribute, Identity, IdentityHasher, KeyPart};
use crate::parameters;
use crate::policy::{Limit, MissingKey, NoNumber, PolicySet};
use crate::selection::Selection;

/// What is known of one request.
pub(crate) struct Values<'a> {
    pub policies: &'a PolicySet,
    pub selection: &'a Selection,
    /// What was asked for, and what the host found, in the same order.
    pub attributes: &'a [Attribute],
    pub found: &'a [Option<Vec<u8>>],
}

impl<'a> Values<'a> {
    /// The store key of the limit for this request, or the part that is missing. The identity is the hash tag, so that
    /// all limits of one identity share a cluster slot.
    pub fn store_key<'l>(&self, limit: &'l Limit) -> Result<String, &'l KeyPart> {
        let identity = self.hash(IdentityHasher::default(), &limit.key, &limit.on_missing_key)?;
        Ok(identity.store_key(&limit.store_key_prefix, ""))
    }

    /// The identity of the parts, behind what `hasher` has taken already, or the part that is missing.
    pub fn hash<'l>(
        &self,
        mut hasher: IdentityHasher,
        key: &'l [KeyPart],
        on_missing: &'l MissingKey,
    ) -> Result<Identity, &'l KeyPart> {
        for part in key {
            match (self.value(part), on_missing) {
                (Some(value), _) => hasher.push(part, &value),
                // Hashed as the part it is: it never equals a value of the part that it stands in for.
                (None, MissingKey::Fallback(other)) => hasher.push(other, &self.value(other).ok_or(other)?),
                (None, MissingKey::Reject(_) | MissingKey::Skip) => return Err(part),
            }
        }
        Ok(hasher.finish())
    }

    /// The parts that the store key is made of, each with its value; a part that stands in follows the missing one.
    pub fn identity<'l>(&self, limit: &'l Limit) -> Vec<(&'l KeyPart, Option<Vec<u8>>)> {
        let mut parts = Vec::with_capacity(limit.key.len());
        for part in &limit.key {
            let value = self.value(part).map(Cow::into_owned);
            let stands_in = match (&value, &limit.on_missing_key) {
                (None, MissingKey::Fallback(other)) => Some(other),
                _ => None,
            };
            parts.push((part, value));
            parts.extend(stands_in.map(|other| (other, self.value(other).map(Cow::into_owned))));
        }
        parts
    }

    /// The value of a part; `None` when the request lacks it.
    pub fn value<'v>(&self, part: &'v KeyPart) -> Option<Cow<'v, [u8]>>
    where
        'a: 'v,
    {
        let selection = self.selection;
        match part {
            KeyPart::Method => Some(Cow::Borrowed(selection.method().as_bytes())),
            KeyPart::Host => Some(Cow::Borrowed(selection.host().as_bytes())).filter(|host| !host.is_empty()),
            KeyPart::Path => Some(Cow::Borrowed(selection.path().as_bytes())),
            KeyPart::Constant(text) => Some(Cow::Borrowed(text.as_bytes())),
            KeyPart::Route => Some(Cow::Borrowed(self.route().map_or("", |route| &route.pattern).as_bytes())),
            KeyPart::PathParameter(name) => {
                self.route()?.path.parameter(name, selection.path()).map(|value| Cow::Borrowed(value.as_bytes()))
            }
            KeyPart::Query(name) => parameters::query(selection.query(), name).filter(|value| !value.is_empty()),
            KeyPart::Cookie(name) => {
                parameters::cookie(self.header("cookie")?, name).filter(|value| !value.is_empty()).map(Cow::Borrowed)
            }
            KeyPart::Header(name) => self.header(name).filter(|value| !value.is_empty()).map(Cow::Borrowed),
            KeyPart::Metadata(path) => {
                let is_wanted = |asked: &Attribute| matches!(asked, Attribute::Metadata(known) if known == path);
                self.attribute(is_wanted).filter(|value| !value.is_empty()).map(Cow::Borrowed)
            }
            KeyPart::ClientAddress => self.client_network().map(|network| Cow::Owned(network.into_bytes())),
        }
    }

    fn route(&self) -> Option<&'a crate::route::Route> {
        self.policies.routes.get(self.selection.route()?)
    }

    fn client_network(&self) -> Option<String> {
        self.policies.address_prefixes.network_of(self.client_address()?)
    }

    /// The client's address, whole.
    pub fn client_address(&self) -> Option<IpAddr> {
        let address = self.attribute(|asked| *asked == Attribute::ClientAddress);
        self.policies.address_source.address(address, self.header(crate::client_address::FORWARDED_FOR))
    }

    /// What the request costs the limit.
    pub fn cost(&self, limit: &Limit) -> Result<u64, NoNumber> {
        limit.cost.read(limit.cost.header().and_then(|name| self.header(name)))
    }

    /// The first override whose conditions all hold. A part that conditions name one after the other is looked up once.
    pub fn override_index(&self, limit: &Limit) -> Option<usize> {
        let mut last: Option<(&KeyPart, Option<Cow<'_, [u8]>>)> = None;
        limit.overrides.iter().position(|one| {
            one.when.iter().all(|condition| {
                if last.as_ref().is_none_or(|(part, _)| **part != condition.part) {
                    last = Some((&condition.part, self.value(&condition.part)));
                }
                let value = last.as_ref().and_then(|(_, value)| value.as_deref());
                value.is_some_and(|value| condition.holds(value))
            })
        })
    }

    /// A header that was looked up.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.attribute(|asked| matches!(asked, Attribute::Header(known) if known == name))
    }

    fn attribute(&self, is_wanted: impl Fn(&Attribute) -> bool) -> Option<&'a [u8]> {
        let position = self.attributes.iter().position(is_wanted)?;
        self.found.get(position)?.as_deref()
    }
}
