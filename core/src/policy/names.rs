//! What may stand as a name: of policies and limits, of headers, of hosts.

use super::error::PolicyErrors;
use super::reader::Place;

/// What a message expects where [`is_name`] fails.
pub(super) const NAME_EXPECTED: &str = "a name of 1 to 64 letters, digits, '-' or '_'";

/// Names become parts of store keys, metric names and header items: letters, digits, `-` and `_`.
pub(super) fn read(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<String> {
    let text = place.text(errors, NAME_EXPECTED)?;
    if !is_name(text) {
        place.reject(errors, NAME_EXPECTED);
        return None;
    }
    Some(text.to_owned())
}

pub(super) fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

/// Whether a text can name a header field: a token of RFC 9110 §5.6.2.
pub(crate) fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// The lower-case name of a header field, or a noted fault.
pub(crate) fn header_name(place: &Place<'_>, expected: &str, errors: &mut PolicyErrors) -> Option<String> {
    let text = place.text(errors, expected)?;
    if !is_header_name(text) {
        place.reject(errors, expected);
        return None;
    }
    Some(text.to_ascii_lowercase())
}

/// Whether a text can be a route's host: a DNS name as it is sent, or an IP address.
pub(super) fn is_host(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    text.bytes().all(allowed) && !text.split('.').any(str::is_empty)
}
