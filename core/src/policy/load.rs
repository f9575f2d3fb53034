//! From JSON to a [`PolicySet`]: reads every field, notes every fault, and only a file without faults loads.

use super::error::PolicyErrors;
use super::node::Node;
use super::reader::{Members, Place};
use super::{FailureMode, HeaderMode, Policy, PolicySet};
use crate::identity::{AddressPrefixes, Attribute};
use crate::policy::Limit;
use crate::route::{HostMatch, PathMatch, Route, Routes};
use crate::{normalize, policy::limit};

/// What the host adds to a policy file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadOptions {
    /// The part of each limit that one instance grants when it limits by itself, above 0 and at most 1.
    pub local_share: f64,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { local_share: 1.0 }
    }
}

impl PolicySet {
    /// Loads a policy file.
    ///
    /// # Errors
    /// Every fault of the file, or the one syntax error that makes it no JSON.
    pub fn from_json(json: &[u8], options: LoadOptions) -> Result<PolicySet, PolicyErrors> {
        let node = Node::parse(json).map_err(|error| {
            let mut errors = PolicyErrors::default();
            errors.push("$", format!("no JSON ({error})"), "a policy file");
            errors
        })?;
        PolicySet::from_place(&Place::root(&node), options)
    }

    /// Loads a policy that is part of a larger document.
    ///
    /// # Errors
    /// Every fault, with paths from the root of that document.
    pub fn from_place(place: &Place<'_>, options: LoadOptions) -> Result<PolicySet, PolicyErrors> {
        let mut errors = PolicyErrors::default();
        let policies = read_file(place, options, &mut errors);
        errors.or(policies)
    }
}

const FILE_FIELDS: [&str; 7] =
    ["version", "namespace", "client_address", "rate_limit_headers", "policies", "routes", "default_policy"];
/// The most policies in a file and limits in a policy.
const POLICIES_MAX: usize = 1_000;
const LIMITS_MAX: usize = 16;
const ROUTES_MAX: usize = 10_000;

fn read_file(place: &Place<'_>, options: LoadOptions, errors: &mut PolicyErrors) -> Option<PolicySet> {
    let file = place.object(errors, "an object: a policy file")?;
    read_version(&file, errors);
    let namespace = file.optional("namespace").map_or(Some("default".to_owned()), |place| name(&place, errors));
    let address_prefixes =
        file.optional("client_address").map_or(Some(AddressPrefixes::default()), |place| read_prefixes(&place, errors));
    let headers =
        file.optional("rate_limit_headers").map_or(Some(HeaderMode::Rt), |place| read_header_mode(&place, errors));
    let scope = limit::Scope {
        namespace: namespace.as_deref().unwrap_or("default"),
        prefixes: address_prefixes.unwrap_or_default(),
        options,
    };
    let policies = file
        .required("policies", errors, "the policies, by name")
        .and_then(|place| read_policies(&place, &scope, errors));
    let names: Option<Vec<&str>> =
        policies.as_ref().map(|policies| policies.iter().map(|policy| policy.name.as_str()).collect());
    let routes =
        file.optional("routes").map_or(Some(Vec::new()), |place| read_routes(&place, names.as_deref(), errors));
    let default_policy = file.optional("default_policy").map(|place| policy_index(&place, names.as_deref(), errors));
    file.finish(errors, &FILE_FIELDS);
    Some(PolicySet {
        namespace: namespace?,
        address_prefixes: address_prefixes?,
        rate_limit_headers: headers?,
        routes: Routes::new(routes?),
        default_policy: default_policy.flatten(),
        policies: policies?,
    })
}

fn read_version(file: &Members<'_>, errors: &mut PolicyErrors) {
    if let Some(version) = file.required("version", errors, "1, the version of this format") {
        version.whole(errors, 1, 1);
    }
}

