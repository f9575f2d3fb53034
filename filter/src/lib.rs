//! Lockkeeper as an Envoy proxy-wasm filter: a thin driver of `lockkeeper-core`.
