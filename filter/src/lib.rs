//! Lockkeeper as an Envoy proxy-wasm filter: a thin driver of `lockkeeper-core`. The module plays one of two roles, by
//! the plugin's `root_id`: `lockkeeper` limits requests, `resp_bridge` turns the pipe's gRPC frames into raw bytes.

mod bridge;
mod frame;
mod gateway;
mod host;
mod local;
mod metrics;
mod request;
mod root;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    proxy_wasm::set_root_context(|context_id| Box::new(root::Root::new(context_id)));
}}
