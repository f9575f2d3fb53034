//! The script in a real Redis against the Rust algorithms: the same answers, the same stored texts, the same lifetimes.

mod random;
mod store;
mod world;
