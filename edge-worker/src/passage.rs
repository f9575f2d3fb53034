//! A request on its way through: to the store, then to our answer, or to the origin and back. Bodies stream through;
//! upgrades pass.

use futures_channel::oneshot;
use js_sys::{Promise, Uint8Array};
use lockkeeper_core::decision::Header;
use lockkeeper_core::rate_limit_fields::is_single_valued;
use wasm_bindgen::prelude::*;
use worker::web_sys::{Headers, ReadableStream, Response, ResponseInit};

use crate::asking::Asking;
use crate::host::HostResult;
use crate::outgoing::{Company, Outgoing};
use crate::response;

/// A request on its way through.
#[wasm_bindgen]
pub struct Passage(Kind);

enum Kind {
    Answered(Response),
    Asking(Box<Asking>),
    Held(oneshot::Receiver<HostResult<Response>>),
    Open(Box<Outgoing>, Dress),
    Sent(Dress),
    /// A call of it failed.
    Void,
}

impl Passage {
    /// The request does not pass.
    pub fn answered(response: Response) -> Passage {
        Passage(Kind::Answered(response))
    }

    /// The request waits for the store.
    pub fn asking(asking: Asking) -> Passage {
        Passage(Kind::Asking(Box::new(asking)))
    }

    /// The request passes.
    pub fn open(outgoing: Outgoing, dress: Dress) -> Passage {
        Passage(Kind::Open(Box::new(outgoing), dress))
    }

    /// The request is on its way, with something that it holds; its response comes later.
    pub fn held(response: oneshot::Receiver<HostResult<Response>>) -> Passage {
        Passage(Kind::Held(response))
    }
}

#[wasm_bindgen]
impl Passage {
    /// The promise of the store's answer, for as long as there is one to wait for. It never fails.
    #[wasm_bindgen(getter)]
    pub fn asked(&self) -> Option<Promise> {
        match &self.0 {
            Kind::Asking(asking) => Some(asking.asked.answer.clone()),
            _ => None,
        }
    }

    /// Goes on with that answer.
    ///
    /// # Errors
    /// The platform failed; there was nothing to wait for.
    pub fn resume(&mut self, answer: &JsValue) -> HostResult<()> {
        let Kind::Asking(asking) = std::mem::replace(&mut self.0, Kind::Void) else { return Err(misused()) };
        *self = asking.resume(answer)?;
        Ok(())
    }

    /// Our answer, if the request does not pass.
    #[wasm_bindgen(getter)]
    pub fn answer(&self) -> Option<Response> {
        match &self.0 {
            Kind::Answered(response) => Some(Clone::clone(response)),
            _ => None,
        }
    }

    /// Whether the request is on its way already.
    #[wasm_bindgen(getter, js_name = isHeld)]
    pub fn is_held(&self) -> bool {
        matches!(self.0, Kind::Held(_))
    }

    /// The response to a request that is on its way.
    ///
    /// # Errors
    /// The origin could not be reached, or broke off; the request was not on its way.
    pub async fn response(self) -> HostResult<Response> {
        let Kind::Held(response) = self.0 else { return Err(misused()) };
        response.await.unwrap_or_else(|_| Err(JsValue::from_str("the request was given up")))
    }

    /// Sends the request on: the promise of the origin's response, which [`Passage::dressed`] takes.
    ///
    /// # Errors
    /// The platform refuses the request; it was answered, is on its way or was sent before.
    pub fn send(&mut self) -> HostResult<Promise> {
        let Kind::Open(outgoing, dress) = std::mem::replace(&mut self.0, Kind::Void) else { return Err(misused()) };
        let (response, _) = outgoing.send(Company::default())?;
        self.0 = Kind::Sent(dress);
        Ok(response)
    }

    /// The origin's response with our fields.
    ///
    /// # Errors
    /// The platform refuses a field.
    pub fn dressed(self, response: Response) -> HostResult<Response> {
        let Kind::Sent(dress) = self.0 else { return Err(misused()) };
        dress.put_on(response, Content::Own)
    }
}

fn misused() -> JsValue {
    JsValue::from_str("the passage was used for what it is not")
}

/// What responses of the origin get from us.
pub struct Dress {
    /// Fields of limits, beside the origin's own. Of those that may occur only once, its own stay and ours are left out.
    pub fields: Vec<Header>,
    /// A field that replaces the origin's: who decided, where the store did not.
    pub degraded: Option<(String, &'static str)>,
}

/// What a response carries.
pub enum Content {
    /// The response's own.
    Own,
    /// These bytes.
    Bytes(Uint8Array),
    /// What comes through here.
    Stream(ReadableStream),
}

impl Dress {
    /// The response with our fields.
    ///
    /// # Errors
    /// The platform refuses a field.
    pub fn put_on(&self, response: Response, content: Content) -> HostResult<Response> {
        if self.fields.is_empty() && self.degraded.is_none() && matches!(content, Content::Own) {
            return Ok(response);
        }
        // A response of the platform cannot be changed; its copy keeps status, header and upgrade.
        let init: &ResponseInit = response.unchecked_ref();
        let is_own = matches!(content, Content::Own);
        let copy = match content {
            Content::Own => Response::new_with_opt_readable_stream_and_init(response.body().as_ref(), init),
            Content::Bytes(bytes) => Response::new_with_opt_js_u8_array_and_init(Some(&bytes), init),
            Content::Stream(stream) => Response::new_with_opt_readable_stream_and_init(Some(&stream), init),
        }?;
        if !is_own {
            response::untie_coding(&copy.headers())?;
        }
        self.add_to(&copy.headers())?;
        Ok(copy)
    }

    fn add_to(&self, headers: &Headers) -> HostResult<()> {
        let is_there = |name: &str| headers.has(name).unwrap_or(false);
        let is_told = self.fields.iter().any(|(name, _)| is_single_valued(name) && is_there(name));
        for (name, value) in self.fields.iter().filter(|(name, _)| !(is_told && is_single_valued(name))) {
            headers.append(name, value)?;
        }
        if let Some((name, decider)) = &self.degraded {
            headers.set(name, decider)?;
        }
        Ok(())
    }
}
