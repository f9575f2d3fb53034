//! The limiter as other Workers import it: it decides, and takes the importing Worker for the origin.

use std::rc::Rc;

use js_sys::{Array, Object, Reflect};
use wasm_bindgen::prelude::*;
use worker::web_sys::Request;

use crate::decide::{Fallback, Told, decide_in};
use crate::host::HostResult;
use crate::isolate::{Isolate, Refused};

/// A policy with its breaker and its own counters for the store's absence.
#[wasm_bindgen]
pub struct Limiter {
    isolate: Rc<Isolate>,
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

    /// Decides a request, as [`crate::decide::decide`] does. Of `environment` count the bindings: that of the objects, if any, and the service that stands
    /// for the origin.
    ///
    /// # Errors
    /// The platform failed.
    pub fn decide(
        &self,
        request: Request,
        environment: JsValue,
        context: worker::worker_sys::Context,
        fallback: Fallback,
        told: Told,
    ) -> HostResult<JsValue> {
        decide_in(Rc::clone(&self.isolate), request, environment, context, fallback, Some(told))
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
