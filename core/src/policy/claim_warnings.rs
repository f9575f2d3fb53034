//! What loads but may not be meant of idempotency and locks: protection with holes in it.

use super::{ClaimFailure, Idempotency, LeaseRules, Lock, MissingKey, OnUnknown, Policy, PolicySet};
use crate::identity::KeyPart;
use crate::route::Route;

const HOUR_US: u64 = 3_600_000_000;

impl PolicySet {
    /// Warns of the claims of the policy at that index: of a member of the policy, such as `lock.lease`, and why.
    pub(super) fn warn_of_claims(&self, index: usize, policy: &Policy, warn: &mut impl FnMut(&str, String)) {
        if let Some(idempotency) = &policy.idempotency {
            warn_of_idempotency(idempotency, warn);
            if !self.is_reached(index, &idempotency.methods) {
                let message = "names no method of the policy's routes: no request is protected";
                warn("idempotency.methods", message.to_owned());
            }
        }
        if let Some(lock) = &policy.lock {
            warn_of_lock(lock, warn);
            if !lock.methods.is_empty() && !self.is_reached(index, &lock.methods) {
                warn("lock.methods", "names no method of the policy's routes: no request takes the lock".to_owned());
            }
        }
    }

    /// Whether requests with one of the methods may get the policy, as far as routes say; what nothing uses is not judged.
    fn is_reached(&self, policy: usize, methods: &[String]) -> bool {
        let has_method =
            |route: &Route| route.methods.is_empty() || route.methods.iter().any(|one| methods.contains(one));
        let mut routes = self.routes.all().iter().filter(|route| self.applies(route.policy, policy)).peekable();
        let is_everywhere = self.policy_from_route_metadata || self.default_policy == Some(policy);
        is_everywhere || routes.peek().is_none() || routes.any(has_method)
    }
}

fn warn_of_idempotency(idempotency: &Idempotency, warn: &mut impl FnMut(&str, String)) {
    warn_of_lease("idempotency.lease", idempotency.lease, warn);
    if idempotency.retention_us < HOUR_US {
        let message = "is below an hour: a client that retries later runs its request again";
        warn("idempotency.retention", message.to_owned());
    }
    if idempotency.on_store_failure == ClaimFailure::Allow {
        let message = "is \"allow\": while the store fails requests pass unprotected, and their retries run again";
        warn("idempotency.on_store_failure", message.to_owned());
    }
    if idempotency.on_unknown == OnUnknown::Reject && !idempotency.required {
        let message = format!(
            "is false: at most once holds for requests with {} only, others pass unprotected; write true if clients can \
             send it",
            idempotency.header
        );
        warn("idempotency.required", message);
    }
}

fn warn_of_lock(lock: &Lock, warn: &mut impl FnMut(&str, String)) {
    warn_of_lease("lock.lease", lock.lease, warn);
    if lock.on_store_failure == ClaimFailure::Allow {
        let message = "is \"allow\": while the store fails nobody is excluded";
        warn("lock.on_store_failure", message.to_owned());
    }
    let is_clients = |part: &&KeyPart| matches!(part, KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Query(_));
    if let (Some(part), MissingKey::Skip) = (lock.key.iter().find(is_clients), &lock.on_missing_key) {
        let part = part.text();
        let message = format!("is \"skip\": a client escapes the lock by leaving out {part}; write \"reject\"");
        warn("lock.on_missing_key", message);
    }
}

fn warn_of_lease(path: &str, lease: LeaseRules, warn: &mut impl FnMut(&str, String)) {
    if lease.lease_us.saturating_mul(3) > lease.max_lease_us {
        let message = "is more than a third of max_lease: a gateway that crashes blocks others for nearly as long as \
                       the longest request may take";
        warn(path, message.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::LoadOptions;
    use super::*;

    const SAFE: &str = r#""scope": ["header:authorization"], "on_unknown": "reject", "required": true"#;

    fn warnings(policy: &str, routes: &str) -> Vec<String> {
        let json = format!(
            r#"{{"version": 1, "policies": {{"p": {policy}, "o": {{"lock": {{"key": ["host"]}}}}}},
            "routes": [{routes}{{"match": {{"path": "/o"}}, "policy": "o"}}], "default_policy": "o"}}"#
        );
        let set =
            PolicySet::from_json(json.as_bytes(), LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let found = set.warnings().into_iter().map(|warning| format!("{} {}", warning.path, warning.message));
        found.filter(|text| !text.contains("is never used")).collect()
    }

    #[test]
    fn what_is_safe_is_not_named() {
        for policy in [
            format!(r#"{{"idempotency": {{{SAFE}}}}}"#),
            r#"{"idempotency": {"scope": ["cookie:s"], "on_unknown": "retry_after_lease"}}"#.to_owned(),
            r#"{"lock": {"key": ["header:x"]}}"#.to_owned(),
            r#"{"lock": {"key": ["metadata:a.b"], "on_missing_key": "skip"}}"#.to_owned(),
        ] {
            assert_eq!(warnings(&policy, ""), [""; 0], "{policy}");
        }
    }

    #[test]
    fn each_hole_is_named_at_its_member() {
        let idempotency = |more: &str| format!(r#"{{"idempotency": {{{SAFE}, {more}}}}}"#);
        let rows = [
            (idempotency(r#""lease": "5m""#), "idempotency.lease is more than a third"),
            (idempotency(r#""retention": "59m""#), "idempotency.retention is below an hour"),
            (idempotency(r#""on_store_failure": "allow""#), "idempotency.on_store_failure is \"allow\""),
            (
                idempotency("").replace(r#", "required": true, "#, ""),
                "idempotency.required is false: at most once holds \
             for requests with idempotency-key only",
            ),
            (r#"{"lock": {"key": ["host"], "lease": "1m", "max_lease": "2m"}}"#.to_owned(), "lock.lease is more than"),
            (
                r#"{"lock": {"key": ["host"], "on_store_failure": "allow"}}"#.to_owned(),
                "lock.on_store_failure is \"allow\"",
            ),
            (
                r#"{"lock": {"key": ["host", "query:id"], "on_missing_key": "skip"}}"#.to_owned(),
                "lock.on_missing_key is \"skip\": a client escapes the lock by leaving out query:id",
            ),
        ];
        for (policy, expected) in rows {
            let found = warnings(&policy, "");
            let [only] = &*found else { panic!("{policy} has the warnings {found:?}") };
            assert!(only.starts_with(&format!("$.policies.p.{expected}")), "{only}");
        }
    }

    #[test]
    fn claims_for_methods_that_no_route_has_are_named() {
        let route =
            |methods: &str| format!(r#"{{"match": {{"path": "/a", "methods": [{methods}]}}, "policy": "p"}}, "#);
        let policy = format!(r#"{{"idempotency": {{{SAFE}}}}}"#);
        let expected =
            "$.policies.p.idempotency.methods names no method of the policy's routes: no request is protected";
        assert_eq!(warnings(&policy, &route(r#""GET", "PUT""#)), [expected]);
        assert_eq!(warnings(&policy, &route(r#""PUT", "POST""#)), [""; 0]);
        let lock = r#"{"lock": {"key": ["host"], "methods": ["PUT"]}}"#;
        let expected = "$.policies.p.lock.methods names no method of the policy's routes: no request takes the lock";
        assert_eq!(warnings(lock, &route(r#""POST""#)), [expected]);
        assert_eq!(warnings(lock, &route(r#""PUT""#)), [""; 0]);
    }
}
