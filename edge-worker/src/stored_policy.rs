//! The policy in a KV namespace: an entry names its version, another holds the file.

use wasm_bindgen::prelude::*;

use crate::host::{self, HostResult};

/// The binding of the KV namespace that holds it instead.
const POLICIES: &str = "POLICIES";
/// The KV entry that names the version in force, and what the entry of a version starts with.
const VERSION_ENTRY: &str = "version";
const POLICY_ENTRY: &str = "policy:";

/// What a KV namespace says of the policy.
pub enum Stored {
    /// Nothing, or no other version than the one that is known.
    Nothing,
    /// A version whose file is not there, or not there yet.
    Missing {
        /// Its name.
        version: String,
    },
    /// A version with its file.
    Policy {
        /// Its name.
        version: String,
        /// The file.
        policy: String,
    },
}

#[wasm_bindgen]
extern "C" {
    type Kv;
    #[wasm_bindgen(method, catch)]
    async fn get(this: &Kv, key: &str) -> HostResult<JsValue>;
}

/// Whether the Worker has a namespace for it.
pub fn is_bound(environment: &JsValue) -> bool {
    host::member(environment, POLICIES).is_some()
}

/// The policy in KV, if there is a namespace and it names another version than the one known.
///
/// # Errors
/// The namespace cannot be read.
pub async fn read(environment: &JsValue, known: Option<&str>) -> HostResult<Stored> {
    let Some(namespace) = host::member(environment, POLICIES) else { return Ok(Stored::Nothing) };
    let namespace: Kv = namespace.unchecked_into();
    let Some(version) = namespace.get(VERSION_ENTRY).await?.as_string() else { return Ok(Stored::Nothing) };
    if known == Some(version.as_str()) {
        return Ok(Stored::Nothing);
    }
    Ok(match namespace.get(&format!("{POLICY_ENTRY}{version}")).await?.as_string() {
        Some(policy) => Stored::Policy { version, policy },
        None => Stored::Missing { version },
    })
}

/// The fault of a version whose file is not there.
pub fn missing(version: &str) -> String {
    format!("expected an entry {POLICY_ENTRY}{version} in the namespace {POLICIES}")
}
