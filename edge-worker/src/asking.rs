//! A request that holds nothing, and whose command JavaScript waits for. The platform's own promises wait, and not this
//! module: each of its futures costs the platform several calls from one language into the other.

use lockkeeper_core::call::Call;
use lockkeeper_core::engine::Step;
use lockkeeper_core::store::StoreFailure;
use wasm_bindgen::prelude::*;

use crate::decide::Arrived;
use crate::host::{self, HostResult};
use crate::passage::Passage;
use crate::store::Asked;

/// A request under decision whose command is on its way.
pub struct Asking {
    arrived: Box<Arrived>,
    call: Call,
    /// What was asked.
    pub asked: Asked,
    deadline_us: u64,
}

/// Goes on from a first step until the store is to be waited for.
///
/// # Errors
/// The platform failed.
pub fn begin(arrived: Arrived, step: Step) -> HostResult<Passage> {
    let deadline_us = host::now_us().saturating_add(arrived.isolate.store.deadline_us());
    go_on(Box::new(arrived), step, deadline_us)
}

impl Asking {
    /// Goes on with the answer.
    ///
    /// # Errors
    /// The platform failed.
    pub fn resume(self, answer: &JsValue) -> HostResult<Passage> {
        let Asking { arrived, call, asked, deadline_us } = self;
        let result = arrived.isolate.store.reply(&asked.tag, answer);
        go_on(arrived, call.resume(result), deadline_us)
    }
}

fn go_on(arrived: Box<Arrived>, mut step: Step, deadline_us: u64) -> HostResult<Passage> {
    loop {
        step = match step {
            Step::Call(call) => {
                let wait_us = deadline_us.saturating_sub(host::now_us());
                let store = &arrived.isolate.store;
                match store.ask(&arrived.environment, |tag, out| call.write(tag, out), wait_us) {
                    Some(asked) => return Ok(Passage::asking(Asking { arrived, call, asked, deadline_us })),
                    None => call.resume(Err(StoreFailure::NotSent)),
                }
            }
            Step::Decide(decision) => return arrived.passage(decision),
            Step::Local(local) => arrived.isolate.decide_locally(local),
            // The others are of requests that may hold something.
            _ => return Err(JsValue::from_str("a step that is unknown here")),
        }
    }
}
