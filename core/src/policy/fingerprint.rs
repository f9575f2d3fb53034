//! Reads what makes two requests with one idempotency key the same.

use super::error::PolicyErrors;
use super::names::header_name;
use super::node::Node;
use super::reader::{Members, Place};
use super::replay_limit::Stands;
use super::{BodyFingerprint, FingerprintRules, Limit, OverMax, hold_limit, limit};
use crate::identity::meaning;
use crate::order;

/// Changes when the fingerprint of the same request under the same rules does.
const RECIPE_VERSION: &str = "1";
const HEADERS_MAX: usize = 16;
const BODY_BYTES: usize = 64 * 1024;
const BODY_BYTES_MAX: u64 = 1024 * 1024;
const BODIES: [(&str, BodyFingerprint); 4] = [
    ("raw", BodyFingerprint::Raw),
    ("json", BodyFingerprint::Json),
    ("at_completion", BodyFingerprint::AtCompletion),
    ("ignored", BodyFingerprint::Ignored),
];

/// Reads the member `fingerprint`, and the limit on how often a body is held for it.
pub(super) fn read(
    idempotency: &Members<'_>,
    stands: &Stands<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<(FingerprintRules, Option<Limit>)> {
    let empty = Node::Object(Vec::new());
    let default = Place { path: format!("{}.fingerprint", idempotency.path()), node: &empty };
    let place = idempotency.optional("fingerprint").unwrap_or(default);
    let object = place.object(errors, "an object with body, headers, max_body_bytes and over_max")?;
    let rules = read_rules(&object, errors);
    let body = rules.as_ref().map_or(BodyFingerprint::Raw, |rules| rules.body);
    let hold_limit = hold_limit::read(&object, body, stands, scope, errors);
    object.finish(errors, &["body", "headers", "max_body_bytes", "over_max", hold_limit::FIELD]);
    Some((rules?, hold_limit?))
}

fn read_rules(object: &Members<'_>, errors: &mut PolicyErrors) -> Option<FingerprintRules> {
    let body = object.or("body", BodyFingerprint::Raw, errors, |place, errors| place.choice(errors, &BODIES));
    let headers = object.or("headers", Vec::new(), errors, read_headers);
    let max_body_bytes = object.or("max_body_bytes", BODY_BYTES, errors, |place, errors| {
        place.whole(errors, 1..=BODY_BYTES_MAX, " bytes").and_then(|bytes| usize::try_from(bytes).ok())
    });
    let over = [("reject", OverMax::Reject), ("unfingerprinted", OverMax::Unfingerprinted)];
    let over_max = object.or("over_max", OverMax::Reject, errors, |place, errors| place.choice(errors, &over));
    let (body, headers) = (body?, headers?);
    let recipe = recipe(body, &headers);
    Some(FingerprintRules { body, headers, max_body_bytes: max_body_bytes?, over_max: over_max?, recipe })
}

/// Reads the headers; their order means nothing, so they get one.
fn read_headers(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<String>> {
    let names = read_header_names(place, HEADERS_MAX, errors)?.into_iter().map(|(name, _)| name);
    Some(order::sorted(names.collect()))
}

/// Reads a list of at most `most` header names, each with its place.
pub(super) fn read_header_names<'a>(
    place: &Place<'a>,
    most: usize,
    errors: &mut PolicyErrors,
) -> Option<Vec<(String, Place<'a>)>> {
    let places = place.list(errors, "a list of header names")?;
    if places.len() > most {
        place.reject(errors, format!("at most {most} headers"));
    }
    let mut names: Vec<(String, Place<'a>)> = Vec::new();
    for place in places {
        let name = header_name(&place, "the name of a header", errors)?;
        if names.iter().any(|(known, _)| *known == name) {
            place.reject(errors, "each header once");
        }
        names.push((name, place));
    }
    Some(names)
}

fn recipe(body: BodyFingerprint, headers: &[String]) -> String {
    let body = match body {
        BodyFingerprint::Raw => "raw",
        BodyFingerprint::Json => "json",
        // The body's length stands in for it in the head until it is known.
        BodyFingerprint::AtCompletion => "at_completion",
        BodyFingerprint::Ignored => "ignored",
    };
    meaning(&[&[RECIPE_VERSION.to_owned(), body.to_owned()], headers].concat())
}
