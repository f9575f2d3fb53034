//! The harness that starts real servers on loopback: Envoy from the shipped config, Redis, an upstream that echoes, a store that misbehaves.
//!
//! Everything started here ends with its value, on panic and on the death of the process.

pub mod admin;
pub mod black_hole;
pub mod certificates;
pub mod envoy;
pub mod envoy_config;
pub mod faulty_store;
pub mod gated_upstream;
pub mod http;
pub mod http2;
pub mod load;
pub mod origin;
pub mod paths;
pub mod poll;
pub mod ports;
pub mod process;
pub mod raw;
pub mod redis_server;
pub mod reset;
pub mod rest_front;
pub mod scripted_upstream;
pub mod slow_link;
pub mod stalls;
pub mod step_clock;
pub mod stub_store;
mod tcp;
pub mod tools;
pub mod upstream;
pub mod workerd;
pub mod wrangler;

pub use black_hole::BlackHole;
pub use certificates::Certificates;
pub use envoy::Envoy;
pub use envoy_config::EnvoyConfig;
pub use faulty_store::FaultyStore;
pub use gated_upstream::GatedUpstream;
pub use origin::Origin;
pub use redis_server::Redis;
pub use rest_front::RestFront;
pub use scripted_upstream::{Piece, ScriptedUpstream};
pub use slow_link::SlowLink;
pub use step_clock::StepClock;
pub use stub_store::StubStore;
pub use upstream::Upstream;
pub use workerd::{Workerd, WorkerdConfig};
