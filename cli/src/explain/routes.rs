//! Which route a request gets, and why the others that come close do not.

use std::cmp::Ordering;

use lockkeeper_core::engine::Engine;
use lockkeeper_core::route::{RequestLine, Route};
use lockkeeper_core::selection::Selection;
use serde::Serialize;

use crate::request::Request;

/// The choice of a route.
#[derive(Debug, Serialize)]
pub struct Chosen {
    /// How the policy was found.
    pub by: By,
    /// The route that was chosen.
    pub route: Option<RouteText>,
    /// Routes for the same host and path that were not chosen.
    pub others: Vec<Other>,
}

/// How the policy was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// By a route of the file.
    Route,
    /// The gateway's own route names it.
    GatewayRoute,
    /// The gateway's own route names a policy that the file does not have: the default.
    UnknownPolicy,
    /// No route matches: the default, if there is one.
    Default,
}

/// A route as people know it.
#[derive(Debug, Serialize)]
pub struct RouteText {
    /// Its place in the file: `$.routes[0]`.
    pub place: String,
    /// What it matches.
    pub matches: String,
}

/// A route that was not chosen.
#[derive(Debug, Serialize)]
pub struct Other {
    /// The route.
    #[serde(flatten)]
    pub route: RouteText,
    /// Why not.
    pub why: String,
}

impl Chosen {
    /// The choice that led to the selection.
    pub fn of(engine: &Engine, request: &Request, selection: &Selection) -> Chosen {
        let routes = engine.policies().routes.all();
        let chosen = selection.route().and_then(|index| routes.get(index));
        let by = match chosen {
            Some(_) => By::Route,
            None if selection.names_unknown_policy() => By::UnknownPolicy,
            None if selection.is_named_by_gateway() => By::GatewayRoute,
            None => By::Default,
        };
        let line = RequestLine {
            route_name: request.route_name(),
            method: selection.method(),
            host: selection.host(),
            path: selection.path(),
        };
        let others = routes.iter().enumerate().filter(|(index, _)| Some(*index) != selection.route());
        let close = others.filter(|(_, route)| route.host.matches(line.host) && route.path.matches(line.path));
        let others = close.map(|(index, route)| Other {
            route: described(index, route),
            why: why_not(route, line, request, chosen, by),
        });
        Chosen {
            by,
            route: selection.route().zip(chosen).map(|(index, route)| described(index, route)),
            others: others.collect(),
        }
    }
}

fn described(index: usize, route: &Route) -> RouteText {
    let mut matches = route.pattern.clone();
    if !route.methods.is_empty() {
        matches = format!("{} {matches}", route.methods.join(","));
    }
    for header in &route.headers {
        let value = header.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
        matches.push_str(&format!(" {}{value}", header.name));
    }
    RouteText { place: format!("$.routes[{index}]"), matches }
}

/// Why a route for the same host and path was not chosen.
fn why_not(route: &Route, line: RequestLine<'_>, request: &Request, chosen: Option<&Route>, by: By) -> String {
    if by == By::GatewayRoute || by == By::UnknownPolicy {
        return "the gateway's own route names the policy".into();
    }
    if let Some(name) = route.route_name.as_deref().filter(|name| *name != line.route_name) {
        return format!("is for the gateway's route {name:?}");
    }
    if !route.matches_method(line.method) {
        return format!("is for {}", route.methods.join(", "));
    }
    let value = |name: &str| request.header(name).map(String::into_bytes);
    if let Some(header) = route.headers.iter().find(|header| !header.matches(value(&header.name).as_deref())) {
        return match &header.value {
            Some(_) => format!("wants another value of the header {}", header.name),
            None => format!("wants the header {}", header.name),
        };
    }
    match chosen.map(|chosen| chosen.precedence(route)) {
        Some(Ordering::Equal) => "comes later in the file".into(),
        _ => "is less specific".into(),
    }
}
