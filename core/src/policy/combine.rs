//! Several policies for one route: their limits are one decision, all or nothing.

use std::cell::RefCell;

use super::{FailureMode, Limit, Policy, attributes};
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
