//! From a request that claims something to what it holds, and what it gives back: every answer of the store, begins that
//! are sent again, and every end.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod admissions;
mod bodies;
mod doubts;
mod ends;
mod support;
