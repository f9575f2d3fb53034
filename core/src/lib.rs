//! Rate limits at the HTTP edge, as values in and values out.
//!
//! A host (an Envoy filter, a Worker) drives one request like this: [`Engine::select`](engine::Engine::select) finds its
//! policy, the host looks up the [attributes](engine::Engine::attributes) that the policy needs, and
//! [`Engine::begin`](engine::Engine::begin) returns the first [`Step`](engine::Step). Each step says what to do;
//! resuming it with the outcome gives the next one, until one decides. Nothing here does I/O, reads a clock or draws
//! random numbers.

pub mod algorithm;
pub mod answer;
pub mod breaker;
pub mod call;
pub mod decision;
pub mod engine;
pub mod host_config;
pub mod identity;
pub mod local;
pub mod local_call;
pub mod normalize;
pub mod pipe;
pub mod policy;
pub mod resp;
pub mod route;
pub mod script;
pub mod store;
