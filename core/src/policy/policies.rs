//! Reads the policies of a file, each with its limits and what it demands of requests that must not run twice.

use super::error::{PolicyErrors, Spot};
use super::names::{NAME_EXPECTED, is_name};
use super::node::describe_text;
use super::reader::{Members, Place};
use super::{
    FailureMode, Idempotency, Limit, LimitId, Lock, Policy, access, answers, attributes, concurrency, idempotency,
    limit, lock,
};

const POLICY_FIELDS: [&str; 9] = [
    "limits",
    "concurrency",
    "idempotency",
    "lock",
    "limits_on_store_failure",
    "exempt",
    "block",
    "denied",
    "unavailable",
];
/// The most policies in a file and limits in a policy.
const POLICIES_MAX: usize = 1_000;
const LIMITS_MAX: usize = 16;

/// What a policy demands of its requests.
pub(super) struct Demands {
    pub limits: Vec<Limit>,
    pub idempotency: Option<Box<Idempotency>>,
    pub lock: Option<Box<Lock>>,
}

/// Reads the policies of a file.
pub(super) fn read(place: &Place<'_>, scope: &limit::Scope<'_>, errors: &mut PolicyErrors) -> Option<Vec<Policy>> {
    let object = place.object(errors, "an object: policies by name")?;
    let members = object.all();
    if members.len() > POLICIES_MAX {
        errors.push(object.path(), format!("{} policies", members.len()), format!("at most {POLICIES_MAX}"));
    }
    object.finish(errors, &[]);
    members
        .into_iter()
        .enumerate()
        .map(|(index, (name, place))| read_policy(index, name, &place, scope, errors))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

fn read_policy(
    index: usize,
    name: &str,
    place: &Place<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Policy> {
    if !is_name(name) {
        errors.push_at(Spot::Name, &place.path, format!("the name {}", describe_text(name)), NAME_EXPECTED);
    }
    let object = place.object(errors, "an object: a policy")?;
    let demands = read_demands((index, name), &object, scope, errors);
    let modes = [("local", FailureMode::Local), ("allow", FailureMode::Allow), ("deny", FailureMode::Deny)];
    let on_failure = object
        .optional("limits_on_store_failure")
        .map_or(Some(FailureMode::Local), |place| place.choice(errors, &modes));
    let access = access::read(&object, errors);
    let custom = answers::read_custom(&object, scope.custom, errors);
    object.finish(errors, &POLICY_FIELDS);
    let (demands, access) = (demands?, access?);
    let attributes = attributes::of_policy(&demands, &access, scope);
    Some(Policy {
        name: name.to_owned(),
        limits: demands.limits,
        idempotency: demands.idempotency,
        lock: demands.lock,
        limits_on_store_failure: on_failure?,
        preflight_attributes: attributes::with_preflight(&attributes),
        attributes,
        access,
        custom: custom?,
        members: vec![index],
    })
}

fn read_demands(
    (index, name): (usize, &str),
    object: &Members<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Demands> {
    let [listed, concurrency, idempotency, lock] =
        ["limits", "concurrency", "idempotency", "lock"].map(|field| object.optional(field));
    if [&listed, &concurrency, &idempotency, &lock].iter().all(|place| place.is_none()) {
        let expected = "a list of limits, or one of the fields concurrency, idempotency, lock";
        object.required("limits", errors, expected);
        return None;
    }
    let limits = listed.map_or(Some(Vec::new()), |place| read_limits((index, name), &place, scope, errors));
    let id = |limits: &[Limit]| LimitId { policy: index, limit: limits.len() };
    let mut known = limits.clone().unwrap_or_default();
    let concurrency = concurrency.map(|place| {
        let taken: Vec<&str> = known.iter().map(|limit| limit.name.as_str()).collect();
        concurrency::read((name, id(&known)), &taken, &place, scope, errors)
    });
    let concurrency = present(concurrency);
    known.extend(concurrency.clone().flatten());
    let idempotency = idempotency.map(|place| idempotency::read(name, id(&known), &place, scope, errors).map(Box::new));
    let lock = lock.map(|place| lock::read(name, &place, scope, errors).map(Box::new));
    let (idempotency, lock) = (present(idempotency)?, present(lock)?);
    limits.zip(concurrency).map(|_| Demands { limits: known, idempotency, lock })
}

/// What was read of a field that need not be there; the outer `None` when it was there and faulty.
fn present<T>(read: Option<Option<T>>) -> Option<Option<T>> {
    match read {
        None => Some(None),
        Some(read) => read.map(Some),
    }
}

fn read_limits(
    (policy, policy_name): (usize, &str),
    place: &Place<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Vec<Limit>> {
    let places = place.list(errors, "a list of limits")?;
    if places.is_empty() || places.len() > LIMITS_MAX {
        place.reject(errors, format!("a list of 1 to {LIMITS_MAX} limits"));
    }
    let limits = places.iter().enumerate().map(|(limit, place)| {
        let id = LimitId { policy, limit };
        limit::read(policy_name, id, place, scope, errors)
    });
    let limits: Option<Vec<Limit>> = limits.collect::<Vec<_>>().into_iter().collect();
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
