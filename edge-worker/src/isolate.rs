//! What lives as long as the isolate: the settings, the policy with its version, the breaker, the local limiter. Requests
//! share it, so it holds nothing that belongs to one of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lockkeeper_core::engine::Engine;
use lockkeeper_core::lease::Lease;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use wasm_bindgen::prelude::*;

use crate::claims;
use crate::host::{self, HostResult};
use crate::local::LocalTable;
use crate::local_claims::LocalClaims;
use crate::log;
use crate::settings::Settings;
use crate::store::Store;

/// Everything an isolate keeps.
pub struct Isolate {
    /// What the deployment chose.
    pub settings: Settings,
    /// The way to the store.
    pub store: Store,
    /// The limiter for when it fails.
    pub local: LocalTable,
    /// The table of claims for when it fails.
    pub local_claims: LocalClaims,
    /// The bodies that its requests hold for their fingerprints.
    pub held_bytes: HeldBytes,
    /// The highest fencing token that it has seen.
    pub fence_floor: Cell<u64>,
    engine: RefCell<Rc<Engine>>,
    version: RefCell<Option<String>>,
    looked_at_us: Cell<u64>,
}

/// What an isolate is made of: settings and policy, both found good.
pub struct Prepared {
    settings: Settings,
    engine: Rc<Engine>,
    version: Option<String>,
}

/// Why there is no isolate.
pub struct Refused {
    /// `settings` or `policy`.
    pub what: &'static str,
    /// A line for each fault.
    pub faults: Vec<String>,
}

/// How often an isolate looks for another version of the policy.
const LOOK_EVERY_US: u64 = 30_000_000;
/// The variable that holds the policy.
const POLICY: &str = "POLICY";
/// The binding of the KV namespace that holds it instead.
const POLICIES: &str = "POLICIES";
/// The KV entry that names the version in force, and what the entry of a version starts with.
const VERSION_ENTRY: &str = "version";
const POLICY_ENTRY: &str = "policy:";

/// Bytes that all requests of the isolate may hold together.
pub struct HeldBytes {
    bytes: Cell<usize>,
    bytes_max: usize,
}

impl HeldBytes {
    /// Whether there is room for so many more, which are taken then.
    pub fn take(&self, bytes: usize) -> bool {
        let held = self.bytes.get().saturating_add(bytes);
        let fits = held <= self.bytes_max;
        if fits {
            self.bytes.set(held);
        }
        fits
    }

    /// They are not held any more.
    pub fn give_back(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
    }
}

