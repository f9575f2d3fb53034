//! The origin's response as the core looks at it: status, header lines, and whose word it is.

use js_sys::Array;
use lockkeeper_core::capture::ResponseHead;
use lockkeeper_core::idempotency::kept_headers::Line;
use wasm_bindgen::{JsCast, JsValue};
use worker::web_sys::{Headers, Response};

use crate::request;

/// What the platform answers in the origin's place; the origin may have been at work.
const PLATFORMS_OWN: std::ops::RangeInclusive<u16> = 520..=530;
/// Codings that the platform undoes for whoever reads a body, and does again for a response that names them.
const UNDONE: [&str; 3] = ["br", "gzip", "x-gzip"];
/// What is said of a body in its coding, and not true of the body that we read.
const OF_CODING: [&str; 2] = ["content-encoding", "content-digest"];

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
        let is_undone =
            request::header(&headers, "content-encoding").is_some_and(|coding| UNDONE.contains(&coding.trim()));
        let mut lines = lines(&headers);
        if is_undone {
            lines.retain(|(name, _)| !OF_CODING.contains(&name.as_str()));
        }
        let length = request::header(&headers, "content-length").filter(|_| !is_undone);
        let ends = response.body().is_none() || is_to_head;
        let head = ResponseHead { status: response.status(), lines, ends };
        Origins { head, length: length.and_then(|length| length.trim().parse().ok()) }
    }

    /// Whether the platform answers for the origin.
    pub fn is_platforms_own(&self) -> bool {
        PLATFORMS_OWN.contains(&self.head.status)
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
