//! A store behind HTTP: one request for each command.

use js_sys::{Array, Promise};
use lockkeeper_core::resp::{REPLY_BYTES_MAX, Reply};
use lockkeeper_core::store::StoreFailure;
use wasm_bindgen::prelude::*;

use super::rest_json;

#[wasm_bindgen(module = "/js/store_calls.js")]
extern "C" {
    #[wasm_bindgen(js_name = askFront)]
    fn ask_front(url: &str, token: &str, body: &str, wait_ms: f64) -> Promise;
}

/// Sends a command. The promise comes to what [`heard`] reads, in `wait_ms` or little more. `None` when the command cannot
/// be said in JSON.
pub fn ask(url: &str, token: &str, command: &[u8], wait_ms: f64) -> Option<Promise> {
    let body = rest_json::pipeline(command)?;
    Some(ask_front(&format!("{url}/pipeline"), token, &body, wait_ms))
}

/// The reply in the front's answer. An HTTP request that fails may have arrived.
///
/// # Errors
/// What the answer says about whether the command ran.
pub fn heard(answer: &JsValue) -> Result<Reply, StoreFailure> {
    let Some(answer) = answer.dyn_ref::<Array>() else { return Err(StoreFailure::Unknown) };
    let (status, body) = (answer.get(0).as_f64().unwrap_or(0.0), answer.get(1).as_string().unwrap_or_default());
    if body.len() > REPLY_BYTES_MAX {
        return Err(StoreFailure::Unknown);
    }
    rest_json::reply(status as u16, &body)
}
