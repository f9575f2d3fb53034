//! What was decided for a request: our answer, or its way to the origin and back. Bodies stream through; upgrades pass.

use js_sys::Promise;
use lockkeeper_core::decision::Header;
use lockkeeper_core::rate_limit_fields::is_single_valued;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use worker::web_sys::{Request, RequestInit, Response, ResponseInit, WorkerGlobalScope};

use crate::host::{self, HostResult};
use crate::request;

/// The service binding to the origin.
const SERVICE: &str = "ORIGIN_SERVICE";

/// A decided request.
#[wasm_bindgen]
pub struct Passage(Kind);

enum Kind {
    Answered(Response),
    Open(Open),
}

struct Open {
    request: Request,
    environment: JsValue,
    origin: Option<String>,
    fields: Vec<Header>,
    degraded: Option<(String, &'static str)>,
}

#[wasm_bindgen]
extern "C" {
    type Service;
    #[wasm_bindgen(method, catch)]
    fn fetch(this: &Service, request: &Request) -> HostResult<Promise>;
}

impl Passage {
    /// The request does not pass.
    pub fn answered(response: Response) -> Passage {
        Passage(Kind::Answered(response))
    }

    /// The request passes, to `origin` if there is one; `fields` go on the response.
    pub fn open(
        request: Request,
        environment: JsValue,
        origin: Option<String>,
        fields: Vec<Header>,
        degraded: Option<(String, &'static str)>,
    ) -> Passage {
        Passage(Kind::Open(Open { request, environment, origin, fields, degraded }))
    }
}

#[wasm_bindgen]
impl Passage {
    /// Our answer, if the request does not pass.
    #[wasm_bindgen(getter)]
    pub fn answer(&self) -> Option<Response> {
        match &self.0 {
            Kind::Answered(response) => Some(Clone::clone(response)),
            Kind::Open(_) => None,
        }
    }

    /// Sends the request on and gives the response with our fields.
    ///
    /// # Errors
    /// The origin could not be reached, or broke off.
    pub async fn forward(self) -> HostResult<Response> {
        match self.0 {
            Kind::Answered(response) => Ok(response),
            Kind::Open(open) => {
                let response: Response = JsFuture::from(open.dispatch()?).await?.unchecked_into();
                open.dressed(response)
            }
        }
    }
}

impl Open {
    fn dispatch(&self) -> HostResult<Promise> {
        if let Some(service) = host::member(&self.environment, SERVICE) {
            return service.unchecked_into::<Service>().fetch(&self.request);
        }
        let global: WorkerGlobalScope = js_sys::global().unchecked_into();
        Ok(match &self.origin {
            Some(origin) => {
                let url = self.request.url();
                let (_, target) = request::line(&url);
                // The request stands for all that is not the address: method, header, body, and redirects left alone.
                let init: &RequestInit = self.request.unchecked_ref();
                global.fetch_with_str_and_init(&format!("{origin}{target}"), init)
            }
            None => global.fetch_with_request(&self.request),
        })
    }

    /// The origin's response with our fields beside its own. Of those that may occur only once, its own stay and ours
    /// are left out.
    fn dressed(self, response: Response) -> HostResult<Response> {
        if self.fields.is_empty() && self.degraded.is_none() {
            return Ok(response);
        }
        // A response of the platform cannot be changed; its copy keeps status, header, body and upgrade.
        let init: &ResponseInit = response.unchecked_ref();
        let copy = Response::new_with_opt_readable_stream_and_init(response.body().as_ref(), init)?;
        let headers = copy.headers();
        let is_there = |name: &str| headers.has(name).unwrap_or(false);
        let is_told = self.fields.iter().any(|(name, _)| is_single_valued(name) && is_there(name));
        for (name, value) in self.fields.iter().filter(|(name, _)| !(is_told && is_single_valued(name))) {
            headers.append(name, value)?;
        }
        if let Some((name, decider)) = &self.degraded {
            headers.set(name, decider)?;
        }
        Ok(copy)
    }
}
