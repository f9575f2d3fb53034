//! Idempotency keys through a real Envoy: a request with a key runs once, and its retries get what came of it.

mod bodies;
mod fingerprint;
mod keys;
mod quota;
mod replay;
mod stage;
mod tenants;
mod world;
