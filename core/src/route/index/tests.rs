//! The index against plain sentences, and against a search through all routes by the documented precedence.

#![allow(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use super::*;
use crate::route::{HeaderMatch, PathMatch, Segment};

fn path(text: &str) -> PathMatch {
    let (text, below) = text.strip_suffix("/*").map_or((text, false), |rest| (rest, true));
    let segment = |text: &str| match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        Some(name) => Segment::Parameter(name.into()),
        None => Segment::Literal(text.into()),
    };
    PathMatch { segments: segments(text).map(segment).collect(), below }
}

fn host(text: &str) -> HostMatch {
    match text.strip_prefix('*') {
        Some("") => HostMatch::Any,
        Some(suffix) => HostMatch::Suffix(suffix.into()),
        None => HostMatch::Exact(text.into()),
    }
}

/// A route by host, path, methods (separated by spaces) and headers (`name` or `name=value`).
fn route((host_text, path_text, methods, headers): (&str, &str, &str, &str)) -> Route {
    let header = |text: &str| match text.split_once('=') {
        Some((name, value)) => HeaderMatch { name: name.into(), value: Some(value.into()) },
        None => HeaderMatch { name: text.into(), value: None },
    };
    Route {
        route_name: None,
        host: host(host_text),
        path: path(path_text),
        methods: methods.split_whitespace().map(str::to_owned).collect(),
        headers: headers.split_whitespace().map(header).collect(),
        policy: 0,
        pattern: String::new(),
    }
}

fn line<'a>(method: &'a str, host: &'a str, path: &'a str) -> RequestLine<'a> {
    RequestLine { route_name: "", method, host, path }
}

#[test]
fn the_most_specific_route_wins_whatever_the_order_of_the_file() {
    let rows = [
        ("*", "/*", "", ""),
        ("*", "/v1/*", "", ""),
        ("*", "/v1/users/*", "", ""),
        ("*", "/v1/users/me", "GET", ""),
        ("*", "/v1/users/me", "HEAD", ""),
        ("*.example.com", "/*", "", ""),
        ("api.example.com", "/*", "POST", ""),
        ("*", "/v1/users/{id}", "", ""),
        ("*", "/v1/{kind}/new", "", ""),
        ("*", "/v1/{kind}/{id}/*", "", ""),
        ("*.a.example.com", "/*", "", ""),
    ];
    let expected = [
        ("GET", "x.org", "/", 0),
        ("GET", "x.org", "/v1", 1),
        ("GET", "x.org", "/v1x", 0),
        ("GET", "x.org", "/v1/users", 2),
        ("GET", "x.org", "/v1/users/7", 7),
        ("GET", "x.org", "/v1/users/new", 7),
        ("GET", "x.org", "/v1/users/7/x", 2),
        ("GET", "x.org", "/v1/orders/new", 8),
        ("GET", "x.org", "/v1/orders/7", 9),
        ("GET", "x.org", "/v1/orders/7/x/y", 9),
        ("GET", "x.org", "/v1/orders", 1),
        ("GET", "x.org", "/v1/users/me", 3),
        ("get", "x.org", "/v1/users/me", 3),
        ("HEAD", "x.org", "/v1/users/me", 4),
        ("POST", "x.org", "/v1/users/me", 7),
        ("GET", "api.example.com", "/v1/users/me", 5),
        ("POST", "api.example.com", "/v1/users/me", 6),
        ("GET", "b.a.example.com", "/", 10),
        ("GET", "a.example.com", "/", 5),
        ("GET", "example.com", "/", 0),
        ("POST", ".example.com", "/", 0),
        ("GET", "", "/", 0),
    ];
    let mut order: Vec<usize> = (0..rows.len()).collect();
    for _ in 0..2 {
        let routes = Routes::new(order.iter().map(|index| route(rows[*index])).collect());
        for (method, host, path, wanted) in expected {
            let found = routes.find(line(method, host, path));
            assert_eq!(found.otherwise.map(|index| order[index]), Some(wanted), "{method} {host}{path}");
        }
        order.reverse();
    }
}

