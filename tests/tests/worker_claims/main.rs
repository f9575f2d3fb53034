//! Idempotency keys, locks and concurrency in the Worker, in real workerd with a real Redis: what a request with a key did
//! once is not done twice, by no Worker and no Envoy.

mod aborts;
mod bodies;
mod ends;
mod failures;
mod fences;
mod replay;
mod shared;
mod world;
