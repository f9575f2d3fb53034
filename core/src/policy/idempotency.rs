//! Reads how a policy treats requests with an idempotency key.

use super::claim::{self, header_of};
use super::error::PolicyErrors;
use super::limit;
use super::node::Node;
use super::reader::{Members, Place};
use super::replay_limit::{self, Stands};
use super::routes::read_methods;
use super::units::duration_us_between;
use super::{Idempotency, LimitId, OnUnknown, Respond, fingerprint, key, stored};
use crate::identity::KeyPart;

const FIELDS: [&str; 17] = [
    "header",
    "required",
    "methods",
    "key_length",
    "scope",
    "shared_scope",
    "fingerprint",
    "retention",
    "on_unknown",
    "replay_limit",
    "respond",
    "response",
    "forward_key",
    "replayed_header",
    "attempt_header",
    "in_flight_status",
    "mismatch_status",
];
/// Readers of the header's structured form must bear this much (RFC 9651 §3.3.3).
const KEY_BYTES_MAX: u64 = 1024;
const DAY_US: u64 = 86_400_000_000;
/// What repeats without harm by itself, and what is no request to an upstream.
const METHODS_WITHOUT: [&str; 5] = ["CONNECT", "GET", "HEAD", "OPTIONS", "TRACE"];

/// Reads the idempotency of the policy named `policy`; `id` is where its replay limit counts as standing.
pub(super) fn read(
    policy: &str,
    id: LimitId,
    place: &Place<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Idempotency> {
    let object = place.object(errors, "an object with scope and on_unknown")?;
    let header = header_of(&object, "header", "idempotency-key", errors);
    let required = object.or("required", false, errors, |place, errors| place.boolean(errors));
    let methods = object.or("methods", vec!["POST".to_owned(), "PATCH".to_owned()], errors, read_changing_methods);
    let key_bytes = object.or("key_length", (1, 255), errors, read_key_length);
    let scope_parts = read_scope(&object, errors);
    let stands = Stands { policy, id, scope: scope_parts.as_deref().unwrap_or_default() };
    let fingerprint = fingerprint::read(&object, &stands, scope, errors);
    let claim = claim::read(&object, errors);
    let longest_us = claim.as_ref().map_or(0, |claim| claim.lease.max_lease_us);
    let retention_us =
        object.or("retention", DAY_US, errors, |place, errors| read_retention(place, longest_us, errors));
    let on_unknown = read_on_unknown(&object, errors);
    let replay_limit = replay_limit::read(&object, &stands, scope, errors);
    let responds = [("after_store", Respond::AfterStore), ("at_once", Respond::AtOnce)];
    let respond = object.or("respond", Respond::AfterStore, errors, |place, errors| place.choice(errors, &responds));
    let stored = stored::read(&object, errors);
    let forward_key = object.or("forward_key", true, errors, |place, errors| place.boolean(errors));
    let replayed_header = header_of(&object, "replayed_header", "idempotent-replayed", errors);
    let attempt_header = header_of(&object, "attempt_header", "idempotency-attempt", errors);
    let in_flight_status = read_status(&object, "in_flight_status", &[409, 423], errors);
    let mismatch_status = read_status(&object, "mismatch_status", &[422, 409, 400], errors);
    object.finish(errors, &[&FIELDS[..], &claim::FIELDS[..]].concat());
    let claim = claim?;
    let (fingerprint, hold_limit) = fingerprint?;
    let found = Idempotency {
        header: header?,
        required: required?,
        methods: methods?,
        key_bytes: key_bytes?,
        scope: scope_parts?,
        fingerprint,
        hold_limit,
        lease: claim.lease,
        retention_us: retention_us?,
        on_unknown: on_unknown?,
        on_store_failure: claim.on_store_failure,
        wait_us: claim.wait_us,
        replay_limit: replay_limit?,
        respond: respond?,
        stored: stored?,
        forward_key: forward_key?,
        replayed_header: replayed_header?,
        fence_header: claim.fence_header,
        attempt_header: attempt_header?,
        in_flight_status: in_flight_status?,
        mismatch_status: mismatch_status?,
        problem_base: claim.problem_base,
        store_key_prefix: format!("{}:{policy}.idempotency:", scope.namespace),
    };
    note_shared_header(&object, &found, errors);
    Some(found)
}

fn read_changing_methods(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<String>> {
    let methods = read_methods(place, errors)?;
    if let Some(method) = methods.iter().find(|method| METHODS_WITHOUT.contains(&method.as_str())) {
        errors.push(&place.path, format!("{method:?}"), "methods that change something, such as [\"POST\", \"PATCH\"]");
    }
    Some(methods)
}

fn read_key_length(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<(usize, usize)> {
    let object = place.object(errors, "an object with min and max")?;
    let bytes = |place: &Place<'_>, errors: &mut PolicyErrors| {
        place.whole(errors, 1..=KEY_BYTES_MAX, " bytes").and_then(|bytes| usize::try_from(bytes).ok())
    };
    let (min, max) = (object.or("min", 1, errors, bytes), object.or("max", 255, errors, bytes));
    object.finish(errors, &["min", "max"]);
    let (min, max) = (min?, max?);
    if min > max {
        errors.push(&place.path, format!("a min of {min} and a max of {max}"), "a min that is at most the max");
    }
    Some((min, max))
}

/// Who may use the same key for something else: at least one part must be what the gateway verified or the credential
/// itself, or a client could name another one's scope and get its responses.
fn read_scope(object: &Members<'_>, errors: &mut PolicyErrors) -> Option<Vec<KeyPart>> {
    let shared = object.or("shared_scope", false, errors, |place, errors| place.boolean(errors))?;
    let remedy = "or \"shared_scope\": true if all clients may share keys and responses";
    let place = match object.optional("scope") {
        None if shared => return Some(Vec::new()),
        Some(place) => place,
        None => {
            let expected = format!("a list of key parts such as [\"metadata:jwt_authn.sub\"], {remedy}");
            object.required("scope", errors, &expected)?
        }
    };
    let parts = key::read(&place, errors)?;
    if !shared && !parts.is_empty() && !parts.iter().any(is_credential) {
        let expected = format!(
            "at least one part that a client cannot choose: metadata such as \"metadata:jwt_authn.sub\", \
             \"header:authorization\" or the cookie of a session, {remedy}"
        );
        place.reject(errors, expected);
    }
    Some(parts)
}

fn is_credential(part: &KeyPart) -> bool {
    match part {
        KeyPart::Metadata(_) | KeyPart::Cookie(_) => true,
        KeyPart::Header(name) => name == "authorization",
        KeyPart::ClientAddress
        | KeyPart::Method
        | KeyPart::Host
        | KeyPart::Path
        | KeyPart::Query(_)
        | KeyPart::PathParameter(_)
        | KeyPart::Route
        | KeyPart::Constant(_) => false,
    }
}

fn read_retention(place: &Place<'_>, longest_us: u64, errors: &mut PolicyErrors) -> Option<u64> {
    let us = duration_us_between(place, "1s", "366d", errors)?;
    if us < longest_us {
        place.reject(errors, "at least max_lease: a record must outlive the request that it is about");
    }
    Some(us)
}

fn read_on_unknown(object: &Members<'_>, errors: &mut PolicyErrors) -> Option<OnUnknown> {
    let expected = "a choice that only you can make: \"reject\" (at most once: when nobody knows what became of a \
                    request, its retries get 409 until an operator decides or the record expires) or \
                    \"retry_after_lease\" (one at a time: a retry runs once the lease has lapsed, perhaps for the \
                    second time)";
    let choices = [("reject", OnUnknown::Reject), ("retry_after_lease", OnUnknown::RetryAfterLease)];
    object.required("on_unknown", errors, expected)?.choice(errors, &choices)
}

fn read_status(object: &Members<'_>, field: &str, choices: &[u16], errors: &mut PolicyErrors) -> Option<u16> {
    let default = choices.first().copied()?;
    object.or(field, default, errors, |place, errors| {
        let chosen = choices.iter().copied().find(|status| *place.node == Node::Number(f64::from(*status)));
        if chosen.is_none() {
            let words: Vec<String> = choices.iter().map(u16::to_string).collect();
            place.reject(errors, format!("one of {}", words.join(", ")));
        }
        chosen
    })
}

/// Two meanings in one header would leave one of them out.
fn note_shared_header(object: &Members<'_>, found: &Idempotency, errors: &mut PolicyErrors) {
    let named = [
        ("header", &found.header),
        ("fence_header", &found.fence_header),
        ("attempt_header", &found.attempt_header),
        ("replayed_header", &found.replayed_header),
    ];
    for (position, (field, name)) in named.iter().enumerate() {
        if let Some((other, _)) = named.iter().take(position).find(|(_, earlier)| earlier == name) {
            let expected = format!("another header than that of the field {other}");
            errors.push(&format!("{}.{field}", object.path()), format!("{name:?}"), expected);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::LoadOptions;
    use super::super::{ClaimFailure, FingerprintRules, PolicySet};
    use super::*;
    use crate::identity::Attribute;

    fn loaded(members: &str) -> PolicySet {
        let json =
            format!(r#"{{"version": 1, "namespace": "n", "policies": {{"p": {{"idempotency": {{{members}}}}}}}}}"#);
        PolicySet::from_json(json.as_bytes(), LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn idempotency(members: &str) -> Idempotency {
        *loaded(members).policies.remove(0).idempotency.unwrap_or_else(|| panic!("{members}"))
    }

    #[test]
    fn what_is_left_out_is_safe() {
        let found = idempotency(r#""scope": ["metadata:jwt_authn.sub"], "on_unknown": "reject""#);
        assert_eq!((found.header.as_str(), found.required, found.key_bytes), ("idempotency-key", false, (1, 255)));
        assert_eq!(found.methods, ["POST", "PATCH"]);
        assert_eq!((found.lease.lease_us, found.lease.max_lease_us), (30_000_000, 600_000_000));
        assert_eq!((found.retention_us, found.wait_us), (86_400_000_000, 0));
        assert_eq!(found.on_store_failure, ClaimFailure::Deny);
        assert_eq!((found.in_flight_status, found.mismatch_status), (409, 422));
        assert_eq!(found.store_key_prefix, "n:p.idempotency:");
        let replays = found.replay_limit.unwrap_or_else(|| panic!("replays are limited"));
        assert_eq!((replays.key, replays.base.quota.as_str()), (found.scope, ";q=20;w=4"));
        assert!(replays.store_key_prefix.starts_with("n:p.idempotency.replay_limit:"));
    }

    #[test]
    fn the_host_looks_up_the_key_the_scope_and_the_fingerprint() {
        let set = loaded(
            r#""scope": ["header:authorization", "cookie:sid"], "header": "X-Key", "on_unknown": "reject",
               "fingerprint": {"headers": ["X-Version"]}"#,
        );
        for name in ["x-key", "x-version", "authorization", "cookie"] {
            let named = set.policies[0].attributes.iter().filter(|one| **one == Attribute::Header(name.to_owned()));
            assert_eq!(named.count(), 1, "{name}");
        }
    }

    #[test]
    fn shared_replays_are_counted_by_client() {
        let found = idempotency(r#""shared_scope": true, "on_unknown": "retry_after_lease""#);
        assert_eq!(found.scope, []);
        assert_eq!(found.replay_limit.map(|limit| limit.key), Some(vec![KeyPart::ClientAddress]));
        let found = idempotency(r#""shared_scope": true, "on_unknown": "reject", "replay_limit": false"#);
        assert!(found.replay_limit.is_none());
    }

    #[test]
    fn a_recipe_changes_with_what_a_fingerprint_means_and_with_nothing_else() {
        let recipe = |rules: &str| {
            let members = format!(r#""shared_scope": true, "on_unknown": "reject", "fingerprint": {{{rules}}}"#);
            let FingerprintRules { recipe, .. } = idempotency(&members).fingerprint;
            recipe
        };
        let plain = recipe("");
        for same in [r#""max_body_bytes": 1"#, r#""over_max": "unfingerprinted""#, r#""body": "raw""#] {
            assert_eq!(recipe(same), plain, "{same}");
        }
        let others =
            [r#""body": "json""#, r#""body": "ignored""#, r#""headers": ["x-a"]"#, r#""headers": ["x-b", "x-a"]"#];
        let mut all = vec![plain];
        for other in others {
            let found = recipe(other);
            assert!(!all.contains(&found), "{other}");
            all.push(found);
        }
        assert_eq!(recipe(r#""headers": ["x-b", "X-A"]"#), recipe(r#""headers": ["x-a", "x-b"]"#));
    }
}
