//! A request on its way to the origin: to the service binding, `ORIGIN` or the zone's own, and how it differs from what the
//! client sent.

use js_sys::Promise;
use lockkeeper_core::decision::UpstreamRequest;
use lockkeeper_core::idempotency::fingerprint::BodyHasher;
use wasm_bindgen::prelude::*;
use worker::web_sys::{AbortSignal, Headers, Request, RequestInit, WorkerGlobalScope};

use crate::body::{Hash, RequestBody};
use crate::host::{self, HostResult};
use crate::request;

/// The service binding to the origin.
const SERVICE: &str = "ORIGIN_SERVICE";

#[wasm_bindgen]
extern "C" {
    type Service;
    #[wasm_bindgen(method, catch)]
    fn fetch(this: &Service, request: &Request) -> HostResult<Promise>;
}

/// A request that goes on.
pub struct Outgoing {
    /// As the client sent it.
    pub request: Request,
    /// The bindings.
    pub environment: JsValue,
    /// Where it goes, where that is not the service binding or the zone's own origin.
    pub origin: Option<String>,
    /// What of its body was read.
    pub body: RequestBody,
    /// What changes.
    pub changes: UpstreamRequest,
}

/// What goes along with a request of a lease.
#[derive(Default)]
pub struct Company<'c> {
    /// Cancels it.
    pub signal: Option<&'c AbortSignal>,
    /// Hashes its body.
    pub hasher: Option<BodyHasher>,
}

impl Outgoing {
    /// Sends it: the promise of the response, and of the body's hash where it is hashed.
    ///
    /// # Errors
    /// The platform refuses the request; nothing was sent.
    pub fn send(self, company: Company<'_>) -> HostResult<(Promise, Option<Hash>)> {
        let (request, hash) = changed(self.request, self.body, &self.changes, company)?;
        Ok((dispatch(&request, &self.environment, self.origin.as_deref())?, hash))
    }
}

/// The request as it goes on; the client's own where nothing changes.
fn changed(
    request: Request,
    body: RequestBody,
    changes: &UpstreamRequest,
    company: Company<'_>,
) -> HostResult<(Request, Option<Hash>)> {
    let is_same = changes.set.is_empty() && !has_any(&request.headers(), &changes.removed);
    if is_same && company.signal.is_none() && matches!(body, RequestBody::Untouched) {
        return Ok((request, None));
    }
    let headers = Headers::new_with_headers(&request.headers())?;
    changes.removed.iter().try_for_each(|name| headers.delete(name))?;
    changes.set.iter().try_for_each(|(name, value)| headers.set(name, value))?;
    let init = RequestInit::new();
    init.set_headers_headers(&headers);
    init.set_signal(company.signal);
    let hash = body.lend(&request, company.hasher, &init)?;
    Ok((Request::new_with_request_and_init(&request, &init)?, hash))
}

fn has_any(headers: &Headers, names: &[String]) -> bool {
    names.iter().any(|name| headers.has(name).unwrap_or(true))
}

fn dispatch(request: &Request, environment: &JsValue, origin: Option<&str>) -> HostResult<Promise> {
    if let Some(service) = host::member(environment, SERVICE) {
        return service.unchecked_into::<Service>().fetch(request);
    }
    let global: WorkerGlobalScope = js_sys::global().unchecked_into();
    Ok(match origin {
        Some(origin) => {
            let url = request.url();
            let (_, target) = request::line(&url);
            // The request stands for all that is not the address: method, header, body, and redirects left alone.
            let init: &RequestInit = request.unchecked_ref();
            global.fetch_with_str_and_init(&format!("{origin}{target}"), init)
        }
        None => global.fetch_with_request(request),
    })
}
