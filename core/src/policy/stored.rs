//! Reads what is kept of a response for replays.

use super::StoredRules;
use super::error::PolicyErrors;
use super::fingerprint::read_header_names;
use super::reader::{Members, Place};
use super::suggest;
use crate::idempotency::kept_headers::{STANDARD, is_never_kept};

const BODY_BYTES: usize = 256 * 1024;
const BODY_BYTES_MAX: u64 = 1024 * 1024;
const HEADERS_MAX: usize = 32;

/// Reads the member `response`.
pub(super) fn read(idempotency: &Members<'_>, errors: &mut PolicyErrors) -> Option<StoredRules> {
    let defaults = StoredRules { max_body_bytes: BODY_BYTES, headers: kept(&[], &[]), seal_set_cookie: false };
    idempotency.or("response", defaults, errors, read_object)
}

fn read_object(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<StoredRules> {
    let object = place.object(errors, "an object with max_body_bytes, add_headers, drop_headers and on_set_cookie")?;
    let max_body_bytes = object.or("max_body_bytes", BODY_BYTES, errors, |place, errors| {
        place.whole(errors, 0..=BODY_BYTES_MAX, " bytes").and_then(|bytes| usize::try_from(bytes).ok())
    });
    let add = object.or("add_headers", Vec::new(), errors, read_added);
    let drop = object.or("drop_headers", Vec::new(), errors, read_dropped);
    let cookies = [("drop", false), ("seal", true)];
    let seal_set_cookie = object.or("on_set_cookie", false, errors, |place, errors| place.choice(errors, &cookies));
    object.finish(errors, &["max_body_bytes", "add_headers", "drop_headers", "on_set_cookie"]);
    let headers = kept(&add?, &drop?);
    Some(StoredRules { max_body_bytes: max_body_bytes?, headers, seal_set_cookie: seal_set_cookie? })
}

fn read_added(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<String>> {
    let named = read_header_names(place, HEADERS_MAX, errors)?;
    for (name, place) in &named {
        if is_never_kept(name) {
            place.reject(errors, "a header that still holds when the response is replayed");
        }
    }
    Some(named.into_iter().map(|(name, _)| name).collect())
}

fn read_dropped(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<String>> {
    let named = read_header_names(place, HEADERS_MAX, errors)?;
    for (name, place) in named.iter().filter(|(name, _)| !STANDARD.contains(&name.as_str())) {
        let meant = || suggest::closest(name, &STANDARD).map(|name| format!("{name:?}"));
        place.reject_for(errors, format!("one of the headers that are kept: {}", STANDARD.join(", ")), meant);
    }
    Some(named.into_iter().map(|(name, _)| name).collect())
}

fn kept(added: &[String], dropped: &[String]) -> Vec<String> {
    let standard = STANDARD.iter().map(|name| (*name).to_owned()).filter(|name| !dropped.contains(name));
    let more = added.iter().filter(|name| !STANDARD.contains(&name.as_str())).cloned();
    standard.chain(more).collect()
}
