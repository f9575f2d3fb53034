//! Reads the key of a limit: its parts, and what happens when a request lacks one.

use super::error::PolicyErrors;
use super::names::{is_header_name, is_name};
use super::reader::{Members, Place};
use super::{MissingKey, Rejection, suggest};
use crate::identity::KeyPart;

const KEY_PARTS_MAX: usize = 8;
const PART_EXPECTED: &str = "\"client_address\", \"method\", \"host\", \"path\", \"route\", \"header:NAME\", \"cookie:NAME\", \"query:NAME\", \"path:PARAMETER\", \"metadata:FILTER.PATH\" or \"constant:TEXT\"";

/// Reads the list of parts.
pub(super) fn read(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<KeyPart>> {
    let places = place.list(errors, "a list of key parts such as [\"client_address\"]")?;
    if places.is_empty() || places.len() > KEY_PARTS_MAX {
        place
            .reject(errors, format!("1 to {KEY_PARTS_MAX} key parts; [\"constant:all\"] counts all requests together"));
    }
    places.iter().map(|place| read_part(place, errors)).collect::<Vec<_>>().into_iter().collect()
}

/// Reads one part.
pub(super) fn read_part(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<KeyPart> {
    let text = place.text(errors, PART_EXPECTED)?;
    let part = key_part(text);
    if part.is_none() {
        place.reject_for(errors, PART_EXPECTED, || suggest::key_part(text, |text| key_part(text).is_some()));
    }
    part
}

pub(super) fn key_part(text: &str) -> Option<KeyPart> {
    match text.split_once(':') {
        None => match text {
            "client_address" => Some(KeyPart::ClientAddress),
            "method" => Some(KeyPart::Method),
            "host" => Some(KeyPart::Host),
            "path" => Some(KeyPart::Path),
            "route" => Some(KeyPart::Route),
            _ => None,
        },
        Some(("header", name)) if is_header_name(name) => Some(KeyPart::Header(name.to_ascii_lowercase())),
        // The name of a cookie is a token too (RFC 6265 §4.1.1).
        Some(("cookie", name)) if is_header_name(name) => Some(KeyPart::Cookie(name.to_owned())),
        Some(("query", name)) if !name.is_empty() => Some(KeyPart::Query(name.to_owned())),
        Some(("path", name)) if is_name(name) => Some(KeyPart::PathParameter(name.to_owned())),
        Some(("metadata", path)) => metadata_path(path).map(KeyPart::Metadata),
        Some(("constant", text)) if !text.is_empty() => Some(KeyPart::Constant(text.to_owned())),
        Some(_) => None,
    }
}

/// `jwt_authn.sub`: steps separated by dots, the first of them the filter's namespace. A step that holds dots stands in
/// brackets: `['envoy.filters.http.jwt_authn'].payload.sub`.
fn metadata_path(text: &str) -> Option<Vec<String>> {
    let (mut steps, mut rest) = (Vec::new(), text);
    loop {
        let (step, after) = match rest.strip_prefix("['") {
            Some(quoted) => quoted.split_once("']")?,
            None => {
                let end = [".", "['"].iter().filter_map(|mark| rest.find(mark)).min();
                rest.split_at_checked(end.unwrap_or(rest.len()))?
            }
        };
        if step.is_empty() || step.contains(char::is_control) {
            return None;
        }
        steps.push(step.to_owned());
        rest = match after.strip_prefix('.') {
            Some(next) => next,
            None if after.starts_with("['") => after,
            None if after.is_empty() => break,
            None => return None,
        };
    }
    (steps.len() >= 2).then_some(steps)
}

/// Reads `on_missing_key` of a limit with this key.
pub(super) fn read_on_missing(
    limit: &Members<'_>,
    key: Option<&[KeyPart]>,
    errors: &mut PolicyErrors,
) -> Option<MissingKey> {
    let Some(place) = limit.optional("on_missing_key") else {
        return Some(MissingKey::Reject(Rejection::BadRequest));
    };
    let expected = "\"reject\", \"skip\", {\"reject\": 401} or {\"fallback\": \"client_address\"}";
    match place.node.as_text() {
        Some("reject") => return Some(MissingKey::Reject(Rejection::BadRequest)),
        Some("skip") => return Some(MissingKey::Skip),
        Some(_) => place.reject(errors, expected),
        None => {}
    }
    if place.node.as_text().is_some() {
        return None;
    }
    let object = place.object(errors, expected)?;
    let reject = object.optional("reject").map(|place| read_rejection(&place, errors).map(MissingKey::Reject));
    let fallback = object.optional("fallback").map(|place| read_fallback(&place, key, errors));
    object.finish(errors, &["reject", "fallback"]);
    match (reject, fallback) {
        (Some(one), None) => one,
        (None, Some(one)) => one.map(MissingKey::Fallback),
        (None, None) | (Some(_), Some(_)) => {
            place.reject(errors, "one of the fields reject, fallback");
            None
        }
    }
}

fn read_rejection(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Rejection> {
    match place.whole(errors, 400..=401, ", the status of the answer")? {
        401 => Some(Rejection::Unauthorized),
        _ => Some(Rejection::BadRequest),
    }
}

fn read_fallback(place: &Place<'_>, key: Option<&[KeyPart]>, errors: &mut PolicyErrors) -> Option<KeyPart> {
    let part = read_part(place, errors)?;
    if key.is_some_and(|key| key.contains(&part)) {
        place.reject(errors, "a key part that the key does not have already");
        return None;
    }
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_what_its_text_says_and_its_text_says_what_it_is() {
        let metadata = |steps: &[&str]| KeyPart::Metadata(steps.iter().map(|step| (*step).to_owned()).collect());
        let rows = [
            ("route", KeyPart::Route),
            ("path", KeyPart::Path),
            ("path:id", KeyPart::PathParameter("id".into())),
            ("cookie:SID", KeyPart::Cookie("SID".into())),
            ("query:a:b c", KeyPart::Query("a:b c".into())),
            ("header:x-org", KeyPart::Header("x-org".into())),
            ("metadata:jwt_authn.sub", metadata(&["jwt_authn", "sub"])),
            ("metadata:a.b[0].c", metadata(&["a", "b[0]", "c"])),
            ("metadata:['envoy.lb'].a['b.c'].d", metadata(&["envoy.lb", "a", "b.c", "d"])),
            ("metadata:a['https://example.com/plan']", metadata(&["a", "https://example.com/plan"])),
        ];
        for (text, part) in rows {
            assert_eq!(key_part(text), Some(part.clone()), "{text}");
            assert_eq!(part.text(), text);
        }
    }

    #[test]
    fn what_names_no_part_is_refused() {
        let texts = [
            "cookie:",
            "cookie:a b",
            "query:",
            "path:",
            "path:{id}",
            "path:a/b",
            "route:x",
            "metadata:a",
            "metadata:a.",
            "metadata:.a",
            "metadata:['a.b']",
            "metadata:['a.b'",
            "metadata:['a.b']c",
            "metadata:[''].c",
            "metadata:a.\0",
        ];
        for text in texts {
            assert_eq!(key_part(text), None, "{text}");
        }
    }
}
