//! The limiter as other Workers import it: it decides, and they answer or get the response themselves.

use std::rc::Rc;

use js_sys::{Array, Object, Reflect};
use lockkeeper_core::decision::Report;
use wasm_bindgen::prelude::*;
use worker::web_sys::{Request, Response};

use crate::decide::{Fallback, decide_in};
use crate::host::HostResult;
use crate::isolate::{Isolate, Refused};
use crate::passage::Passage;

/// A policy with its breaker and its own counters for the store's absence.
#[wasm_bindgen]
pub struct Limiter {
    isolate: Rc<Isolate>,
}

/// A decision: our answer, or a passage to the origin that the importing Worker is.
#[wasm_bindgen]
pub struct Decided {
    passage: Passage,
    report: Report,
    policy: Option<String>,
    limit: Option<String>,
}

#[wasm_bindgen]
impl Limiter {
    /// A limiter with the variables of the Worker, in `environment`. Nothing is connected yet.
    ///
    /// # Errors
    /// An object: `what` is `settings` or `policy`, `faults` a list of lines.
    #[wasm_bindgen(constructor)]
    pub fn new(environment: JsValue) -> HostResult<Limiter> {
        let isolate = Isolate::apart(&environment).map_err(thrown)?;
        Ok(Limiter { isolate: Rc::new(isolate) })
    }

    /// Decides a request. Of `environment` count the bindings: that of the objects, if any, and the service that stands
    /// for the origin.
    ///
    /// # Errors
    /// The platform failed.
    pub async fn decide(
        &self,
        request: Request,
        environment: JsValue,
        context: worker::worker_sys::Context,
        fallback: Fallback,
    ) -> HostResult<Decided> {
        let isolate = Rc::clone(&self.isolate);
        let (passage, report) = decide_in(&isolate, request, environment, context, fallback).await?;
        let engine = isolate.engine();
        let policy = report.policy.and_then(|index| engine.policies().policies.get(index));
        let limit = report.limit.and_then(|index| policy?.limits.get(index)).map(|limit| limit.name.clone());
        Ok(Decided { passage, policy: policy.map(|policy| policy.name.clone()), limit, report })
    }
}

#[wasm_bindgen]
impl Decided {
    /// Our answer, if the request does not pass.
    #[wasm_bindgen(getter)]
    pub fn answer(&self) -> Option<Response> {
        self.passage.answer()
    }

    /// What came out, in one word.
    #[wasm_bindgen(getter)]
    pub fn outcome(&self) -> String {
        self.report.outcome.word().into()
    }

    /// Who decided, in one word.
    #[wasm_bindgen(getter, js_name = decidedBy)]
    pub fn decided_by(&self) -> String {
        self.report.decided_by.word().into()
    }

    /// The policy that applies.
    #[wasm_bindgen(getter)]
    pub fn policy(&self) -> Option<String> {
        self.policy.clone()
    }

    /// Its limit that decided.
    #[wasm_bindgen(getter)]
    pub fn limit(&self) -> Option<String> {
        self.limit.clone()
    }

    /// Asks the origin and gives its response with our fields.
    ///
    /// # Errors
    /// What the origin or the platform says.
    pub async fn forward(self) -> HostResult<Response> {
        self.passage.forward().await
    }
}

fn thrown(refused: Refused) -> JsValue {
    let faults: Array = refused.faults.iter().map(|fault| JsValue::from_str(fault)).collect();
    let error = Object::new();
    for (name, value) in [("what", refused.what.into()), ("faults", faults.into())] {
        // A plain object takes every member.
        let _ = Reflect::set(&error, &JsValue::from_str(name), &value);
    }
    error.into()
}
