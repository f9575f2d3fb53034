//! Reads the path pattern of a route: a path, a template with parameters, or either with everything below.

use super::error::PolicyErrors;
use super::names::is_name;
use super::reader::Place;
use super::suggest;
use crate::normalize::{self, PathRules, TrailingSlash, segments};
use crate::route::{PathMatch, Segment};

const PATH_BYTES_MAX: usize = 4_096;
const EXPECTED: &str = "a path such as \"/v1/login\", \"/orders/{id}\", or \"/v1/*\" for everything below /v1";

/// Reads a pattern; its literal segments are normalised as requests are.
pub(super) fn read(place: &Place<'_>, rules: PathRules, errors: &mut PolicyErrors) -> Option<PathMatch> {
    let text = place.text(errors, EXPECTED)?;
    let (path, below) = match text.strip_suffix("/*") {
        Some(rest) => (if rest.is_empty() { "/" } else { rest }, true),
        None => (text, false),
    };
    let bad = !path.starts_with('/') || path.contains(['*', '?', '#']) || path.len() > PATH_BYTES_MAX;
    if bad || path.split('/').any(is_foreign_parameter) {
        place.reject_for(errors, EXPECTED, || suggest::path(text));
        return None;
    }
    let pattern = match path.contains(['{', '}']) {
        false => Ok(literals(path, if below { without_slash(rules) } else { rules })),
        true => template(path, if below { without_slash(rules) } else { rules }),
    };
    match pattern {
        Ok(segments) => Some(PathMatch { segments, below }),
        Err(expected) => {
            place.reject(errors, expected);
            None
        }
    }
}

/// `:id` and `<id>` name a parameter in other languages; as literals they would silently match nothing.
fn is_foreign_parameter(segment: &str) -> bool {
    let name = segment.strip_prefix(':').or_else(|| segment.strip_prefix('<')?.strip_suffix('>'));
    name.is_some_and(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()) && is_name(name))
}

/// What `/*` follows ends without a slash.
fn without_slash(rules: PathRules) -> PathRules {
    PathRules { trailing_slash: TrailingSlash::Ignore, ..rules }
}

fn literals(path: &str, rules: PathRules) -> Vec<Segment> {
    let normal = normalize::target(path, rules).path;
    segments(&normal).map(|segment| Segment::Literal(segment.to_owned())).collect()
}

/// The segments of a template. Nothing in it may need resolving, so that each parameter stays where it is written.
fn template(path: &str, rules: PathRules) -> Result<Vec<Segment>, &'static str> {
    let mut pattern: Vec<Segment> = Vec::new();
    let mut rest = segments(path).peekable();
    while let Some(text) = rest.next() {
        let segment = match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(name) if !is_name(name) => return Err("a parameter such as {id}, of letters, digits, '-' or '_'"),
            Some(name) => Segment::Parameter(name.to_owned()),
            None if text.contains(['{', '}']) => {
                return Err("parameters that take a whole segment, as in \"/orders/{id}\"");
            }
            None if text.is_empty() && rest.peek().is_none() => match rules.trailing_slash {
                TrailingSlash::Ignore => break,
                TrailingSlash::Distinct => Segment::Literal(String::new()),
            },
            None => match literals(&format!("/{text}"), rules).as_slice() {
                [one] => one.clone(),
                _ => return Err("a template without empty and dot segments"),
            },
        };
        if matches!(segment, Segment::Parameter(_)) && pattern.contains(&segment) {
            return Err("parameters with different names");
        }
        pattern.push(segment);
    }
    Ok(pattern)
}