#[test]
fn routes_with_headers_go_before_those_without_and_more_before_fewer() {
    let rows = [
        ("*", "/a", "", ""),
        ("*", "/a", "", "x"),
        ("*", "/a", "", "x=1"),
        ("*", "/a", "", "x y"),
        ("*", "/a", "GET", ""),
        ("*", "/*", "", "x"),
    ];
    let routes = Routes::new(rows.map(route).into());
    assert_eq!(routes.find(line("POST", "", "/a")), Found { with_headers: vec![3, 2, 1], otherwise: Some(0) });
    assert_eq!(routes.find(line("GET", "", "/a")), Found { with_headers: vec![], otherwise: Some(4) });
    assert_eq!(routes.find(line("GET", "", "/b")), Found { with_headers: vec![5], otherwise: None });
}

#[test]
fn a_route_of_the_gateway_goes_first_where_it_is_named() {
    let named = |name: &str, row| Route { route_name: Some(name.into()), ..route(row) };
    let rows = [("*", "/*", "", ""), ("*", "/*", "", ""), ("*", "/a", "", "")];
    let routes = Routes::new(vec![named("one", rows[0]), named("two", rows[1]), route(rows[2])]);
    let find = |route_name, path| routes.find(RequestLine { route_name, ..line("GET", "", path) }).otherwise;
    assert_eq!(find("one", "/a"), Some(0));
    assert_eq!(find("two", "/b"), Some(1));
    assert_eq!(find("three", "/a"), Some(2));
    assert_eq!(find("", "/b"), None);
}

/// Pseudo-random numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }

    fn pick<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.below(texts.len())]
    }
}

/// All routes one after the other: what the index must find.
fn searched(routes: &[Route], line: RequestLine<'_>) -> Found {
    let mut matching: Vec<usize> = (0..routes.len()).filter(|index| routes[*index].matches_line(line)).collect();
    matching.sort_by(|one, two| routes[*one].precedence(&routes[*two]));
    let end = matching.iter().position(|index| routes[*index].headers.is_empty());
    Found {
        with_headers: matching[..end.unwrap_or(matching.len())].to_vec(),
        otherwise: end.map(|position| matching[position]),
    }
}

#[test]
fn the_index_finds_what_a_search_through_all_routes_finds() {
    let hosts = ["*", "*", "a.org", "*.a.org", "*.org", "*.b.a.org"];
    let parts = ["/a", "/b", "/{x}", "/{y}", "", ""];
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut matched = 0;
    for _ in 0..300 {
        let routes: Vec<Route> = (0..dice.below(20))
            .map(|_| {
                let mut path: String = (0..3).map(|_| dice.pick(&parts)).collect();
                path.push_str(dice.pick(&["", "/*"]));
                let row = (dice.pick(&hosts), path.as_str(), dice.pick(&["", "GET", "HEAD GET", "POST"]), "");
                let mut route = route(row);
                route.headers =
                    if dice.below(3) == 0 { super::tests::route(("*", "/", "", "h=1")).headers } else { vec![] };
                route.route_name = (dice.below(4) == 0).then(|| dice.pick(&["one", "two"]).into());
                route
            })
            .collect();
        let index = Routes::new(routes.clone());
        for _ in 0..50 {
            let path: String = (0..4).map(|_| dice.pick(&["/a", "/b", "/c", "", ""])).collect();
            let path = if path.is_empty() { "/" } else { &path };
            let host = dice.pick(&["a.org", "b.a.org", "c.b.a.org", "org", ""]);
            let line = RequestLine {
                route_name: dice.pick(&["", "one", "two", "three"]),
                ..line(dice.pick(&["GET", "HEAD", "POST", "PUT"]), host, path)
            };
            let found = index.find(line);
            assert_eq!(found, searched(&routes, line), "{line:?} among {routes:#?}");
            matched += usize::from(found.otherwise.is_some());
        }
    }
    assert!(matched > 3_000, "only {matched} requests matched");
}
