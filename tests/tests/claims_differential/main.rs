//! The scripts of claims and slots in a real Redis against the state machine in Rust, in virtual time: the same words,
//! the same fences and attempts, the same records, and an expiry on every key.

#[path = "../simulation/random.rs"]
#[allow(dead_code, reason = "the simulation cuts bytes too")]
mod random;

mod cases;
mod limits;
mod mutations;
mod oracle;
mod scenery;
mod store;
mod traces;
mod world;
