//! Reads the lock of a policy: what it is on, and how its holders are treated.

use super::error::PolicyErrors;
use super::reader::Place;
use super::routes::read_methods;
use super::{Lock, claim, key, limit};

/// Reads the lock of the policy named `policy`.
pub(super) fn read(
    policy: &str,
    place: &Place<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Lock> {
    let object = place.object(errors, "an object: a lock with its key")?;
    let key = object.required("key", errors, "a list of key parts").and_then(|place| key::read(&place, errors));
    let on_missing_key = key::read_on_missing(&object, key.as_deref(), errors);
    let methods = object.or("methods", Vec::new(), errors, read_methods);
    let claim = claim::read(&object, errors);
    object.finish(errors, &[&["key", "on_missing_key", "methods"], &claim::FIELDS[..]].concat());
    let claim = claim?;
    Some(Lock {
        key: key?,
        on_missing_key: on_missing_key?,
        methods: methods?,
        lease: claim.lease,
        wait_us: claim.wait_us,
        on_store_failure: claim.on_store_failure,
        fence_header: claim.fence_header,
        problem_base: claim.problem_base,
        store_key_prefix: format!("{}:{policy}.lock:", scope.namespace),
    })
}
