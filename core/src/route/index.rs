//! Finds the routes of a request among many: by the gateway's route, by host, then along a tree of path segments, so that
//! the number of routes hardly matters.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::{HostMatch, PathMatch, RequestLine, Route, Segment};
use crate::normalize::segments;
use crate::order;

/// All routes, in the order of the file, and the index over them.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    routes: Vec<Route>,
    named: HashMap<String, Hosts>,
    unnamed: Hosts,
}

/// What the request line says about its route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Routes that match if their headers do, first to last; one of them goes before [`Found::otherwise`].
    pub with_headers: Vec<usize>,
    /// The route that matches without headers.
    pub otherwise: Option<usize>,
}

impl Routes {
    /// Indexes the routes of a file.
    pub fn new(routes: Vec<Route>) -> Routes {
        let mut indexed = Routes::default();
        let rank = |index: usize| routes.get(index).map(Route::rank);
        // Of equals the first of the file stays first.
        for index in order::indices(routes.len(), &|one, other| rank(one).cmp(&rank(other))) {
            let Some(route) = routes.get(index) else { continue };
            let hosts = match &route.route_name {
                Some(name) => indexed.named.entry(name.clone()).or_default(),
                None => &mut indexed.unnamed,
            };
            hosts.insert(route, index);
        }
        indexed.routes = routes;
        indexed
    }

    /// The routes, in the order of the file.
    pub fn all(&self) -> &[Route] {
        &self.routes
    }

    /// The route at this place of the file.
    pub fn get(&self, index: usize) -> Option<&Route> {
        self.routes.get(index)
    }

    /// Whether any route looks at the gateway's route.
    pub fn need_route_name(&self) -> bool {
        !self.named.is_empty()
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
        self.routes.iter().any(|route| !route.path.is_any())
    }

    /// The routes that may match, up to the first that matches whatever the headers are.
    pub fn find(&self, line: RequestLine<'_>) -> Found {
        let mut found = Found::default();
        let mut visit = |index: usize| match self.routes.get(index) {
            Some(route) if route.matches_method(line.method) => match route.headers.is_empty() {
                true => ControlFlow::Break(index),
                false => {
                    found.with_headers.push(index);
                    ControlFlow::Continue(())
                }
            },
            _ => ControlFlow::Continue(()),
        };
        let named = self.named.get(line.route_name).filter(|_| !line.route_name.is_empty());
        let mut groups = named.into_iter().chain([&self.unnamed]);
        found.otherwise = groups.try_for_each(|hosts| hosts.visit(line, &mut visit)).break_value();
        found
    }
}

type Visit<'v> = &'v mut dyn FnMut(usize) -> ControlFlow<usize>;

#[derive(Clone, Debug, Default)]
struct Hosts {
    exact: HashMap<String, Paths>,
    suffixes: HashMap<String, Paths>,
    /// The length of the longest suffix: what stands further left in a host need not be tried.
    suffix_bytes_max: usize,
    any: Paths,
}

impl Hosts {
    fn insert(&mut self, route: &Route, index: usize) {
        let paths = match &route.host {
            HostMatch::Any => &mut self.any,
            HostMatch::Exact(name) => self.exact.entry(name.clone()).or_default(),
            HostMatch::Suffix(suffix) => {
                self.suffix_bytes_max = self.suffix_bytes_max.max(suffix.len());
                self.suffixes.entry(suffix.clone()).or_default()
            }
        };
        paths.insert(&route.path, index);
    }

    fn visit(&self, line: RequestLine<'_>, visit: Visit<'_>) -> ControlFlow<usize> {
        if let Some(paths) = self.exact.get(line.host) {
            paths.visit(line.path, visit)?;
        }
        if !self.suffixes.is_empty() {
            let first = line.host.len().saturating_sub(self.suffix_bytes_max).max(1);
            let dots = line.host.bytes().enumerate().skip(first).filter(|(_, byte)| *byte == b'.');
            for paths in dots.filter_map(|(at, _)| self.suffixes.get(line.host.get(at..)?)) {
                paths.visit(line.path, visit)?;
            }
        }
        self.any.visit(line.path, visit)
    }
}

#[derive(Clone, Debug, Default)]
struct Paths {
    exact: HashMap<String, Vec<usize>>,
    patterns: Node,
}

impl Paths {
    fn insert(&mut self, path: &PathMatch, index: usize) {
        match path.exact() {
            Some(exact) => self.exact.entry(exact).or_default().push(index),
            None => self.patterns.insert(path, index),
        }
    }

    fn visit(&self, path: &str, visit: Visit<'_>) -> ControlFlow<usize> {
        if let Some(routes) = self.exact.get(path) {
            routes.iter().copied().try_for_each(&mut *visit)?;
        }
        self.patterns.visit(segments(path), visit)
    }
}

/// A node of the tree of patterns with parameters or everything below.
#[derive(Clone, Debug, Default)]
struct Node {
    literals: HashMap<String, Node>,
    parameter: Option<Box<Node>>,
    /// Routes whose pattern ends here.
    here: Vec<usize>,
    /// Routes that match everything from here on.
    below: Vec<usize>,
}

impl Node {
    fn insert(&mut self, path: &PathMatch, index: usize) {
        let mut node = self;
        for segment in &path.segments {
            node = match segment {
                Segment::Literal(literal) => node.literals.entry(literal.clone()).or_default(),
                Segment::Parameter(_) => node.parameter.get_or_insert_default(),
            };
        }
        if path.below { node.below.push(index) } else { node.here.push(index) }
    }

    fn visit<'p>(&self, mut rest: impl Iterator<Item = &'p str> + Clone, visit: Visit<'_>) -> ControlFlow<usize> {
        match rest.next() {
            None => self.here.iter().copied().try_for_each(&mut *visit)?,
            Some(segment) => {
                if let Some(node) = self.literals.get(segment) {
                    node.visit(rest.clone(), visit)?;
                }
                if let (Some(node), false) = (&self.parameter, segment.is_empty()) {
                    node.visit(rest, visit)?;
                }
            }
        }
        self.below.iter().copied().try_for_each(visit)
    }
}

#[cfg(test)]
mod tests;
