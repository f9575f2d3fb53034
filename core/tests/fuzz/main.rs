//! Generated input for everything that reads text from outside: nothing panics, and nothing takes longer than its
//! length warrants. Runs are bounded in time; a failure prints the seed that repeats it.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod claims;
mod json;
mod long;
mod policy;
mod resp;
mod text;

use arbtest::arbitrary::{Result, Unstructured};

/// How long each property is tried, in milliseconds: `LOCKKEEPER_FUZZ_MS` for longer runs than a test's.
pub fn budget_ms() -> u64 {
    std::env::var("LOCKKEEPER_FUZZ_MS").map_or(500, |ms| ms.parse().expect("LOCKKEEPER_FUZZ_MS is a number"))
}

/// A text of up to `pieces_max` of these pieces.
pub fn pieces(input: &mut Unstructured<'_>, pieces: &[&str], pieces_max: usize) -> Result<String> {
    let count = input.int_in_range(0..=pieces_max)?;
    (0..count).map(|_| input.choose(pieces).copied()).collect()
}
