//! The documentation stays true: its examples load, its tables hold, and what it names exists.

mod claims;
mod examples;
mod links;
mod markdown;
mod schema;
