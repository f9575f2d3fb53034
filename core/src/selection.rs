//! Which route and policy a request gets.

use std::borrow::Cow;

use crate::identity::Attribute;
use crate::normalize;
use crate::policy::PolicySet;
use crate::route::RequestLine;

/// What the gateway's own routing says about a request. A host without such routes passes the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayRoute<'a> {
    /// The name of its route.
    pub name: Option<&'a str>,
    /// The policy that its route names.
    pub policy: Option<&'a str>,
}

/// A request with its policy, before its attributes are known.
#[derive(Clone, Debug)]
pub struct Selection {
    policy: Option<usize>,
    route: Option<usize>,
    /// Routes that go before it if their headers match.
    with_headers: Vec<usize>,
    is_named_by_gateway: bool,
    names_unknown_policy: bool,
    is_malformed: bool,
    method: String,
    host: String,
    path: Cow<'static, str>,
    query: String,
}

impl Selection {
    /// Normalises the request and finds its route; headers count as missing.
    pub(crate) fn new(
        policies: &PolicySet,
        (method, authority, target): (&str, &str, &str),
        gateway: GatewayRoute<'_>,
    ) -> Selection {
        let host = normalize::host(authority);
        let target = normalize::target(target, policies.path_rules);
        let mut selection = Selection {
            policy: policies.default_policy,
            route: None,
            with_headers: Vec::new(),
            is_named_by_gateway: gateway.policy.is_some(),
            names_unknown_policy: false,
            is_malformed: target.is_malformed,
            method: method.to_owned(),
            host,
            path: target.path,
            query: target.query.to_owned(),
        };
        match gateway.policy {
            Some(name) => selection.take_named(policies, name),
            None => selection.find_route(policies, gateway.name.unwrap_or_default()),
        }
        selection
    }

    /// The gateway's route names the policy itself; a name that the file does not know leaves the default policy.
    fn take_named(&mut self, policies: &PolicySet, name: &str) {
        match policies.policies.iter().position(|policy| policy.name == name) {
            Some(index) => self.policy = Some(index),
            None => self.names_unknown_policy = true,
        }
    }

    fn find_route(&mut self, policies: &PolicySet, route_name: &str) {
        let line = RequestLine { route_name, method: &self.method, host: &self.host, path: &self.path };
        let found = policies.routes.find(line);
        self.with_headers = found.with_headers;
        self.take_route(policies, found.otherwise);
    }

    fn take_route(&mut self, policies: &PolicySet, route: Option<usize>) {
        if let Some(found) = route.and_then(|index| policies.routes.get(index)) {
            (self.route, self.policy) = (route, Some(found.policy));
        }
    }

    /// The headers that may still change the route.
    pub(crate) fn route_headers(&self, policies: &PolicySet) -> Vec<Attribute> {
        let mut headers: Vec<Attribute> = Vec::new();
        let routes = self.with_headers.iter().filter_map(|index| policies.routes.get(*index));
        for header in routes.flat_map(|route| &route.headers) {
            let attribute = Attribute::Header(header.name.clone());
            if !headers.contains(&attribute) {
                headers.push(attribute);
            }
        }
        headers
    }

    /// Takes the first route whose headers match; `values` are those of [`Selection::route_headers`], in their order.
    pub(crate) fn with_headers(mut self, policies: &PolicySet, values: &[Option<Vec<u8>>]) -> Selection {
        let asked = self.route_headers(policies);
        let value = |name: &str| {
            let position = asked.iter().position(|one| matches!(one, Attribute::Header(known) if known == name))?;
            values.get(position)?.as_deref()
        };
        let matches = |index: &usize| {
            let headers = policies.routes.get(*index).map_or(&[][..], |route| &route.headers);
            headers.iter().all(|header| header.matches(value(&header.name)))
        };
        let chosen = self.with_headers.iter().copied().find(matches);
        self.with_headers = Vec::new();
        self.take_route(policies, chosen);
        self
    }

    /// Index of the policy; `None` when no route matches and there is no default policy.
    pub fn policy(&self) -> Option<usize> {
        self.policy
    }

    /// Index of the route in the file; `None` when none matches or the gateway's route names the policy.
    pub fn route(&self) -> Option<usize> {
        self.route
    }

    /// Whether the gateway's route names the policy.
    pub fn is_named_by_gateway(&self) -> bool {
        self.is_named_by_gateway
    }

    /// Whether the gateway's route names a policy that the file does not have.
    pub fn names_unknown_policy(&self) -> bool {
        self.names_unknown_policy
    }

    /// Whether the path holds a malformed percent code, and nothing limits the request: it is not to pass.
    pub(crate) fn escapes(&self) -> bool {
        self.is_malformed && self.policy.is_none()
    }

    /// The method as sent.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The normalised host, empty when missing.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The normalised path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The query as sent.
    pub fn query(&self) -> &str {
        &self.query
    }
}
