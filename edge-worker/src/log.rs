//! Lines for the Worker's log, as JSON: what was refused, and a sample of denials and degraded decisions. No keys, header
//! values or bodies.

use lockkeeper_core::decision::{Outcome, Report};
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::store::StoreFailure;
use serde_json::{Value, json};
use wasm_bindgen::JsValue;

use crate::host;

/// The settings or the policy cannot be used.
pub fn refused(what: &str, faults: &[String]) {
    line(&json!({ "lockkeeper": "refused", "what": what, "faults": faults }));
}

/// A connection to the store failed at its handshake.
pub fn store_refuses(failure: &StoreFailure) {
    line(&json!({ "lockkeeper": "store", "connect": failure.word() }));
}

/// The origin gave no answer.
pub fn origin(error: &JsValue) {
    let error = js_sys::Object::from(error.clone()).to_string();
    line(&json!({ "lockkeeper": "failure", "what": "origin", "error": String::from(error) }));
}

/// What may befall a lease.
#[derive(Clone, Copy, Debug)]
pub enum LeaseEvent {
    /// Somebody else may have it.
    Lost,
    /// The store could not be told in time how its request ended.
    GivenUp,
    /// The store has another word for it.
    Stale,
}

/// Something befell a lease.
pub fn lease(event: LeaseEvent) {
    let word = match event {
        LeaseEvent::Lost => "lost",
        LeaseEvent::GivenUp => "given_up",
        LeaseEvent::Stale => "stale",
    };
    line(&json!({ "lockkeeper": "lease", "event": word }));
}

/// A decision, if it denies or is degraded, in as many cases as `sample` says.
pub fn decision(report: &Report, policies: &PolicySet, sample: f64) {
    let is_told = report.decided_by.is_degraded() || matches!(report.outcome, Outcome::Denied | Outcome::Unavailable);
    if !is_told || !is_sampled(sample) {
        return;
    }
    let policy = report.policy.and_then(|index| policies.policies.get(index));
    let limit = report.limit.and_then(|index| policy?.limits.get(index));
    line(&json!({
        "lockkeeper": "decision",
        "policy": policy.map(|policy| &policy.name),
        "limit": limit.map(|limit| &limit.name),
        "outcome": report.outcome.word(),
        "decided_by": report.decided_by.word(),
    }));
}

fn is_sampled(sample: f64) -> bool {
    let drawn = (host::random() >> 11) as f64 / (1_u64 << 53) as f64;
    drawn < sample
}

fn line(value: &Value) {
    worker::console_log!("{value}");
}