thread_local! {
    static ISOLATE: RefCell<Option<Rc<Isolate>>> = const { RefCell::new(None) };
    /// Settings that are refused stay so: an isolate never gets others.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

#[wasm_bindgen]
extern "C" {
    type Kv;
    #[wasm_bindgen(method, catch)]
    async fn get(this: &Kv, key: &str) -> HostResult<JsValue>;
}

impl Isolate {
    /// The isolate, set up by its first request.
    ///
    /// # Errors
    /// It cannot limit: what is wrong has been logged.
    pub async fn of(environment: &JsValue) -> HostResult<Rc<Isolate>> {
        if let Some(isolate) = ISOLATE.with_borrow(Clone::clone) {
            return Ok(isolate);
        }
        if REFUSED.get() {
            return Err(JsValue::from_str("the settings or the policy are refused"));
        }
        let isolate = Rc::new(Isolate::set_up(environment).await?);
        // While this request waited for KV, another may have been faster; its breaker and counters are in use.
        Ok(ISOLATE.with_borrow_mut(|known| Rc::clone(known.get_or_insert(isolate))))
    }

    async fn set_up(environment: &JsValue) -> HostResult<Isolate> {
        let settings = settings(environment).map_err(refuse)?;
        let prepared = match stored_policy(environment, None).await? {
            Some((version, policy)) => Prepared::new(settings, Some(version), &policy),
            None => Prepared::new(settings, None, &variable_policy(environment)),
        };
        prepared.map(|prepared| prepared.set_up()).map_err(refuse)
    }

    /// The engine with the policy in force.
    pub fn engine(&self) -> Rc<Engine> {
        Rc::clone(&self.engine.borrow())
    }

    /// Remembers the fencing tokens of a lease.
    pub fn sees(&self, lease: &Lease) {
        let highest = lease.claims().iter().filter_map(|claim| claim.held.fence).max().unwrap_or(0);
        self.fence_floor.set(self.fence_floor.get().max(highest));
    }

    /// Whether it is time to [`Isolate::look_for_policy`]; one request is told so each time.
    pub fn takes_look(&self, environment: &JsValue) -> bool {
        let now_us = host::now_us();
        let is_due = now_us.saturating_sub(self.looked_at_us.get()) >= LOOK_EVERY_US;
        if is_due {
            self.looked_at_us.set(now_us);
        }
        is_due && host::member(environment, POLICIES).is_some()
    }

    /// Takes over another version of the policy from KV. One that cannot be loaded changes nothing.
    pub async fn look_for_policy(&self, environment: &JsValue) {
        let known = self.version.borrow().clone();
        let Ok(Some((version, policy))) = stored_policy(environment, known.as_deref()).await else { return };
        match load(&policy, &self.settings) {
            Ok(engine) => {
                self.store.probe_in(&engine.policies().namespace);
                *self.engine.borrow_mut() = Rc::new(engine);
            }
            Err(faults) => log::refused(&format!("policy {version}"), &faults),
        }
        *self.version.borrow_mut() = Some(version);
    }
}

impl Prepared {
    /// With the policy of the variables.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn of_variables(environment: &JsValue) -> Result<Prepared, Refused> {
        Prepared::new(settings(environment)?, None, &variable_policy(environment))
    }

    fn new(settings: Settings, version: Option<String>, policy: &str) -> Result<Prepared, Refused> {
        let engine = load(policy, &settings).map_err(|faults| Refused { what: "policy", faults })?;
        Ok(Prepared { settings, engine: Rc::new(engine), version })
    }

    /// The isolate. Within a request only: elsewhere the platform gives neither randomness nor time, and its seeds could be
    /// foretold.
    pub fn set_up(&self) -> Isolate {
        let settings = self.settings.clone();
        let store = Store::new(settings.transport.clone(), settings.deadline_us, host::random());
        store.probe_in(&self.engine.policies().namespace);
        Isolate {
            store,
            local: LocalTable::new(settings.local_sets, host::random_bytes()),
            local_claims: LocalClaims::new(host::random_bytes()),
            held_bytes: HeldBytes { bytes: Cell::new(0), bytes_max: settings.held_bodies_bytes },
            fence_floor: Cell::new(0),
            engine: RefCell::new(Rc::clone(&self.engine)),
            version: RefCell::new(self.version.clone()),
            looked_at_us: Cell::new(host::now_us()),
            settings,
        }
    }
}

fn refuse(refused: Refused) -> JsValue {
    log::refused(refused.what, &refused.faults);
    REFUSED.set(true);
    JsValue::from_str("the settings or the policy are refused")
}

fn settings(environment: &JsValue) -> Result<Settings, Refused> {
    Settings::read(|name| host::variable(environment, name)).map_err(|faults| Refused { what: "settings", faults })
}

fn variable_policy(environment: &JsValue) -> String {
    host::variable(environment, POLICY).unwrap_or_default()
}

fn load(policy: &str, settings: &Settings) -> Result<Engine, Vec<String>> {
    let options = LoadOptions { local_share: settings.local_share };
    let policies = PolicySet::from_json(policy.as_bytes(), options)
        .map_err(|errors| errors.0.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let faults: Vec<String> = policies.policies.iter().flat_map(claims::faults).collect();
    if faults.is_empty() { Ok(Engine::new(policies)) } else { Err(faults) }
}

/// The policy in KV with its version, if there is a namespace and it names another version than the one known.
async fn stored_policy(environment: &JsValue, known: Option<&str>) -> HostResult<Option<(String, String)>> {
    let Some(namespace) = host::member(environment, POLICIES) else { return Ok(None) };
    let namespace: Kv = namespace.unchecked_into();
    let Some(version) = namespace.get(VERSION_ENTRY).await?.as_string() else { return Ok(None) };
    if known == Some(version.as_str()) {
        return Ok(None);
    }
    let policy = namespace.get(&format!("{POLICY_ENTRY}{version}")).await?.as_string();
    Ok(policy.map(|policy| (version, policy)))
}
