//! The script in a real Redis against the Rust algorithms: the same answers, the same stored texts, the same lifetimes.

mod cases;
mod key;
mod plant;
mod production;
mod random;
mod store;
mod wire;
mod world;
