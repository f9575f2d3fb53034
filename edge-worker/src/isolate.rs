//! What lives as long as the isolate: the settings, the policy with its version, the breaker, the local limiter. Requests
//! share it, so it holds nothing that belongs to one of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::lease::Lease;
use lockkeeper_core::local_call::LocalCall;
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
use crate::stored_policy::{self, Stored};

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
/// What requests are told that come before a policy is in force.
const REFUSED: &str = "the settings or the policy are refused";

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
    /// Nothing that was refused is read again before this time.
    static REFUSED_UNTIL_US: Cell<u64> = const { Cell::new(0) };
}

impl Isolate {
    /// The isolate, set up by its first request.
    ///
    /// # Errors
    /// It cannot limit: what is wrong has been logged.
    pub async fn of(environment: &JsValue) -> HostResult<Rc<Isolate>> {
        if let Some(isolate) = Isolate::known() {
            return Ok(isolate);
        }
        if host::now_us() < REFUSED_UNTIL_US.get() {
            return Err(JsValue::from_str(REFUSED));
        }
        let isolate = Rc::new(Isolate::set_up(environment).await?);
        // While this request waited for KV, another may have been faster; its breaker and counters are in use.
        Ok(ISOLATE.with_borrow_mut(|known| Rc::clone(known.get_or_insert(isolate))))
    }

    /// The isolate, once it is set up.
    pub fn known() -> Option<Rc<Isolate>> {
        ISOLATE.with_borrow(Clone::clone)
    }

    async fn set_up(environment: &JsValue) -> HostResult<Isolate> {
        // An isolate never gets other settings, nor another policy from its variables.
        let settings = settings(environment).map_err(|refused| refuse(&refused, u64::MAX))?;
        let stored = stored_policy::read(environment, None).await?;
        let is_final = !stored_policy::is_bound(environment);
        let until_us = if is_final { u64::MAX } else { host::now_us().saturating_add(LOOK_EVERY_US) };
        let prepared = match (stored, host::variable(environment, POLICY)) {
            (Stored::Policy { version, policy }, _) => Prepared::new(settings, Some(version), &policy),
            (Stored::Missing { version }, None) => {
                Err(Refused { what: "policy", faults: vec![stored_policy::missing(&version)] })
            }
            (_, policy) => Prepared::new(settings, None, &policy.unwrap_or_default()),
        };
        prepared.map(|prepared| prepared.set_up()).map_err(|refused| refuse(&refused, until_us))
    }

    /// The engine with the policy in force.
    pub fn engine(&self) -> Rc<Engine> {
        Rc::clone(&self.engine.borrow())
    }

    /// Decides without the store.
    pub fn decide_locally(&self, call: LocalCall) -> Step {
        let decision = self.local.decide(&call, host::now_us());
        call.resume(&decision)
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
        is_due && stored_policy::is_bound(environment)
    }

    /// Takes over another version of the policy from KV. One that cannot be loaded changes nothing.
    pub async fn look_for_policy(&self, environment: &JsValue) {
        let known = self.version.borrow().clone();
        let (version, policy) = match stored_policy::read(environment, known.as_deref()).await {
            Ok(Stored::Policy { version, policy }) => (version, policy),
            Ok(Stored::Missing { version }) => return log::refused("policy", &[stored_policy::missing(&version)]),
            Ok(Stored::Nothing) | Err(_) => return,
        };
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
        let policy = host::variable(environment, POLICY).unwrap_or_default();
        Prepared::new(settings(environment)?, None, &policy)
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

fn refuse(refused: &Refused, until_us: u64) -> JsValue {
    log::refused(refused.what, &refused.faults);
    REFUSED_UNTIL_US.set(until_us);
    JsValue::from_str(REFUSED)
}

fn settings(environment: &JsValue) -> Result<Settings, Refused> {
    Settings::read(|name| host::variable(environment, name)).map_err(|faults| Refused { what: "settings", faults })
}

fn load(policy: &str, settings: &Settings) -> Result<Engine, Vec<String>> {
    let options = LoadOptions { local_share: settings.local_share };
    let policies = PolicySet::from_json(policy.as_bytes(), options)
        .map_err(|errors| errors.0.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let faults: Vec<String> = policies.policies.iter().flat_map(claims::faults).collect();
    if faults.is_empty() { Ok(Engine::new(policies)) } else { Err(faults) }
}
