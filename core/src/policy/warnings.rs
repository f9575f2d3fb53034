//! What loads but may not be meant: routes that are never chosen or chosen where another was meant, limits that a client
//! escapes by leaving something out, claims with holes, policies that nothing uses.

use super::{Limit, MissingKey, Policy, PolicySet};
use crate::identity::KeyPart;
use crate::route::Route;

/// Something that loads but may not be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where: a JSON path in the policy file, such as `$.routes[3].match`.
    pub path: String,
    /// What happens, and what to write if it is not meant.
    pub message: String,
}

impl PolicySet {
    /// Everything that loads but may not be meant, in the order of the file.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for (index, policy) in self.policies.iter().enumerate() {
            let mut warn = |path: String, message: String| warnings.push(Warning { path, message });
            warn_of_escapes(policy, &mut warn);
            self.warn_of_missing_parameters(index, policy, &mut warn);
            let member = |member: &str| format!("$.policies.{}.{member}", policy.name);
            self.warn_of_claims(index, policy, &mut |path, message| warn(member(path), message));
            if !self.is_used(index) {
                let message = "is never used: no route names it and it is not the default_policy";
                warn(format!("$.policies.{}", policy.name), message.into());
            }
        }
        let routes = self.routes.all();
        warnings.extend(routes.iter().enumerate().filter_map(|(index, _)| warning_of_route(routes, index)));
        if self.default_policy.is_none() {
            warnings.push(Warning {
                path: "$.default_policy".into(),
                message: "is missing: requests that no route matches pass without a limit".into(),
            });
        }
        warnings
    }

    fn is_used(&self, policy: usize) -> bool {
        self.policy_from_route_metadata
            || self.default_policy == Some(policy)
            || self.routes.all().iter().any(|route| self.applies(route.policy, policy))
    }

    fn warn_of_missing_parameters(&self, index: usize, policy: &Policy, warn: &mut impl FnMut(String, String)) {
        for (member, part) in policy.named_parts() {
            let KeyPart::PathParameter(name) = part else { continue };
            let path = format!("$.policies.{}.{member}", policy.name);
            let lacks = |route: &Route| {
                self.applies(route.policy, index) && !route.path.parameters().any(|known| known == name)
            };
            if let Some(route) = self.routes.all().iter().position(lacks) {
                warn(path, format!("names path:{name}, which $.routes[{route}] of the same policy does not have"));
            } else if self.default_policy == Some(index) {
                warn(path, format!("names path:{name}, which requests that no route matches do not have"));
            }
        }
    }
}

/// Limits that a client escapes by leaving something out, unless another limit of the policy holds it.
fn warn_of_escapes(policy: &Policy, warn: &mut impl FnMut(String, String)) {
    if policy.limits.iter().any(|limit| limit.enforce && escape(limit).is_none()) {
        return;
    }
    for limit in &policy.limits {
        if let Some(part) = escape(limit) {
            let path = format!("$.policies.{}.{}.on_missing_key", policy.name, limit.member());
            let part = part.text();
            warn(
                path,
                format!(
                    "is \"skip\": a client escapes by leaving out {part}, and no other limit of the policy holds it; \
                     write \"reject\", a fallback such as {{\"fallback\": \"client_address\"}}, or a second limit"
                ),
            );
        }
    }
}

/// What a client leaves out to escape the limit.
fn escape(limit: &Limit) -> Option<&KeyPart> {
    let is_clients = |part: &&KeyPart| matches!(part, KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Query(_));
    limit.key.iter().find(is_clients).filter(|_| limit.on_missing_key == MissingKey::Skip)
}

