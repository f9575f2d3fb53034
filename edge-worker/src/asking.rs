//! A request that holds nothing, and whose command JavaScript waits for. The platform's own promises wait, and not this module: each of
//! its futures costs the platform several calls from one language into the other.

use js_sys::Promise;
use lockkeeper_core::call::Call;
use lockkeeper_core::engine::Step;
use lockkeeper_core::store::StoreFailure;
use wasm_bindgen::prelude::*;

use crate::decide::Arrived;
use crate::host::{self, HostResult};
use crate::store::Asked;

/// A request under decision whose command is on its way.
#[wasm_bindgen]
pub struct Asking {
    arrived: Arrived,
    call: Call,
    asked: Asked,
    deadline_us: u64,
}

impl Asking {
    /// Goes on from a first step, to a [`crate::passage::Passage`] or to what asks the store.
    ///
    /// # Errors
    /// The platform failed.
    pub fn go_on(arrived: Arrived, step: Step) -> HostResult<JsValue> {
        let deadline_us = host::now_us().saturating_add(arrived.isolate.store.deadline_us());
        go_on(arrived, step, deadline_us)
    }
}

#[wasm_bindgen]
impl Asking {
    /// The store's answer. It never fails.
    #[wasm_bindgen(getter)]
    pub fn answer(&self) -> Promise {
        self.asked.answer.clone()
    }

    /// Goes on with that answer, to a [`crate::passage::Passage`] or to what asks once more.
    ///
    /// # Errors
    /// The platform failed.
    pub fn resume(self, answer: &JsValue) -> HostResult<JsValue> {
        let Asking { arrived, call, asked, deadline_us } = self;
        let result = arrived.isolate.store.reply(&asked.tag, answer);
        go_on(arrived, call.resume(result), deadline_us)
    }
}

fn go_on(arrived: Arrived, mut step: Step, deadline_us: u64) -> HostResult<JsValue> {
    loop {
        step = match step {
            Step::Call(call) => {
                let wait_us = deadline_us.saturating_sub(host::now_us());
                let store = &arrived.isolate.store;
                match store.ask(&arrived.environment, |tag, out| call.write(tag, out), wait_us) {
                    Some(asked) => return Ok(Asking { arrived, call, asked, deadline_us }.into()),
                    None => call.resume(Err(StoreFailure::NotSent)),
                }
            }
            Step::Decide(decision) => return arrived.passage(decision).map(JsValue::from),
            Step::Local(local) => arrived.isolate.decide_locally(local),
            // The others are of requests that may hold something.
            _ => return Err(JsValue::from_str("a step that is unknown here")),
        }
    }
}
