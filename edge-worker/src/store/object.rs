//! Asking a Durable Object that holds a connection to the store, by a call of its method.

use js_sys::{Promise, Uint8Array};
use lockkeeper_core::resp::Reply;
use lockkeeper_core::store::StoreFailure;
use wasm_bindgen::prelude::*;

use super::wire;
use crate::host;

#[wasm_bindgen(module = "/js/store_calls.js")]
extern "C" {
    #[wasm_bindgen(js_name = askObject)]
    fn ask_object(
        environment: &JsValue,
        name: &str,
        location: Option<&str>,
        tag: &str,
        command: Uint8Array,
        wait_ms: f64,
        probe_key: Option<&str>,
        is_bulky: bool,
    ) -> Promise;
}

/// What an object is asked.
pub struct Question<'q> {
    /// The command's mark.
    pub tag: &'q str,
    /// The command.
    pub command: &'q [u8],
    /// How long its reply is waited for.
    pub wait_ms: f64,
    /// What the object may write when it looks whether the store is back, unless it knows.
    pub probe_key: Option<&'q str>,
    /// Whether the commands of others go first.
    pub gives_way: bool,
}

/// Asks one of that many objects. The promise comes to what [`heard`] reads, in `wait_ms` or little more.
pub fn ask(environment: &JsValue, (objects, location): (u32, Option<&str>), question: &Question<'_>) -> Promise {
    let object = host::random().checked_rem(u64::from(objects)).unwrap_or(0);
    let name = format!("store-{object}");
    let Question { tag, command, wait_ms, probe_key, gives_way } = *question;
    ask_object(environment, &name, location, tag, Uint8Array::from(command), wait_ms, probe_key, gives_way)
}

/// The object's answer. A call that fails may have reached the store.
///
/// # Errors
/// [`Unanswered`] when it was not the object that answered.
pub fn heard(answer: &JsValue) -> Result<Result<Reply, StoreFailure>, Unanswered> {
    match answer.dyn_ref::<Uint8Array>() {
        Some(bytes) => Ok(wire::decode(&bytes.to_vec())),
        None if answer.is_null() => Err(Unanswered(StoreFailure::NotSent)),
        None => Err(Unanswered(StoreFailure::Unknown)),
    }
}

/// No answer of the object, and what that means for the command.
pub struct Unanswered(pub StoreFailure);
