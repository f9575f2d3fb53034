//! Reads how many requests of a policy may run at once: one more limit, whose units are given back when a request ends.

use super::error::PolicyErrors;
use super::limit::{self, Own};
use super::names::read as name;
use super::reader::Place;
use super::units::duration_us_between;
use super::{Limit, LimitId, key, numbers};
use crate::algorithm::{CONCURRENCY_MAX, Concurrency};

const LEASE_US: u64 = 30_000_000;

/// Reads the concurrency of the policy named `policy`; `id` is its place behind the limits, which have the names `taken`.
pub(super) fn read(
    (policy, id): (&str, LimitId),
    taken: &[&str],
    place: &Place<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Limit> {
    let object = place.object(errors, "an object with limit and key")?;
    let name = object.or("name", "concurrency".to_owned(), errors, |place, errors| name(place, errors));
    if name.as_deref().is_some_and(|name| taken.contains(&name)) {
        let expected = "a name that no limit of the policy has";
        errors.push(&format!("{}.name", object.path()), "the name of one of the limits", expected);
    }
    let limit = object
        .required("limit", errors, "a whole number of requests at once, at least 1")
        .and_then(|place| place.whole(errors, 1..=CONCURRENCY_MAX, ""));
    let lease = object.or("lease", LEASE_US, errors, |place, errors| duration_us_between(place, "1s", "1h", errors));
    let key = object.required("key", errors, "a list of key parts").and_then(|place| key::read(&place, errors));
    let on_missing_key = key::read_on_missing(&object, key.as_deref(), errors);
    let enforce = object.or("enforce", true, errors, |place, errors| place.boolean(errors));
    object.finish(errors, &["limit", "lease", "key", "on_missing_key", "enforce", "name"]);
    let (name, key) = (name?, key?);
    let rule = Concurrency::new(limit?, lease?).ok()?;
    // A deadline further ahead than the lease is taken for one that a clock has left behind, so slots of different leases
    // do not stand under one key.
    let meaning = limit::meaning_of(format!("concurrency {}", rule.lease_us()), &key, scope.prefixes);
    let own = Own {
        stored_as: (format!("{policy}.{name}"), meaning),
        name,
        base: numbers::concurrency_grant(rule),
        key,
        on_missing_key: on_missing_key?,
        enforce: enforce?,
    };
    Some(limit::own(id, own, scope))
}

#[cfg(test)]
mod tests {
    use super::super::PolicySet;
    use super::super::load::LoadOptions;

    fn policies(members: &str) -> PolicySet {
        let json = format!(r#"{{"version": 1, "namespace": "n", "policies": {{"p": {{{members}}}}}}}"#);
        PolicySet::from_json(json.as_bytes(), LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn it_is_one_more_limit_behind_the_others() {
        let limit =
            r#""limits": [{"name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["method"]}]"#;
        let set = policies(&format!(r#""concurrency": {{"limit": 3, "key": ["host"]}}, {limit}"#));
        let [first, second] = &*set.policies[0].limits else { panic!("two limits") };
        assert_eq!((first.member(), second.member()), ("limits[0]".to_owned(), "concurrency".to_owned()));
        assert_eq!((second.label.as_str(), second.id.limit), ("concurrency", 1));
        assert_eq!(second.base.quota, ";q=3;qu=\"concurrent-requests\"");
        assert_eq!((second.base.algorithm.allowance(), second.base.algorithm.window_us()), (3, 30_000_000));
        assert_eq!(second.base.script_numbers, b"$1\r\n3\r\n$8\r\n30000000\r\n", "the owner follows");
        assert!(second.store_key_prefix.starts_with("n:p.concurrency:"), "{}", second.store_key_prefix);
    }

    #[test]
    fn its_slots_are_kept_when_their_number_changes_and_not_their_lease_or_key() {
        let prefix = |members: &str| policies(members).policies[0].limits[0].store_key_prefix.clone();
        let before = prefix(r#""concurrency": {"limit": 3, "key": ["host"]}"#);
        assert_eq!(prefix(r#""concurrency": {"limit": 9, "lease": "30s", "key": ["host"], "enforce": false}"#), before);
        assert_ne!(prefix(r#""concurrency": {"limit": 3, "lease": "1m", "key": ["host"]}"#), before);
        assert_ne!(prefix(r#""concurrency": {"limit": 3, "key": ["route"]}"#), before);
    }
}