/// Names become parts of store keys, metric names and header items: letters, digits, `-` and `_`.
pub(super) fn name(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<String> {
    let expected = "a name of 1 to 64 letters, digits, '-' or '_'";
    let text = place.text(errors, expected)?;
    if !is_name(text) {
        place.reject(errors, expected);
        return None;
    }
    Some(text.to_owned())
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

fn read_prefixes(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<AddressPrefixes> {
    let object = place.object(errors, "an object with ipv4_prefix and ipv6_prefix")?;
    let defaults = AddressPrefixes::default();
    let source = object.optional("source").map_or(Some(()), |place| place.choice(errors, &[("host", ())]));
    let mut prefix = |name: &str, default: u8, max: u64| match object.optional(name) {
        None => Some(default),
        Some(place) => place.whole(errors, 0, max).and_then(|bits| u8::try_from(bits).ok()),
    };
    let ipv4 = prefix("ipv4_prefix", defaults.ipv4, 32);
    let ipv6 = prefix("ipv6_prefix", defaults.ipv6, 128);
    object.finish(errors, &["source", "ipv4_prefix", "ipv6_prefix"]);
    source?;
    Some(AddressPrefixes { ipv4: ipv4?, ipv6: ipv6? })
}

fn read_header_mode(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<HeaderMode> {
    place.choice(errors, &[("rt", HeaderMode::Rt), ("off", HeaderMode::Off)])
}

fn read_policies(place: &Place<'_>, scope: &limit::Scope<'_>, errors: &mut PolicyErrors) -> Option<Vec<Policy>> {
    let object = place.object(errors, "an object: policies by name")?;
    let members = object.all();
    if members.len() > POLICIES_MAX {
        errors.push(object.path(), format!("{} policies", members.len()), format!("at most {POLICIES_MAX}"));
    }
    object.finish(errors, &[]);
    members
        .into_iter()
        .map(|(name, place)| read_policy(name, &place, scope, errors))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

fn read_policy(name: &str, place: &Place<'_>, scope: &limit::Scope<'_>, errors: &mut PolicyErrors) -> Option<Policy> {
    if !is_name(name) {
        errors.push(
            &place.path,
            format!("the name {:?}", Node::Text(name.into()).describe()),
            "a name of 1 to 64 letters, digits, '-' or '_'",
        );
    }
    let object = place.object(errors, "an object: a policy")?;
    let limits = object
        .required("limits", errors, "a list of limits")
        .and_then(|place| read_limits(name, &place, scope, errors));
    let modes = [("local", FailureMode::Local), ("allow", FailureMode::Allow), ("deny", FailureMode::Deny)];
    let on_failure = object
        .optional("limits_on_store_failure")
        .map_or(Some(FailureMode::Local), |place| place.choice(errors, &modes));
    object.finish(errors, &["limits", "limits_on_store_failure"]);
    let limits = limits?;
    Some(Policy {
        name: name.to_owned(),
        attributes: attributes(&limits),
        limits,
        limits_on_store_failure: on_failure?,
    })
}

fn read_limits(
    policy: &str,
    place: &Place<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Vec<Limit>> {
    let places = place.list(errors, "a list of limits")?;
    if places.is_empty() || places.len() > LIMITS_MAX {
        place.reject(errors, format!("a list of 1 to {LIMITS_MAX} limits"));
    }
    let limits: Option<Vec<Limit>> =
        places.iter().map(|place| limit::read(policy, place, scope, errors)).collect::<Vec<_>>().into_iter().collect();
    let limits = limits?;
    for (index, (limit, place)) in limits.iter().zip(&places).enumerate() {
        if limits.iter().take(index).any(|earlier| earlier.name == limit.name) {
            errors.push(
                &format!("{}.name", place.path),
                format!("{:?} a second time", limit.name),
                "a name that no other limit of the policy has",
            );
        }
    }
    Some(limits)
}

fn attributes(limits: &[Limit]) -> Vec<Attribute> {
    let mut needed: Vec<Attribute> = Vec::new();
    for attribute in limits.iter().flat_map(|limit| &limit.key).filter_map(|part| part.attribute()) {
        if !needed.contains(&attribute) {
            needed.push(attribute);
        }
    }
    needed
}

fn read_routes(place: &Place<'_>, policies: Option<&[&str]>, errors: &mut PolicyErrors) -> Option<Vec<Route>> {
    let places = place.list(errors, "a list of routes")?;
    if places.len() > ROUTES_MAX {
        place.reject(errors, format!("at most {ROUTES_MAX} routes"));
    }
    places.iter().map(|place| read_route(place, policies, errors)).collect::<Vec<_>>().into_iter().collect()
}

fn read_route(place: &Place<'_>, policies: Option<&[&str]>, errors: &mut PolicyErrors) -> Option<Route> {
    let object = place.object(errors, "an object: a route with match and policy")?;
    let matching = object
        .required("match", errors, "an object with host, path or methods")
        .and_then(|place| read_match(&place, errors));
    let policy = object
        .required("policy", errors, "the name of a policy")
        .and_then(|place| policy_index(&place, policies, errors));
    object.finish(errors, &["match", "policy"]);
    let (host, path, methods) = matching?;
    Some(Route { host, path, methods, policy: policy? })
}

fn policy_index(place: &Place<'_>, policies: Option<&[&str]>, errors: &mut PolicyErrors) -> Option<usize> {
    let text = place.text(errors, "the name of a policy")?;
    // When the policies themselves are faulty, their names are not known: do not blame the route.
    let policies = policies?;
    let index = policies.iter().position(|name| *name == text);
    if index.is_none() {
        place.reject(errors, format!("the name of a policy of this file: {}", policies.join(", ")));
    }
    index
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
    let plain = !name.is_empty()
        && !name.contains(['*', '/', ' ', '@'])
        && normalize::host(name).len() == name.trim_end_matches('.').len();
    if !plain {
        place.reject(errors, expected);
        return None;
    }
    let name = normalize::host(name);
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

fn read_methods(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<String>> {
    let places = place.list(errors, "a list of methods such as [\"GET\", \"POST\"]")?;
    if places.is_empty() {
        place.reject(errors, "at least one method; leave the field out for all of them");
    }
    let is_method = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    let mut read = |place: &Place<'_>| {
        let text = place.text(errors, "a method in upper case")?;
        if !is_method(text) {
            place.reject(errors, "a method in upper case, such as \"POST\"");
        }
        Some(text.to_owned())
    };
    places.iter().map(&mut read).collect::<Vec<_>>().into_iter().collect()
}
