//! Reads the routes of a policy file: what they match, and the policy that they name.

use super::combine::PolicyNames;
use super::error::PolicyErrors;
use super::names::{is_host, is_name};
use super::reader::Place;
use crate::normalize;
use crate::route::{HostMatch, PathMatch, Route};

const ROUTES_MAX: usize = 10_000;

/// Reads the list of routes; `policies` are the names they may use, when those are known.
pub(super) fn read(place: &Place<'_>, policies: &PolicyNames<'_>, errors: &mut PolicyErrors) -> Option<Vec<Route>> {
    let places = place.list(errors, "a list of routes")?;
    if places.len() > ROUTES_MAX {
        place.reject(errors, format!("at most {ROUTES_MAX} routes"));
    }
    places.iter().map(|place| read_route(place, policies, errors)).collect::<Vec<_>>().into_iter().collect()
}

fn read_route(place: &Place<'_>, policies: &PolicyNames<'_>, errors: &mut PolicyErrors) -> Option<Route> {
    let object = place.object(errors, "an object: a route with match and policy")?;
    let matching = object
        .required("match", errors, "an object with host, path or methods")
        .and_then(|place| read_match(&place, errors));
    let policy = policies.read(&object, errors);
    object.finish(errors, &["match", "policy", "policies"]);
    let (host, path, methods) = matching?;
    Some(Route { host, path, methods, policy: policy? })
}

/// The index of the policy that is named at `place`.
pub(super) fn policy_index(place: &Place<'_>, policies: Option<&[&str]>, errors: &mut PolicyErrors) -> Option<usize> {
    let text = place.text(errors, "the name of a policy")?;
    // Without a list of policies no name is known: do not blame the route.
    let policies = policies?;
    let index = policies.iter().position(|name| *name == text);
    if index.is_none() {
        place.reject(errors, format!("the name of a policy of this file: {}", offered(policies)));
    }
    index
}

const NAMES_OFFERED_MAX: usize = 10;

fn offered(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().copied().filter(|name| is_name(name)).take(NAMES_OFFERED_MAX).collect();
    match names.len().saturating_sub(shown.len()) {
        _ if names.is_empty() => "it has none".into(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn read_match(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<(HostMatch, PathMatch, Vec<String>)> {
    let object = place.object(errors, "an object with host, path or methods")?;
    let host = object.optional("host").map_or(Some(HostMatch::Any), |place| read_host(&place, errors));
    let path = object.optional("path").map_or(Some(PathMatch::Any), |place| read_path(&place, errors));
    let methods = object.optional("methods").map_or(Some(Vec::new()), |place| read_methods(&place, errors));
    object.finish(errors, &["host", "path", "methods"]);
    Some((host?, path?, methods?))
}

fn read_host(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<HostMatch> {
    let expected = "a host such as \"api.example.com\" or \"*.example.com\", without port";
    let text = place.text(errors, expected)?;
    let (suffix, name) = match text.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let plain = name.strip_suffix('.').unwrap_or(name);
    // A host with a port is shorter once normalised, and what no request can carry would never match.
    if !is_host(plain) || normalize::host(plain).len() != plain.len() {
        place.reject(errors, expected);
        return None;
    }
    let name = normalize::host(plain);
    Some(if suffix { HostMatch::Suffix(format!(".{name}")) } else { HostMatch::Exact(name) })
}

fn read_path(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<PathMatch> {
    let expected = "a path such as \"/v1/login\", or \"/v1/*\" for everything below /v1";
    let text = place.text(errors, expected)?;
    let (prefix, path) = match text.strip_suffix("/*") {
        Some(rest) => (true, if rest.is_empty() { "/" } else { rest }),
        None => (false, text),
    };
    if !path.starts_with('/') || path.contains(['*', '?', '#', '{', '}']) {
        place.reject(errors, expected);
        return None;
    }
    let path = normalize::path(path);
    Some(match (prefix, path.as_str()) {
        (true, "/") => PathMatch::Any,
        (true, _) => PathMatch::Prefix(format!("{path}/")),
        (false, _) => PathMatch::Exact(path),
    })
}

/// Reads a list of methods.
pub(super) fn read_methods(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<String>> {
    let places = place.list(errors, "a list of methods such as [\"GET\", \"POST\"]")?;
    if places.is_empty() {
        place.reject(errors, "at least one method; leave the field out for all of them");
    }
    let is_method = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    let mut read = |place: &Place<'_>| {
        let expected = "a method in upper case, such as \"POST\"";
        let text = place.text(errors, expected)?;
        if !is_method(text) {
            place.reject(errors, expected);
        }
        Some(text.to_owned())
    };
    places.iter().map(&mut read).collect::<Vec<_>>().into_iter().collect()
}
