//! Rate limits at the HTTP edge, as values in and values out.
//!
//! A host (an Envoy filter, a Worker) drives one request like this: [`Engine::select`](engine::Engine::select) finds its
//! policy, the host looks up the [attributes](engine::Engine::attributes) that the policy needs, and
//! [`Engine::begin`](engine::Engine::begin) returns the first [`Step`](engine::Step). Each step says what to do;
//! resuming it with the outcome gives the next one, until one decides. Nothing here does I/O, reads a clock or draws
//! random numbers.
//!
//! ```
//! use lockkeeper_core::breaker::BreakerConfig;
//! use lockkeeper_core::call::Call;
//! use lockkeeper_core::decision::{Action, Outcome};
//! use lockkeeper_core::engine::{Engine, Step};
//! use lockkeeper_core::identity::Attribute;
//! use lockkeeper_core::greeting::Greeting;
//! use lockkeeper_core::pipe::{Connect, Moment, Pipe, PipeConfig, Submission};
//! use lockkeeper_core::policy::PolicySet;
//! use lockkeeper_core::policy::load::LoadOptions;
//! use lockkeeper_core::store::StoreFailure;
//! # use lockkeeper_core::resp::{Decoder, Reply};
//! # /// A store that denies everything for 1.5 s: echoes the command's tag, the argument after its only key.
//! # fn send_and_receive(bytes: &[u8]) -> Vec<u8> {
//! #     let mut decoder = Decoder::default();
//! #     decoder.extend(bytes);
//! #     let Ok(Some(Reply::Array(words))) = decoder.next_reply() else { return Vec::new() };
//! #     let Some(Reply::BulkString(tag)) = words.get(4) else { return Vec::new() };
//! #     let tag = String::from_utf8_lossy(tag);
//! #     format!("*5\r\n${}\r\n{tag}\r\n:0\r\n:0\r\n:1500000\r\n:1500000\r\n", tag.len()).into_bytes()
//! # }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = br#"{ "version": 1, "default_policy": "api", "policies": { "api": {
//!     "limits": [ { "name": "per-client", "algorithm": "token_bucket", "capacity": 10, "refill": "1/2s",
//!                   "key": ["client_address"] } ],
//!     "limits_on_store_failure": "deny" } } }"#;
//! let engine = Engine::new(PolicySet::from_json(policy, LoadOptions::default())?);
//! let mut pipe = Pipe::new(PipeConfig {
//!     coalesce_above: 4,
//!     coalesce_round_trip_max_us: 500,
//!     in_flight_max: 1_000,
//!     probe_deadline_us: 50_000,
//!     stuck_after_us: 500_000,
//!     reconnect_pause_us: (25_000, 500_000),
//!     waits_to_reconnect: false,
//!     greeting: Greeting::default(),
//!     probe_key: "prod:probe".into(),
//!     breaker: BreakerConfig::default(),
//! }, 7);
//!
//! // A request comes: what does its policy need to know?
//! let selection = engine.select("GET", "api.example.com", "/orders");
//! let values: Vec<_> = engine
//!     .attributes(&selection)
//!     .iter()
//!     .map(|attribute| match attribute {
//!         Attribute::ClientAddress => Some(b"192.0.2.1:4711".to_vec()),
//!         Attribute::Header(_) | Attribute::Metadata(_) => None,
//!     })
//!     .collect();
//!
//! let (mut now_us, mut step) = (1_000_000, engine.begin(&selection, &values));
//! let decision = loop {
//!     step = match step {
//!         Step::Decide(decision) => break decision,
//!         Step::Call(call) => {
//!             match pipe.submit(call, Submission::new(now_us, now_us + 50_000), Call::write) {
//!                 Err(call) => call.resume(Err(StoreFailure::NotSent)),
//!                 Ok(()) => {
//!                     // A host does this on its ticks and when bytes arrive, for many requests at once.
//!                     if pipe.maintain(now_us) == Connect::Open {
//!                         pipe.opened(now_us);
//!                     }
//!                     let received = send_and_receive(&pipe.output(Moment::Flush));
//!                     let mut settled = pipe.received(&received, now_us);
//!                     while settled.is_empty() {
//!                         now_us += pipe.tick_us();
//!                         settled = pipe.expire(now_us);
//!                     }
//!                     let first = settled.remove(0);
//!                     first.waiter.resume(first.result)
//!                 }
//!             }
//!         }
//!         // `limits_on_store_failure: local` asks the instance's own limiter: see the module `local`.
//!         other => unreachable!("{other:?}"),
//!     };
//! };
//!
//! assert_eq!(decision.report.outcome, Outcome::Denied);
//! let Action::Answer(answer) = decision.action else { panic!("denied requests are answered") };
//! assert_eq!(answer.status, 429);
//! assert!(answer.headers.contains(&("retry-after".into(), "2".to_owned())));
//! # Ok(())
//! # }
//! ```

mod access;
pub mod address_set;
pub mod admission;
pub mod algorithm;
pub mod answer;
pub mod breaker;
pub mod call;
pub mod capture;
pub mod claim;
pub mod client_address;
pub mod completion;
pub mod credentials;
pub mod decision;
pub mod engine;
pub mod greeting;
mod hold_limit;
pub mod host_config;
pub mod idempotency;
pub mod identity;
pub mod lease;
pub mod local;
pub mod local_call;
pub mod local_claims;
pub mod normalize;
mod order;
pub mod parameters;
pub mod pipe;
pub mod policy;
pub mod rate_limit_fields;
pub mod resp;
pub mod route;
pub mod script;
pub mod selection;
pub mod store;
mod values;
