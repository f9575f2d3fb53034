//! Carries out the core's steps for one request: asks the store or the isolate's own limiter, reads the body, waits.

use lockkeeper_core::call::Call;
use lockkeeper_core::decision::Decision;
use lockkeeper_core::engine::{Collected, NeedBody, Step};
use wasm_bindgen::JsValue;
use worker::web_sys::Request;

use crate::body::{Read, RequestBody};
use crate::host;
use crate::isolate::Isolate;
use crate::store::Session;

/// One request under decision.
pub struct Steps<'r> {
    isolate: &'r Isolate,
    environment: &'r JsValue,
    request: &'r Request,
    session: Option<Session<'r>>,
    /// What has become of its body.
    pub body: RequestBody,
    /// When the last command was sent, in microseconds.
    pub sent_us: u64,
}

impl<'r> Steps<'r> {
    /// Before the first step.
    pub fn new(isolate: &'r Isolate, environment: &'r JsValue, request: &'r Request) -> Steps<'r> {
        Steps { isolate, environment, request, session: None, body: RequestBody::Untouched, sent_us: 0 }
    }

    /// Goes on until the request is decided; `None` for a step that is unknown here.
    pub async fn carry_out(&mut self, mut step: Step) -> Option<Decision> {
        loop {
            step = match step {
                Step::Call(call) => self.call(call).await,
                Step::Decide(decision) => return Some(decision),
                Step::Local(local) => self.isolate.decide_locally(local),
                Step::LocalClaims(claims) => self.isolate.local_claims.decide(claims),
                Step::NeedBody(need) => self.need_body(need).await,
                Step::WaitUntil(wait) => {
                    // The time to wait does not count among the time that the store may take.
                    self.session = None;
                    host::sleep_until(host::now_us().saturating_add(wait.after_us())).await;
                    wait.resume()
                }
                _ => return None,
            };
        }
    }

    async fn call(&mut self, mut call: Call) -> Step {
        // Others may have been granted claims while this request waited for its body, or for a lock.
        call.raise_floor(self.isolate.fence_floor.get());
        self.sent_us = host::now_us();
        let session = self.session.get_or_insert_with(|| self.isolate.store.session(self.environment));
        let result = session.ask(|tag, out| call.write(tag, out)).await;
        call.resume(result)
    }

    async fn need_body(&mut self, need: NeedBody) -> Step {
        let deadline_us = host::now_us().saturating_add(self.isolate.settings.body_deadline_us);
        let held = &self.isolate.held_bytes;
        match self.body.read(self.request, need.bytes_max(), deadline_us, held).await {
            Read::Whole(bytes) => need.resume(Collected::Whole(&bytes)),
            Read::TooLarge => need.resume(Collected::TooLarge),
            Read::Failed => need.resume(Collected::Failed),
        }
    }
}
