//! Our own answers as responses of the platform, for HTTP and for gRPC clients.

use js_sys::{Reflect, Uint8Array};
use lockkeeper_core::decision::{Answer, Outcome};
use worker::web_sys::{Headers, Response, ResponseInit};

use crate::host::HostResult;

/// The response to a request that does not pass. `degraded` marks it where the store did not decide.
///
/// # Errors
/// The platform refuses a field.
pub fn response(
    answer: &Answer,
    outcome: Outcome,
    is_grpc: bool,
    degraded: Option<(String, &'static str)>,
) -> HostResult<Response> {
    let headers = Headers::new()?;
    for (name, value) in &answer.headers {
        headers.append(name, value)?;
    }
    for (name, value) in &answer.stored_headers {
        headers.append(name, &String::from_utf8_lossy(value))?;
    }
    if let Some((name, decider)) = degraded {
        headers.set(&name, decider)?;
    }
    let init = ResponseInit::new();
    init.set_headers(&headers);
    // A replay is the origin's own answer, whatever its protocol.
    if !is_grpc || outcome == Outcome::Replayed {
        init.set_status(answer.status);
        // A stored body stands in the coding that its head names.
        Reflect::set(&init, &"encodeBody".into(), &"manual".into())?;
        let body = (!answer.body.is_empty()).then(|| Uint8Array::from(answer.body.as_slice()));
        return Response::new_with_opt_js_u8_array_and_init(body.as_ref(), &init);
    }
    // Without trailers on this platform: status and message stand among the headers, as gRPC allows where no message
    // precedes them.
    headers.set("content-type", "application/grpc")?;
    headers.set("grpc-status", &(answer.grpc_status as i32).to_string())?;
    headers.set("grpc-message", &percent_encoded(&answer.grpc_message))?;
    init.set_status(200);
    Response::new_with_opt_str_and_init(None, &init)
}

/// Says on a response that nobody knows whether the origin did what the request asks.
pub const UNKNOWN_OUTCOME: (&str, &str) = ("idempotency-outcome", "unknown");

/// The answer for an origin that gave none; the outcome of a request with a key is unknown then.
///
/// # Errors
/// The platform refuses a field.
pub fn no_origin(is_unknown: bool) -> HostResult<Response> {
    let headers = Headers::new()?;
    headers.set("content-type", "application/problem+json")?;
    headers.set("cache-control", "no-store")?;
    if is_unknown {
        headers.set(UNKNOWN_OUTCOME.0, UNKNOWN_OUTCOME.1)?;
    }
    let init = ResponseInit::new();
    init.set_headers(&headers);
    init.set_status(502);
    let body = r#"{"type":"about:blank","title":"The origin did not answer","status":502}"#;
    Response::new_with_opt_str_and_init(Some(body), &init)
}

/// As gRPC wants it: printable ASCII but `%` as it is, the rest by its bytes.
fn percent_encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte {
        b'%' => "%25".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_printable() {
        assert_eq!(percent_encoded("rate limit: 50% of ü\n"), "rate limit: 50%25 of %C3%BC%0A");
    }
}
