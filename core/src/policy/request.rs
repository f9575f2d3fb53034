//! Reads how requests are understood: where the client's address comes from, and which paths are the same.

use super::error::PolicyErrors;
use super::reader::{Members, Place};
use crate::client_address::AddressSource;
use crate::identity::AddressPrefixes;
use crate::normalize::{PathCase, PathRules, TrailingSlash};

const TRUSTED_HOPS_MAX: u64 = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    ForwardedFor,
    Host,
}

/// Reads `client_address`.
pub(super) fn read_client_address(
    place: &Place<'_>,
    errors: &mut PolicyErrors,
) -> Option<(AddressSource, AddressPrefixes)> {
    let object = place.object(errors, "an object with source, ipv4_prefix and ipv6_prefix")?;
    let source = read_source(&object, errors);
    let defaults = AddressPrefixes::default();
    let mut prefix = |name: &str, default: u8, max: u64| match object.optional(name) {
        None => Some(default),
        Some(place) => place.whole(errors, 1..=max, " bits").and_then(|bits| u8::try_from(bits).ok()),
    };
    let ipv4 = prefix("ipv4_prefix", defaults.ipv4, 32);
    let ipv6 = prefix("ipv6_prefix", defaults.ipv6, 128);
    object.finish(errors, &["source", "trusted_hops", "ipv4_prefix", "ipv6_prefix"]);
    Some((source?, AddressPrefixes { ipv4: ipv4?, ipv6: ipv6? }))
}

fn read_source(object: &Members<'_>, errors: &mut PolicyErrors) -> Option<AddressSource> {
    let choices = [("host", Source::Host), ("x-forwarded-for", Source::ForwardedFor)];
    let source = object.optional("source").map_or(Some(Source::Host), |place| place.choice(errors, &choices));
    if source? == Source::Host {
        if let Some(hops) = object.optional("trusted_hops") {
            hops.reject(errors, "nothing, or \"source\": \"x-forwarded-for\", whose entries it counts from the right");
        }
        return Some(AddressSource::Host);
    }
    let hops = object
        .required("trusted_hops", errors, "how many entries of the header, from the right, trusted proxies wrote")?
        .whole(errors, 1..=TRUSTED_HOPS_MAX, "; to ignore the header, \"source\": \"host\"")?;
    Some(AddressSource::ForwardedFor { trusted_hops: usize::try_from(hops).ok()? })
}

/// Reads `paths`.
pub(super) fn read_path_rules(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<PathRules> {
    let object = place.object(errors, "an object with trailing_slash and case")?;
    let slashes = [("ignore", TrailingSlash::Ignore), ("distinct", TrailingSlash::Distinct)];
    let cases = [("sensitive", PathCase::Sensitive), ("insensitive", PathCase::Insensitive)];
    let trailing_slash = object
        .optional("trailing_slash")
        .map_or(Some(TrailingSlash::default()), |place| place.choice(errors, &slashes));
    let case = object.optional("case").map_or(Some(PathCase::default()), |place| place.choice(errors, &cases));
    object.finish(errors, &["trailing_slash", "case"]);
    Some(PathRules { trailing_slash: trailing_slash?, case: case? })
}
