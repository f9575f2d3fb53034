//! From a request to its decision: what goes to the store, what each reply leads to, and what the client is told.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod access;
mod answers;
mod attributes;
mod charges;
mod combined;
mod custom;
mod fields;
mod holdings;
mod limits;
mod local_claims;
mod replies;
mod routing;
mod support;
