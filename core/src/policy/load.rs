//! From JSON to a [`PolicySet`]: reads every field, notes every fault, and only a file without faults loads.

use super::combine::PolicyNames;
use super::error::PolicyErrors;
use super::names::read as name;
use super::node::Node;
use super::reader::{Members, Place};
use super::{CustomAnswers, PolicySet, Preflights, access, answers, attributes};
use crate::normalize::PathRules;
use crate::policy::{combine, limit, policies as policy_list, request, routes};
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

const FILE_FIELDS: [&str; 17] = [
    "version",
    "namespace",
    "client_address",
    "paths",
    "enforce",
    "exempt",
    "block",
    "preflights",
    "rate_limit_headers",
    "retry_after_jitter",
    "cors",
    "denied",
    "unavailable",
    "policies",
    "routes",
    "policy_from_route_metadata",
    "default_policy",
];

fn read_file(place: &Place<'_>, options: LoadOptions, errors: &mut PolicyErrors) -> Option<PolicySet> {
    let file = place.object(errors, "an object: a policy file")?;
    read_version(&file, errors);
    let namespace = file.optional("namespace").map_or(Some("default".to_owned()), |place| name(&place, errors));
    let address = file.optional("client_address");
    let address = address.map_or(Some(Default::default()), |place| request::read_client_address(&place, errors));
    let path_rules =
        file.optional("paths").map_or(Some(PathRules::default()), |place| request::read_path_rules(&place, errors));
    let answers = answers::read_rules(&file, errors);
    let custom = answers::read_custom(&file, &CustomAnswers::default(), errors).unwrap_or_default();
    let enforce = file.optional("enforce").map_or(Some(true), |place| place.boolean(errors));
    let access = access::read(&file, errors);
    let preflights = [("exempt", Preflights::Exempt), ("count", Preflights::Count)];
    let preflights =
        file.optional("preflights").map_or(Some(Preflights::Exempt), |place| place.choice(errors, &preflights));
    let of_file = access.clone().unwrap_or_default();
    let scope = limit::Scope {
        access: &of_file,
        custom: &custom,
        enforce: enforce.unwrap_or(true),
        namespace: namespace.as_deref().unwrap_or("default"),
        source: address.unwrap_or_default().0,
        prefixes: address.unwrap_or_default().1,
        options,
    };
    let policies = file.required("policies", errors, "the policies, by name");
    let names = PolicyNames::new(policies.as_ref().and_then(policy_names));
    let policies = policies.and_then(|place| policy_list::read(&place, &scope, errors));
    let context = routes::Context { policies: &names, rules: path_rules.unwrap_or_default() };
    let routes = file.optional("routes").map_or(Some(Vec::new()), |place| routes::read(&place, context, errors));
    let from_metadata = file.optional("policy_from_route_metadata").map_or(Some(false), |place| place.boolean(errors));
    let default_policy =
        file.optional("default_policy").map(|place| routes::policy_index(&place, names.names.as_deref(), errors));
    file.finish(errors, &FILE_FIELDS);
    let (address_source, address_prefixes) = address?;
    let policies = policies?;
    let set = PolicySet {
        namespace: namespace?,
        enforce: enforce?,
        address_prefixes,
        address_source,
        path_rules: path_rules?,
        answers: answers?,
        custom,
        routes: Routes::new(routes?),
        policy_from_route_metadata: from_metadata?,
        default_policy: default_policy.flatten(),
        combinations: names.combined(&policies),
        policies,
        attributes_without_policy: attributes::without_policy(&of_file, address_source),
        access: access?,
        preflights: preflights?,
    };
    routes::note_unknown_parameters(&set, file.path(), errors);
    combine::note_clashes(&set, file.path(), errors);
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
