//! The origin's response as the core looks at it: status, header lines, and whose word it is.

use js_sys::Array;
use lockkeeper_core::capture::ResponseHead;
use lockkeeper_core::idempotency::kept_headers::Line;
use wasm_bindgen::{JsCast, JsValue};
use worker::web_sys::{Headers, Response};

use crate::host::HostResult;
use crate::request;

/// What the platform answers in the origin's place; the origin may have been at work.
const PLATFORMS_OWN: std::ops::RangeInclusive<u16> = 520..=530;
/// Codings that the platform undoes for whoever reads a body, and does again for a response that names them.
const UNDONE: [&str; 3] = ["br", "gzip", "x-gzip"];
/// What is said of the bytes of a coding. It is not true of those that we read, nor of those that the platform makes of
/// them in the same coding.
const OF_CODING: [&str; 4] = ["content-digest", "content-md5", "digest", "repr-digest"];

/// A response whose head has come.
pub struct Origins {
    /// As the core takes it.
    pub head: ResponseHead,
    /// Bytes that will be read, where that is known.
    pub length: Option<u64>,
}

impl Origins {
    /// Looks at a response to a request that was, or was not, a HEAD.
    pub fn of(response: &Response, is_to_head: bool) -> Origins {
        let headers = response.headers();
        let is_undone = is_undone(&headers);
        let mut lines = lines(&headers);
        if is_undone {
            lines.retain(|(name, _)| name != "content-encoding" && !OF_CODING.contains(&name.as_str()));
            lines.iter_mut().filter(|(name, _)| name == "etag").for_each(|(_, tag)| weaken(tag));
        }
        let length = request::header(&headers, "content-length").filter(|_| !is_undone);
        let ends = response.body().is_none() || is_to_head;
        let head = ResponseHead { status: response.status(), lines, ends };
        Origins { head, length: length.and_then(|length| length.trim().parse().ok()) }
    }

    /// Whether it can be passed on. The platform takes an interim response for the last word; what follows is lost.
    pub fn is_usable(&self) -> bool {
        matches!(self.head.status, 101 | 200..=599)
    }

    /// Whether the platform answers for the origin.
    pub fn is_platforms_own(&self) -> bool {
        PLATFORMS_OWN.contains(&self.head.status)
    }
}

fn is_undone(headers: &Headers) -> bool {
    request::header(headers, "content-encoding").is_some_and(|coding| UNDONE.contains(&coding.trim()))
}

/// Takes from a response whose body we have read what is not true of it in another coding, or in the same once more.
///
/// # Errors
/// The platform refuses a field.
pub fn untie_coding(headers: &Headers) -> HostResult<()> {
    if !is_undone(headers) {
        return Ok(());
    }
    OF_CODING.iter().try_for_each(|name| headers.delete(name))?;
    let Some(mut tag) = request::header(headers, "etag").map(String::into_bytes) else { return Ok(()) };
    weaken(&mut tag);
    headers.set("etag", &String::from_utf8_lossy(&tag))
}

/// A strong entity tag stands for bytes (RFC 9110, section 8.8.1).
fn weaken(tag: &mut Vec<u8>) {
    if tag.starts_with(b"\"") {
        tag.splice(..0, *b"W/");
    }
}

/// All lines, names in lower case. Lines of one name come joined, but for cookies.
fn lines(headers: &Headers) -> Vec<Line> {
    headers.entries().into_iter().filter_map(|entry| line(&entry.ok()?)).collect()
}

fn line(entry: &JsValue) -> Option<Line> {
    let pair: &Array = entry.unchecked_ref();
    Some((pair.get(0).as_string()?, pair.get(1).as_string()?.into_bytes()))
}
