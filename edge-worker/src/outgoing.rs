//! A request on its way to the origin: to the service binding, `ORIGIN` or the zone's own, and how it differs from what the
//! client sent.

use js_sys::Promise;
use lockkeeper_core::decision::UpstreamRequest;
use lockkeeper_core::idempotency::fingerprint::BodyHasher;
use wasm_bindgen::prelude::*;
use worker::web_sys::{AbortSignal, Headers, Request, RequestInit, RequestRedirect, WorkerGlobalScope};

use crate::body::{Hash, RequestBody};
use crate::host::{self, HostResult};
use crate::request;

/// Never passed on: the platform takes the answer to it, 100, for the origin's last word.
const EXPECTATION: &str = "expect";
/// The service binding to the origin.
const SERVICE: &str = "ORIGIN_SERVICE";

#[wasm_bindgen]
extern "C" {
    type Service;
    #[wasm_bindgen(method, catch)]
    fn fetch(this: &Service, url: &str, init: &RequestInit) -> HostResult<Promise>;
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
        if self.is_as_it_came(&company) {
            return Ok((dispatch(&self.request, None, &self.environment, self.origin.as_deref())?, None));
        }
        let headers = Headers::new_with_headers(&self.request.headers())?;
        self.removed().try_for_each(|name| headers.delete(name))?;
        self.changes.set.iter().try_for_each(|(name, value)| headers.set(name, value))?;
        let init = RequestInit::new();
        init.set_method(&self.request.method());
        init.set_headers_headers(&headers);
        init.set_redirect(RequestRedirect::Manual);
        init.set_signal(company.signal);
        let hash = self.body.lend(&self.request, company.hasher, &init)?;
        Ok((dispatch(&self.request, Some(&init), &self.environment, self.origin.as_deref())?, hash))
    }

    fn is_as_it_came(&self, company: &Company<'_>) -> bool {
        let headers = self.request.headers();
        let is_same = |name: &str| !headers.has(name).unwrap_or(true);
        let has_changes = !self.changes.set.is_empty() || !self.removed().all(is_same);
        !has_changes && company.signal.is_none() && matches!(self.body, RequestBody::Untouched)
    }

    fn removed(&self) -> impl Iterator<Item = &str> {
        self.changes.removed.iter().map(String::as_str).chain([EXPECTATION])
    }
}

/// Sends a request: as it came, or as `init` says.
fn dispatch(
    request: &Request,
    init: Option<&RequestInit>,
    environment: &JsValue,
    origin: Option<&str>,
) -> HostResult<Promise> {
    let url = request.url();
    let service = host::member(environment, SERVICE).map(JsCast::unchecked_into::<Service>);
    let (_, target) = request::line(&url);
    let url = match origin.filter(|_| service.is_none()) {
        Some(origin) => format!("{origin}{target}"),
        None => url.clone(),
    };
    // The request stands for all that is not the address: method, header, body, and redirects left alone.
    let init = init.unwrap_or(request.unchecked_ref());
    match service {
        Some(service) => service.fetch(&url, init),
        None => {
            let global: WorkerGlobalScope = js_sys::global().unchecked_into();
            Ok(global.fetch_with_str_and_init(&url, init))
        }
    }
}
