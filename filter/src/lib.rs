//! Lockkeeper as an Envoy proxy-wasm filter: a thin driver of `lockkeeper-core`. The module plays one of two roles, by
//! the plugin's `root_id`: `lockkeeper` limits requests, `resp_bridge` turns the pipe's gRPC frames into raw bytes.

mod bridge;
mod frame;
mod gateway;
mod holding;
mod host;
mod local;
mod local_claims;
mod metrics;
mod open_breakers;
mod outbox;
mod parked;
mod request;
mod response;
mod root;
mod timers;
mod turn;

// The macro exports `_initialize`, which the host calls and nobody reads about.
#[allow(missing_docs)]
mod entry {
    use crate::root::Root;

    proxy_wasm::main! {{
        proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
        proxy_wasm::set_root_context(|context_id| Box::new(Root::new(context_id)));
    }}
}
