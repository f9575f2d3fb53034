//! Without a store each Envoy protects its claims by itself, where the policy says so: one table for all its workers,
//! marked as degraded, and what it did is told to the store when that is back.

mod outage;
mod switching;
mod world;
