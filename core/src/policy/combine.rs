//! Several policies for one route: their limits are one decision, all or nothing.

use std::cell::RefCell;

use super::{FailureMode, Limit, Policy, PolicySet, attributes};
use crate::policy::error::PolicyErrors;
use crate::policy::reader::{Members, Place};
use crate::policy::routes::policy_index;

/// The most policies of a route.
const COMBINED_MAX: usize = 4;

/// The names that routes may use, and the combinations of policies that they asked for.
pub(super) struct PolicyNames<'a> {
    /// In the order of the file; `None` when there is no list.
    pub names: Option<Vec<&'a str>>,
    combinations: RefCell<Vec<Vec<usize>>>,
}

impl<'a> PolicyNames<'a> {
    pub(super) fn new(names: Option<Vec<&'a str>>) -> PolicyNames<'a> {
        PolicyNames { names, combinations: RefCell::default() }
    }

    /// Reads the policy or policies of an object: an index for [`super::PolicySet::applied`].
    pub(super) fn read(&self, object: &Members<'_>, errors: &mut PolicyErrors) -> Option<usize> {
        let several = object.optional("policies");
        match (object.optional("policy"), several) {
            (None, Some(several)) => self.read_several(&several, errors),
            (Some(_), Some(several)) => {
                several.reject(errors, "policy or policies, not both");
                None
            }
            (one, None) => {
                let place = one.or_else(|| object.required("policy", errors, "the name of a policy"))?;
                policy_index(&place, self.names.as_deref(), errors)
            }
        }
    }

    fn read_several(&self, place: &Place<'_>, errors: &mut PolicyErrors) -> Option<usize> {
        let places = place.list(errors, "a list of names of policies")?;
        if !(1..=COMBINED_MAX).contains(&places.len()) {
            place.reject(errors, format!("1 to {COMBINED_MAX} names of policies"));
        }
        let mut members: Vec<usize> = Vec::new();
        let mut all_known = true;
        for place in &places {
            match policy_index(place, self.names.as_deref(), errors) {
                Some(index) if members.contains(&index) => place.reject(errors, "each policy once"),
                Some(index) => members.push(index),
                None => all_known = false,
            }
        }
        all_known.then(|| self.index_of(members)).flatten()
    }

    fn index_of(&self, members: Vec<usize>) -> Option<usize> {
        if let [only] = *members {
            return Some(only);
        }
        let mut combinations = self.combinations.borrow_mut();
        let position = combinations.iter().position(|known| *known == members).unwrap_or_else(|| {
            combinations.push(members);
            combinations.len().saturating_sub(1)
        });
        self.names.as_ref()?.len().checked_add(position)
    }

    /// The policies that the combinations amount to.
    pub(super) fn combined(self, policies: &[Policy]) -> Vec<Policy> {
        self.combinations.into_inner().into_iter().map(|members| combine(policies, members)).collect()
    }
}

/// Notes what policies of one route cannot both have: each request has one idempotency and takes one lock, and each
/// fencing token its own header. `path` is that of the file.
pub(super) fn note_clashes(set: &PolicySet, path: &str, errors: &mut PolicyErrors) {
    for (index, route) in set.routes.all().iter().enumerate() {
        let Some(members) = set.applied(route.policy).map(|applied| &applied.members) else { continue };
        let parts = || members.iter().filter_map(|member| set.policies.get(*member));
        let note = |field: &str, found: &[&Policy], errors: &mut PolicyErrors| {
            if let [first, second, ..] = found {
                let found = format!("the policies {} and {}, both with {field}", first.name, second.name);
                errors.push(&format!("{path}.routes[{index}].policies"), found, format!("one policy with {field}"));
            }
        };
        note("idempotency", &parts().filter(|part| part.idempotency.is_some()).collect::<Vec<_>>(), errors);
        note("lock", &parts().filter(|part| part.lock.is_some()).collect::<Vec<_>>(), errors);
    }
    for applied in set.all_applied() {
        note_shared_fence(set, applied, path, errors);
    }
}

fn note_shared_fence(set: &PolicySet, applied: &Policy, path: &str, errors: &mut PolicyErrors) {
    let (Some(idempotency), Some(lock)) = (&applied.idempotency, &applied.lock) else { return };
    let mut members = applied.members.iter().filter_map(|member| set.policies.get(*member));
    let Some(locking) = members.find(|member| member.lock.is_some()) else { return };
    // What a policy has by itself is not noted again for the combinations that it is in.
    let is_its_own = locking.idempotency.is_some() && applied.members.len() > 1;
    if lock.fence_header == idempotency.fence_header && !is_its_own {
        let found = format!("{:?}, as for the idempotency of the same requests", lock.fence_header);
        let expected = "another header, such as \"lock-fencing-token\": each claim has its own token";
        errors.push(&format!("{path}.policies.{}.lock.fence_header", locking.name), found, expected);
    }
}

fn combine(policies: &[Policy], members: Vec<usize>) -> Policy {
    let parts: Vec<&Policy> = members.iter().filter_map(|index| policies.get(*index)).collect();
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    let modes = parts.iter().map(|part| part.limits_on_store_failure);
    let strictest = modes.max_by_key(|mode| strictness(*mode)).unwrap_or(FailureMode::Local);
    Policy {
        name: names.join("+"),
        limits: labelled(&parts),
        idempotency: parts.iter().find_map(|part| part.idempotency.clone()),
        lock: parts.iter().find_map(|part| part.lock.clone()),
        limits_on_store_failure: strictest,
        attributes: attributes::united(parts.iter().map(|part| part.attributes.as_slice())),
        preflight_attributes: attributes::united(parts.iter().map(|part| part.preflight_attributes.as_slice())),
        access: super::Access::default(),
        custom: super::CustomAnswers::default(),
        members,
    }
}

fn strictness(mode: FailureMode) -> u8 {
    match mode {
        FailureMode::Allow => 0,
        FailureMode::Local => 1,
        FailureMode::Deny => 2,
    }
}

/// All limits; those whose name occurs twice are told apart by their policy's name.
fn labelled(parts: &[&Policy]) -> Vec<Limit> {
    let names: Vec<&str> = parts.iter().flat_map(|part| &part.limits).map(|limit| limit.name.as_str()).collect();
    let label = |policy: &Policy, name: &str| match names.iter().filter(|other| **other == name).count() {
        1 => name.to_owned(),
        _ => format!("{}.{name}", policy.name),
    };
    let limits = parts.iter().flat_map(|part| part.limits.iter().map(move |limit| (*part, limit)));
    limits.map(|(part, limit)| Limit { label: label(part, &limit.name), ..limit.clone() }).collect()
}
