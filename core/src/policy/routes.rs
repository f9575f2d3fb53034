//! Reads the routes of a policy file: what they match, and the policy that they name.

use std::collections::HashMap;

use super::PolicySet;
use super::combine::PolicyNames;
use super::error::PolicyErrors;
use super::names::{is_header_name, is_host, is_name};
use super::node::Node;
use super::reader::Place;
use super::{route_path, suggest};
use crate::identity::KeyPart;
use crate::normalize::{self, PathRules};
use crate::order;
use crate::route::{HeaderMatch, HostMatch, PathMatch, Route};

const ROUTES_MAX: usize = 10_000;
const HEADERS_MAX: usize = 8;
const ROUTE_NAME_BYTES_MAX: usize = 256;
const MATCH_FIELDS: [&str; 5] = ["host", "path", "methods", "headers", "route_name"];

/// What the rest of the file means for routes.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    /// The names they may use, when those are known.
    pub policies: &'a PolicyNames<'a>,
    pub rules: PathRules,
}

/// Reads the list of routes.
pub(super) fn read(place: &Place<'_>, context: Context<'_>, errors: &mut PolicyErrors) -> Option<Vec<Route>> {
    let places = place.list(errors, "a list of routes")?;
    if places.len() > ROUTES_MAX {
        place.reject(errors, format!("at most {ROUTES_MAX} routes"));
    }
    let routes: Vec<Option<Route>> = places.iter().map(|place| read_route(place, context, errors)).collect();
    note_repeated_matches(&places, &routes, errors);
    routes.into_iter().collect()
}

fn read_route(place: &Place<'_>, context: Context<'_>, errors: &mut PolicyErrors) -> Option<Route> {
    let object = place.object(errors, "an object: a route with match and policy")?;
    let matching = object
        .required("match", errors, "an object with host, path, methods, headers or route_name")
        .and_then(|place| read_match(&place, context.rules, errors));
    let policy = context.policies.read(&object, errors);
    object.finish(errors, &["match", "policy", "policies"]);
    Some(Route { policy: policy?, ..matching? })
}

