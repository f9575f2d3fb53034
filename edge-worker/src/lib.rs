//! Lockkeeper as a Cloudflare Worker: a thin driver of `lockkeeper-core`. `js/worker.js` is what the platform calls; it
//! asks `decide` and, inside a Durable Object, `Connection`. Other Workers
//! import `js/lockkeeper.js`, which holds a `Limiter`.

mod answer;
mod asking;
mod body;
mod claims;
mod connection;
mod decide;
mod exchange;
mod held;
mod host;
mod isolate;
mod lease;
mod limiter;
mod local;
mod local_claims;
mod log;
mod outgoing;
mod passage;
mod request;
mod response;
mod settings;
mod steps;
mod store;
mod stored_policy;
mod stream;

use js_sys::Function;
use wasm_bindgen::prelude::*;

/// Makes panics known to `panicked` before they end this instance of the module.
#[wasm_bindgen]
pub fn watch(panicked: Function) {
    std::panic::set_hook(Box::new(move |panic| {
        let _ = panicked.call1(&JsValue::NULL, &JsValue::from_str(&panic.to_string()));
    }));
}
