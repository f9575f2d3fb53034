//! From JSON to a [`PolicySet`]: reads every field, notes every fault, and only a file without faults loads.

use super::error::PolicyErrors;
use super::names::{NAME_EXPECTED, is_name, read as name};
use super::node::{Node, describe_text};
use super::reader::{Members, Place};
use super::{FailureMode, HeaderMode, Policy, PolicySet};
use crate::client_address::AddressSource;
use crate::normalize::PathRules;
use crate::policy::Limit;
use crate::policy::{limit, request, routes};
use crate::route::Routes;

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
            errors.push("$", format!("what cannot be read as JSON ({error})"), "a policy file");
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

const FILE_FIELDS: [&str; 9] = [
    "version",
    "namespace",
    "client_address",
    "paths",
    "rate_limit_headers",
    "policies",
    "routes",
    "policy_from_route_metadata",
    "default_policy",
];
/// The most policies in a file and limits in a policy.
const POLICIES_MAX: usize = 1_000;
const LIMITS_MAX: usize = 16;

fn read_file(place: &Place<'_>, options: LoadOptions, errors: &mut PolicyErrors) -> Option<PolicySet> {
    let file = place.object(errors, "an object: a policy file")?;
    read_version(&file, errors);
    let namespace = file.optional("namespace").map_or(Some("default".to_owned()), |place| name(&place, errors));
    let address = file.optional("client_address");
    let address = address.map_or(Some(Default::default()), |place| request::read_client_address(&place, errors));
    let path_rules =
        file.optional("paths").map_or(Some(PathRules::default()), |place| request::read_path_rules(&place, errors));
    let headers =
        file.optional("rate_limit_headers").map_or(Some(HeaderMode::Rt), |place| read_header_mode(&place, errors));
    let scope = limit::Scope {
        namespace: namespace.as_deref().unwrap_or("default"),
        prefixes: address.unwrap_or_default().1,
        options,
    };
    let policies = file.required("policies", errors, "the policies, by name");
    let names = policies.as_ref().and_then(policy_names);
    let policies = policies.and_then(|place| read_policies(&place, &scope, errors));
    let context = routes::Context { policies: names.as_deref(), rules: path_rules.unwrap_or_default() };
    let routes = file.optional("routes").map_or(Some(Vec::new()), |place| routes::read(&place, context, errors));
    let from_metadata = file.optional("policy_from_route_metadata").map_or(Some(false), |place| place.boolean(errors));
    let default_policy =
        file.optional("default_policy").map(|place| routes::policy_index(&place, names.as_deref(), errors));
    file.finish(errors, &FILE_FIELDS);
    let (address_source, address_prefixes) = address?;
    let set = PolicySet {
        namespace: namespace?,
        address_prefixes,
        address_source,
        path_rules: path_rules?,
        rate_limit_headers: headers?,
        routes: Routes::new(routes?),
        policy_from_route_metadata: from_metadata?,
        default_policy: default_policy.flatten(),
        policies: with_attributes(policies?, address_source),
    };
    routes::note_unknown_parameters(&set, file.path(), errors);
    Some(set)
}

fn read_version(file: &Members<'_>, errors: &mut PolicyErrors) {
    let expected = "1, the version of this format";
    if let Some(version) = file.required("version", errors, expected).filter(|place| *place.node != Node::Number(1.0)) {
        version.reject(errors, expected);
    }
}

/// The names that routes may use, known even when the policies themselves are faulty; `None` when there is no list.
fn policy_names<'a>(policies: &Place<'a>) -> Option<Vec<&'a str>> {
    match policies.node {
        Node::Object(members) => Some(members.iter().map(|(name, _)| name.as_str()).collect()),
        _ => None,
    }
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
        errors.push(&place.path, format!("the name {}", describe_text(name)), NAME_EXPECTED);
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
    Some(Policy {
        name: name.to_owned(),
        attributes: Vec::new(),
        limits: limits?,
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
    note_repeated_names(&places, errors);
    limits
}

fn note_repeated_names(limits: &[Place<'_>], errors: &mut PolicyErrors) {
    let names: Vec<Option<&str>> = limits.iter().map(|place| place.node.member("name")?.as_text()).collect();
    for (index, (name, place)) in names.iter().zip(limits).enumerate() {
        let Some(name) = name.filter(|_| names.iter().take(index).any(|earlier| earlier == name)) else { continue };
        errors.push(
            &format!("{}.name", place.path),
            format!("{} a second time", describe_text(name)),
            "a name that no other limit of the policy has",
        );
    }
}

/// Lists what the host must look up, each once, now that the source of client addresses is known.
fn with_attributes(mut policies: Vec<Policy>, source: AddressSource) -> Vec<Policy> {
    for policy in &mut policies {
        let needed = policy.limits.iter().flat_map(Limit::attributes);
        for attribute in needed.flat_map(|attribute| source.attributes_for(attribute)) {
            if !policy.attributes.contains(&attribute) {
                policy.attributes.push(attribute);
            }
        }
    }
    policies
}
