//! What the engine wants to know of a request, looked up in the platform's own.

use lockkeeper_core::engine::Engine;
use lockkeeper_core::identity::Attribute;
use lockkeeper_core::selection::Selection;
use wasm_bindgen::{JsCast, JsValue};
use worker::web_sys::{Headers, Request};

use crate::host;

/// The header in which the platform tells the client's address. It overwrites what clients send.
const CLIENT_ADDRESS: &str = "cf-connecting-ip";
/// The first step of metadata that the platform provides, such as `cf.country`.
const PLATFORM: &str = "cf";

/// Finds the policy.
pub fn select(engine: &Engine, request: &Request) -> Selection {
    let url = request.url();
    let (authority, target) = line(&url);
    let selection = engine.select(&request.method(), authority, target);
    let headers = engine.route_headers(&selection);
    if headers.is_empty() {
        return selection;
    }
    let values: Vec<_> = headers.iter().map(|header| look_up(header, request)).collect();
    engine.select_by_headers(selection, &values)
}

/// The values of the attributes that the policy needs.
pub fn values(engine: &Engine, selection: &Selection, request: &Request) -> Vec<Option<Vec<u8>>> {
    engine.attributes(selection).iter().map(|attribute| look_up(attribute, request)).collect()
}

/// The lines of a header, joined by commas.
pub fn header(headers: &Headers, name: &str) -> Option<String> {
    headers.get(name).ok().flatten()
}

/// Whether the client speaks gRPC.
pub fn is_grpc(request: &Request) -> bool {
    let content_type = header(&request.headers(), "content-type").unwrap_or_default();
    match content_type.strip_prefix("application/grpc") {
        Some(rest) => rest.is_empty() || rest.starts_with(['+', ';']),
        None => false,
    }
}

fn look_up(attribute: &Attribute, request: &Request) -> Option<Vec<u8>> {
    match attribute {
        Attribute::ClientAddress => header(&request.headers(), CLIENT_ADDRESS).map(String::into_bytes),
        Attribute::Header(name) => header(&request.headers(), name).map(String::into_bytes),
        Attribute::Metadata(path) => metadata(path, request),
    }
}

/// A scalar among what the platform says of the request.
fn metadata(path: &[String], request: &Request) -> Option<Vec<u8>> {
    let (first, steps) = path.split_first()?;
    if first != PLATFORM {
        return None;
    }
    let mut value = host::member(request.unchecked_ref::<JsValue>(), PLATFORM)?;
    for step in steps {
        value = host::member(&value, step)?;
    }
    match (value.as_string(), value.as_f64(), value.as_bool()) {
        (Some(text), _, _) => Some(text.into_bytes()),
        (_, Some(number), _) => Some(number.to_string().into_bytes()),
        (_, _, Some(truth)) => Some(truth.to_string().into_bytes()),
        (None, None, None) => None,
    }
}

/// The authority and the target of a URL that the platform wrote.
pub fn line(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    rest.split_at_checked(end).unwrap_or((rest, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_an_authority_and_a_target() {
        let rows = [
            ("https://example.com/a?b=/c#d", ("example.com", "/a?b=/c")),
            ("http://example.com:8080/", ("example.com:8080", "/")),
            ("http://[::1]:8080/a", ("[::1]:8080", "/a")),
            ("https://example.com?b", ("example.com", "?b")),
            ("https://example.com", ("example.com", "")),
        ];
        for (url, expected) in rows {
            assert_eq!(line(url), expected, "{url}");
        }
    }
}
