//! The limiter as other Workers import it: it decides, and takes the importing Worker for the origin.

use std::cell::OnceCell;
use std::rc::Rc;

use js_sys::{Array, Object, Reflect};
use wasm_bindgen::prelude::*;
use worker::web_sys::Request;

use crate::decide::{Fallback, Told, decide_in};
use crate::host::HostResult;
use crate::isolate::{Isolate, Prepared, Refused};

/// A policy with its breaker and its own counters for the store's absence.
#[wasm_bindgen]
pub struct Limiter {
    prepared: Prepared,
    /// Set up by the first request.
    isolate: OnceCell<Rc<Isolate>>,
}

#[wasm_bindgen]
impl Limiter {
    /// A limiter with the variables of the Worker, in `environment`. Nothing is connected yet: it may be made before there
    /// is any request.
    ///
    /// # Errors
    /// An object: `what` is `settings` or `policy`, `faults` a list of lines.
    #[wasm_bindgen(constructor)]
    pub fn new(environment: JsValue) -> HostResult<Limiter> {
        let prepared = Prepared::of_variables(&environment).map_err(thrown)?;
        Ok(Limiter { prepared, isolate: OnceCell::new() })
    }

    /// Decides a request, as [`crate::decide::decide`] does. Of `environment` count the bindings: that of the objects, if
    /// any, and the service that stands for the origin.
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
        let isolate = Rc::clone(self.isolate.get_or_init(|| Rc::new(self.prepared.set_up())));
        decide_in(isolate, request, environment, context, fallback, Some(told))
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