fn warning_of_route(routes: &[Route], index: usize) -> Option<Warning> {
    let route = routes.get(index)?;
    let goes_first = |position: usize, other: &Route| other.precedence(route).then(position.cmp(&index)).is_lt();
    let before = || {
        let overlapping = routes.iter().enumerate().filter(|(_, other)| other.overlaps(route));
        overlapping.filter(|(position, other)| goes_first(*position, other))
    };
    let path = format!("$.routes[{index}].match");
    if let Some((first, _)) = before().find(|(_, other)| other.covers(route)) {
        let message = format!("is never chosen: $.routes[{first}] goes first and matches all that it matches");
        return Some(Warning { path, message });
    }
    let (first, _) = before().find(|(_, other)| other.policy != route.policy && !route.covers(other))?;
    let message = format!(
        "overlaps $.routes[{first}], which goes first: requests that match both get only the policy of $.routes[{first}]"
    );
    Some(Warning { path, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::load::LoadOptions;

    fn warnings(policies: &str, routes: &str, more: &str) -> Vec<String> {
        let json = format!(r#"{{"version": 1, "policies": {{{policies}}}, "routes": [{routes}]{more}}}"#);
        let set =
            PolicySet::from_json(json.as_bytes(), LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        set.warnings().into_iter().map(|warning| format!("{} {}", warning.path, warning.message)).collect()
    }

    fn policy(name: &str, key: &str, more: &str) -> String {
        format!(
            r#""{name}": {{"limits": [{{"name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["{key}"]{more}}}]}}"#
        )
    }

    /// The warnings about routes for two policies `a` and `b`.
    fn of_routes(routes: &[(&str, &str)]) -> Vec<String> {
        let policies = [policy("a", "method", ""), policy("b", "method", "")].join(", ");
        let routes: Vec<String> = routes
            .iter()
            .map(|(matching, policy)| format!(r#"{{"match": {{{matching}}}, "policy": "{policy}"}}"#))
            .collect();
        warnings(&policies, &routes.join(", "), r#", "default_policy": "a", "policy_from_route_metadata": true"#)
    }

    #[test]
    fn a_route_that_another_leaves_nothing_to_is_named() {
        let rows = [
            [r#""path": "/a", "methods": ["GET", "POST"]"#, r#""path": "/a", "methods": ["POST"]"#],
            [r#""path": "/a", "methods": ["GET", "HEAD"]"#, r#""path": "/a", "methods": ["HEAD"]"#],
        ];
        for [first, second] in rows {
            let found = of_routes(&[(first, "a"), (second, "b")]);
            let expected = "$.routes[1].match is never chosen: $.routes[0] goes first and matches all that it matches";
            assert_eq!(found, [expected]);
            assert_eq!(of_routes(&[(second, "b"), (first, "a")]), [""; 0], "{second} is the exception to {first}");
        }
    }

    #[test]
    fn routes_that_overlap_without_one_being_the_exception_to_the_other_are_named() {
        let rows = [
            [r#""host": "a.org""#, r#""path": "/login""#],
            [r#""path": "/a/b/{x}""#, r#""path": "/a/{y}/c""#],
            [r#""path": "/a", "methods": ["GET"]"#, r#""path": "/a", "headers": {"x": "1"}"#],
            [r#""path": "/a", "methods": ["GET", "PUT"]"#, r#""path": "/a", "methods": ["PUT", "POST"]"#],
            [r#""path": "/a/b/*""#, r#""path": "/a/{x}/c""#],
            [r#""route_name": "r""#, r#""host": "*.org""#],
        ];
        for [first, second] in rows {
            let expected = "$.routes[1].match overlaps $.routes[0], which goes first: requests that match both get only the policy of $.routes[0]";
            assert_eq!(of_routes(&[(first, "a"), (second, "b")]), [expected], "{first} and {second}");
            assert_eq!(of_routes(&[(first, "a"), (second, "a")]), [""; 0], "one policy for both is no surprise");
        }
    }

    #[test]
    fn exceptions_and_routes_that_never_meet_are_not_named() {
        let rows = [
            [r#""path": "/a/b""#, r#""path": "/a/*""#],
            [r#""path": "/a/{x}""#, r#""path": "/*""#],
            [r#""host": "b.a.org", "path": "/a""#, r#""host": "*.a.org""#],
            [r#""path": "/a", "methods": ["GET"]"#, r#""path": "/a""#],
            [r#""path": "/a", "methods": ["GET"]"#, r#""path": "/a", "methods": ["PUT"]"#],
            [r#""path": "/a", "headers": {"x": "1"}"#, r#""path": "/a", "headers": {"x": "2"}"#],
            [r#""path": "/a", "headers": {"x": "1"}"#, r#""path": "/a", "headers": {"x": true}"#],
            [r#""host": "a.org""#, r#""host": "b.org", "path": "/a""#],
            [r#""path": "/a/{x}""#, r#""path": "/a/{x}/c""#],
            [r#""route_name": "r", "path": "/*""#, r#""route_name": "s", "path": "/b""#],
        ];
        for [first, second] in rows {
            assert_eq!(of_routes(&[(first, "a"), (second, "b")]), [""; 0], "{first} and {second}");
            assert_eq!(of_routes(&[(second, "b"), (first, "a")]), [""; 0], "{second} and {first}");
        }
    }

    #[test]
    fn a_limit_that_a_client_escapes_is_named_unless_another_holds_it() {
        let default = r#", "default_policy": "p""#;
        for key in ["header:x", "cookie:x", "query:x"] {
            let found = warnings(&policy("p", key, r#", "on_missing_key": "skip""#), "", default);
            assert_eq!(found.len(), 1, "{key}");
            let start =
                format!("$.policies.p.limits[0].on_missing_key is \"skip\": a client escapes by leaving out {key},");
            assert!(found[0].starts_with(&start), "{}", found[0]);
        }
        for more in ["", r#", "on_missing_key": {"fallback": "client_address"}"#] {
            assert_eq!(warnings(&policy("p", "header:x", more), "", default), [""; 0]);
        }
        let other =
            r#"{"name": "m", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["client_address"]}"#;
        let both = policy("p", "header:x", r#", "on_missing_key": "skip""#).replace("}]}", &format!("}}, {other}]}}"));
        assert_eq!(warnings(&both, "", default), [""; 0]);
        assert_eq!(
            warnings(&policy("p", "metadata:jwt_authn.sub", r#", "on_missing_key": "skip""#), "", default),
            [""; 0]
        );
    }

    #[test]
    fn missing_parameters_unused_policies_and_a_missing_default_are_named() {
        let id = policy("p", "path:id", "");
        let routes = r#"{"match": {"path": "/a/{id}"}, "policy": "p"}, {"match": {"path": "/b"}, "policy": "p"}"#;
        let found = warnings(&id, routes, r#", "default_policy": "p""#);
        let names = "$.policies.p.limits[0] names path:id, which";
        assert_eq!(found, [format!("{names} $.routes[1] of the same policy does not have")]);
        let one = r#"{"match": {"path": "/a/{id}"}, "policy": "p"}"#;
        let found = warnings(&id, one, r#", "default_policy": "p""#);
        assert_eq!(found, [format!("{names} requests that no route matches do not have")]);
        let found = warnings(&policy("p", "method", ""), "", "");
        let expected = [
            "$.policies.p is never used: no route names it and it is not the default_policy",
            "$.default_policy is missing: requests that no route matches pass without a limit",
        ];
        assert_eq!(found, expected);
    }
}
