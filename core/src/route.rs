//! Chooses the policy of a request. Precedence is fixed: exact host before suffix before any host, longer
//! before shorter; then exact path before prefix before any path, longer before shorter; then named methods before any
//! method; then the order of the file.

use std::cmp::Reverse;

/// What a request is matched by, normalised by [`crate::normalize`].
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The method as sent, upper case by RFC 9110 §9.1.
    pub method: &'a str,
    /// The normalised host, empty when missing.
    pub host: &'a str,
    /// The normalised path.
    pub path: &'a str,
}

/// The host part of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// Any host, a missing one too.
    Any,
    /// One host.
    Exact(String),
    /// Hosts that end with this text, dot included: `*.example.com` is `.example.com`.
    Suffix(String),
}

/// The path part of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Any path.
    Any,
    /// One path.
    Exact(String),
    /// A path and everything below it: `/v1/*` is `/v1/`, and also matches `/v1`.
    Prefix(String),
}

/// One route of the file.
#[derive(Clone, Debug)]
pub struct Route {
    /// Hosts.
    pub host: HostMatch,
    /// Paths.
    pub path: PathMatch,
    /// Methods; empty means any. `GET` includes `HEAD` unless `HEAD` is named by another route.
    pub methods: Vec<String>,
    /// Index of the policy.
    pub policy: usize,
}

/// All routes, most specific first.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    routes: Vec<Route>,
}

impl Routes {
    /// Orders the routes by precedence.
    pub fn new(mut routes: Vec<Route>) -> Routes {
        routes.sort_by_key(|route| Reverse(specificity(route)));
        Routes { routes }
    }

    /// Whether any route looks at the method.
    pub fn need_method(&self) -> bool {
        self.routes.iter().any(|route| !route.methods.is_empty())
    }

    /// Whether any route looks at the host.
    pub fn need_host(&self) -> bool {
        self.routes.iter().any(|route| route.host != HostMatch::Any)
    }

    /// Whether any route looks at the path.
    pub fn need_path(&self) -> bool {
        self.routes.iter().any(|route| route.path != PathMatch::Any)
    }

    /// The policy of the first route that matches.
    pub fn policy(&self, line: RequestLine<'_>) -> Option<usize> {
        self.routes.iter().find(|route| matches(route, line)).map(|route| route.policy)
    }
}

type Specificity = ((u8, usize), (u8, usize), u8);

fn specificity(route: &Route) -> Specificity {
    let host = match &route.host {
        HostMatch::Any => (0, 0),
        HostMatch::Suffix(suffix) => (1, suffix.len()),
        HostMatch::Exact(_) => (2, 0),
    };
    let path = match &route.path {
        PathMatch::Any => (0, 0),
        PathMatch::Prefix(prefix) => (1, prefix.len()),
        PathMatch::Exact(_) => (2, 0),
    };
    (host, path, method_specificity(&route.methods))
}

/// A route that names HEAD itself goes before one that takes it as a GET.
fn method_specificity(methods: &[String]) -> u8 {
    match methods {
        [] => 0,
        named if named.iter().any(|method| method == "HEAD") => 2,
        _ => 1,
    }
}

fn matches(route: &Route, line: RequestLine<'_>) -> bool {
    host_matches(&route.host, line.host)
        && path_matches(&route.path, line.path)
        && method_matches(&route.methods, line.method)
}

fn host_matches(wanted: &HostMatch, host: &str) -> bool {
    match wanted {
        HostMatch::Any => true,
        HostMatch::Exact(name) => name == host,
        HostMatch::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
    }
}

fn path_matches(wanted: &PathMatch, path: &str) -> bool {
    match wanted {
        PathMatch::Any => true,
        PathMatch::Exact(exact) => exact == path,
        PathMatch::Prefix(prefix) => path.starts_with(prefix.as_str()) || prefix.strip_suffix('/') == Some(path),
    }
}

fn method_matches(methods: &[String], method: &str) -> bool {
    methods.is_empty() || methods.iter().any(|wanted| wanted == method || (method == "HEAD" && wanted == "GET"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(host: HostMatch, path: PathMatch, methods: &[&str], policy: usize) -> Route {
        Route { host, path, methods: methods.iter().map(|method| (*method).to_owned()).collect(), policy }
    }

    #[test]
    fn the_most_specific_route_wins_whatever_the_order_of_the_file() {
        let exact = |path: &str| PathMatch::Exact(path.to_owned());
        let prefix = |path: &str| PathMatch::Prefix(path.to_owned());
        let mut routes = vec![
            route(HostMatch::Any, PathMatch::Any, &[], 0),
            route(HostMatch::Any, prefix("/v1/"), &[], 1),
            route(HostMatch::Any, prefix("/v1/users/"), &[], 2),
            route(HostMatch::Any, exact("/v1/users/me"), &["GET"], 3),
            route(HostMatch::Any, exact("/v1/users/me"), &["HEAD"], 4),
            route(HostMatch::Suffix(".example.com".into()), PathMatch::Any, &[], 5),
            route(HostMatch::Exact("api.example.com".into()), PathMatch::Any, &["POST"], 6),
        ];
        let rows = [
            ("GET", "x.org", "/", 0),
            ("GET", "x.org", "/v1", 1),
            ("GET", "x.org", "/v1x", 0),
            ("GET", "x.org", "/v1/users/7", 2),
            ("GET", "x.org", "/v1/users/me", 3),
            ("HEAD", "x.org", "/v1/users/me", 4),
            ("POST", "x.org", "/v1/users/me", 2),
            ("GET", "api.example.com", "/v1/users/me", 5),
            ("POST", "api.example.com", "/v1/users/me", 6),
            ("POST", ".example.com", "/", 0),
        ];
        for _ in 0..2 {
            let chosen = Routes::new(routes.clone());
            for (method, host, path, policy) in rows {
                let line = RequestLine { method, host, path };
                assert_eq!(chosen.policy(line), Some(policy), "{line:?}");
            }
            routes.reverse();
        }
    }
}