/// A route that can never be reached because another matches the same is a mistake, not a matter of order.
fn note_repeated_matches(places: &[Place<'_>], routes: &[Option<Route>], errors: &mut PolicyErrors) {
    let mut known: HashMap<_, &str> = HashMap::new();
    for (place, route) in places.iter().zip(routes) {
        let Some(route) = route else { continue };
        let (methods, headers) = (order::sorted(route.methods.clone()), order::sorted(route.headers.clone()));
        let key = (route.route_name.clone(), route.host.clone(), route.path.shape(), methods, headers);
        if let Some(first) = known.get(&key) {
            let found = format!("the same match as {first}");
            errors.push(&format!("{}.match", place.path), found, "a match that no other route has");
        } else {
            known.insert(key, &place.path);
        }
    }
}

/// Notes key parts that name a parameter which no route of their policy has. `path` is that of the file.
pub(super) fn note_unknown_parameters(policies: &PolicySet, path: &str, errors: &mut PolicyErrors) {
    for (index, policy) in policies.policies.iter().enumerate() {
        for (member, part) in policy.named_parts() {
            let KeyPart::PathParameter(name) = part else { continue };
            if !has_parameter(policies, index, name) {
                let path = format!("{path}.policies.{}.{member}", policy.name);
                errors.push(&path, format!("\"path:{name}\""), parameters_expected(policies, index, name));
            }
        }
    }
}

fn has_parameter(policies: &PolicySet, policy: usize, name: &str) -> bool {
    let mut routes = policies.routes.all().iter().filter(|route| policies.applies(route.policy, policy));
    routes.any(|route| route.path.parameters().any(|known| known == name))
}

fn parameters_expected(policies: &PolicySet, policy: usize, name: &str) -> String {
    let routes = policies.routes.all().iter().enumerate().filter(|(_, route)| policies.applies(route.policy, policy));
    let shown: Vec<String> = routes
        .take(NAMES_OFFERED_MAX)
        .map(|(index, route)| format!("$.routes[{index}] is {}", route.path.text()))
        .collect();
    match shown.is_empty() {
        true => format!("a route that names this policy and whose path holds {{{name}}}"),
        false => format!("a parameter of a route of this policy: {}", shown.join(", ")),
    }
}

/// The index of the policy that is named at `place`.
pub(super) fn policy_index(place: &Place<'_>, policies: Option<&[&str]>, errors: &mut PolicyErrors) -> Option<usize> {
    let text = place.text(errors, "the name of a policy")?;
    // Without a list of policies no name is known: do not blame the route.
    let policies = policies?;
    let index = policies.iter().position(|name| *name == text);
    if index.is_none() {
        let meant = || suggest::closest(text, policies).map(|name| format!("{name:?}"));
        place.reject_for(errors, format!("the name of a policy of this file: {}", offered(policies)), meant);
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

/// Reads what a route matches; its policy is not known here.
fn read_match(place: &Place<'_>, rules: PathRules, errors: &mut PolicyErrors) -> Option<Route> {
    let object = place.object(errors, "an object with host, path, methods, headers or route_name")?;
    let host = object.optional("host").map_or(Some(HostMatch::Any), |place| read_host(&place, errors));
    let path = object.optional("path").map_or(Some(PathMatch::any()), |place| route_path::read(&place, rules, errors));
    let methods = object.optional("methods").map_or(Some(Vec::new()), |place| read_methods(&place, errors));
    let headers = object.optional("headers").map_or(Some(Vec::new()), |place| read_headers(&place, errors));
    let route_name = object.optional("route_name").map(|place| read_route_name(&place, errors));
    object.finish(errors, &MATCH_FIELDS);
    let (host, path, route_name) = (host?, path?, route_name.map_or(Some(None), |name| name.map(Some))?);
    let pattern = pattern(&host, &path, route_name.as_deref());
    Some(Route { route_name, host, path, methods: methods?, headers: headers?, policy: 0, pattern })
}

fn pattern(host: &HostMatch, path: &PathMatch, route_name: Option<&str>) -> String {
    // A host holds no slash and a pattern begins with one, so the three cannot be shifted into each other.
    let name = route_name.map(|name| format!(" {name}")).unwrap_or_default();
    format!("{}{}{name}", host.text(), path.text())
}

fn read_route_name(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<String> {
    let expected = "the name of a route of the gateway";
    let text = place.text(errors, expected)?;
    if text.is_empty() || text.len() > ROUTE_NAME_BYTES_MAX {
        place.reject(errors, expected);
        return None;
    }
    Some(text.to_owned())
}

fn read_headers(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<HeaderMatch>> {
    let object = place.object(errors, "an object such as {\"x-plan\": \"pro\"}")?;
    let members = object.all();
    if members.is_empty() || members.len() > HEADERS_MAX {
        place.reject(errors, format!("1 to {HEADERS_MAX} headers"));
    }
    object.finish(errors, &[]);
    let headers: Option<Vec<HeaderMatch>> =
        members.iter().map(|(name, place)| read_header(name, place, errors)).collect::<Vec<_>>().into_iter().collect();
    headers
}

fn read_header(name: &str, place: &Place<'_>, errors: &mut PolicyErrors) -> Option<HeaderMatch> {
    if !is_header_name(name) || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        errors.push(&place.path, "no name that a header can have", "the name of a header in lower case");
    }
    let value = match place.node {
        Node::Bool(true) => None,
        Node::Text(text) if !text.is_empty() => Some(normalize::joined_text(text)),
        _ => {
            place.reject(errors, "the value that the header must have, or true for any");
            return None;
        }
    };
    Some(HeaderMatch { name: name.to_owned(), value })
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
        place.reject_for(errors, expected, || suggest::host(text));
        return None;
    }
    let name = normalize::host(plain);
    Some(if suffix { HostMatch::Suffix(format!(".{name}")) } else { HostMatch::Exact(name) })
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
            place.reject_for(errors, expected, || suggest::method(text));
        }
        Some(text.to_owned())
    };
    places.iter().map(&mut read).collect::<Vec<_>>().into_iter().collect()
}
