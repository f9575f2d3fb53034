//! From a request to its passage or answer.

use std::rc::Rc;

use js_sys::Array;
use lockkeeper_core::completion::Circumstances;
use lockkeeper_core::decision::{Action, Decision, Report, UpstreamRequest};
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::policy::{ClaimFailure, FailureMode, Policy};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;
use worker::Context;
use worker::web_sys::Request;

use crate::answer;
use crate::asking;
use crate::body::RequestBody;
use crate::held;
use crate::host::{self, HostResult};
use crate::isolate::Isolate;
use crate::lease::Teller;
use crate::log;
use crate::outgoing::Outgoing;
use crate::passage::{Dress, Passage};
use crate::request;
use crate::steps::Steps;

#[wasm_bindgen]
extern "C" {
    /// What becomes of the request should this module fail.
    pub type Fallback;
    /// Whether it passes.
    #[wasm_bindgen(method, setter)]
    fn set_passes(this: &Fallback, passes: bool);
    /// Headers that it passes without.
    #[wasm_bindgen(method, setter)]
    fn set_without(this: &Fallback, names: Array);
    /// How much longer than others its decision may take, in milliseconds.
    #[wasm_bindgen(method, setter = patienceMs)]
    fn set_patience_ms(this: &Fallback, patience_ms: f64);

    /// What an importing Worker is told of the decision.
    pub type Told;
    /// What came out.
    #[wasm_bindgen(method, setter)]
    fn set_outcome(this: &Told, word: &str);
    /// Who decided.
    #[wasm_bindgen(method, setter = decidedBy)]
    fn set_decided_by(this: &Told, word: &str);
    /// The policy that applies.
    #[wasm_bindgen(method, setter)]
    fn set_policy(this: &Told, name: Option<&str>);
    /// Its limit that decided.
    #[wasm_bindgen(method, setter)]
    fn set_limit(this: &Told, name: Option<&str>);
}

/// A policy lets no request wait longer for another.
const WAIT_MAX_US: u64 = 10_000_000;

/// A request with all that decides it.
pub struct Arrived {
    /// The isolate that it came to.
    pub isolate: Rc<Isolate>,
    /// The policy in force then.
    pub engine: Rc<Engine>,
    /// As the client sent it.
    pub request: Request,
    /// The bindings.
    pub environment: JsValue,
    /// Who wants to know, if anybody does.
    pub told: Option<Told>,
}

/// Lets a request in: its [`Passage`], or a promise of that.
///
/// # Errors
/// It cannot be decided: settings or policy are refused, or the platform failed.
#[wasm_bindgen]
pub fn decide(
    request: Request,
    environment: JsValue,
    context: worker::worker_sys::Context,
    fallback: Fallback,
) -> HostResult<JsValue> {
    if let Some(isolate) = Isolate::known() {
        return decide_in(isolate, request, environment, context, fallback, None);
    }
    let promise = future_to_promise(async move {
        let isolate = Isolate::of(&environment).await?;
        decide_in(isolate, request, environment, context, fallback, None)
    });
    Ok(promise.into())
}

/// The same by what an isolate, or a limiter apart, holds.
///
/// # Errors
/// The platform failed.
pub fn decide_in(
    isolate: Rc<Isolate>,
    request: Request,
    environment: JsValue,
    context: worker::worker_sys::Context,
    fallback: Fallback,
    told: Option<Told>,
) -> HostResult<JsValue> {
    let engine = isolate.engine();
    let selection = request::select(&engine, &request);
    fallback.set_passes(passes_undecided(engine.policy(&selection)));
    if !engine.reserved_headers().is_empty() {
        fallback.set_without(engine.reserved_headers().iter().map(JsValue::from).collect());
    }
    panic_on_purpose(&request);
    let context = Context::new(context);
    keep_up(&isolate, &environment, &context);
    let arrived = Arrived { isolate, engine, request, environment, told };
    if arrived.engine.may_hold(&selection) {
        let patience_us = arrived.isolate.settings.body_deadline_us.saturating_add(WAIT_MAX_US);
        fallback.set_patience_ms(patience_us as f64 / 1_000.0);
        return Ok(promised(async move { held::decide(arrived, selection, &context).await }));
    }
    let values = request::values(&arrived.engine, &selection, &arrived.request);
    let step = arrived.engine.begin(&selection, &values);
    match arrived.isolate.store.is_promised() {
        true => asking::begin(arrived, step).map(JsValue::from),
        false => Ok(promised(arrived.decide(step))),
    }
}

fn promised(passage: impl Future<Output = HostResult<Passage>> + 'static) -> JsValue {
    future_to_promise(async move { passage.await.map(JsValue::from) }).into()
}

/// Whether a policy lets requests pass that nobody can decide; a local limiter that has failed too decides nothing.
fn passes_undecided(policy: Option<&Policy>) -> bool {
    policy.is_none_or(|policy| {
        let idempotency = policy.idempotency.as_deref().map(|rules| rules.on_store_failure);
        let lock = policy.lock.as_deref().map(|rules| rules.on_store_failure);
        let claims_pass = idempotency.into_iter().chain(lock).all(|mode| mode == ClaimFailure::Allow);
        policy.limits_on_store_failure != FailureMode::Deny && claims_pass
    })
}

/// What some requests do for the isolate, without waiting for it.
fn keep_up(isolate: &Rc<Isolate>, environment: &JsValue, context: &Context) {
    let (probes, looks) = (isolate.store.takes_probe(), isolate.takes_look(environment));
    let pushes = isolate.store.is_asked() && isolate.local_claims.takes_sweep();
    if !probes && !looks && !pushes {
        return;
    }
    let (isolate, environment) = (Rc::clone(isolate), environment.clone());
    context.wait_until(async move {
        if probes {
            isolate.store.probe(&environment).await;
        }
        if pushes {
            Teller { isolate: &isolate, environment: &environment }.push().await;
        }
        if looks {
            isolate.look_for_policy(&environment).await;
        }
    });
}

impl Arrived {
    /// Decides a request that holds nothing.
    async fn decide(self, step: Step) -> HostResult<Passage> {
        let decision = Steps::new(&self.isolate, &self.environment, &self.request).carry_out(step).await;
        let decision = decision.ok_or(JsValue::from_str("a step that is unknown here"))?;
        self.passage(decision)
    }

    /// What becomes of a decided request that holds nothing.
    pub fn passage(&self, decision: Decision) -> HostResult<Passage> {
        let Decision { action, report, .. } = self.concluded(decision);
        let degraded = self.degraded(&report);
        match action {
            Action::Answer(answer) => {
                let is_grpc = request::is_grpc(&self.request);
                answer::response(&answer, report.outcome, is_grpc, degraded).map(Passage::answered)
            }
            Action::Forward { response_headers } => {
                let dress = Dress { fields: response_headers, degraded };
                Ok(Passage::open(self.outgoing(UpstreamRequest::default(), RequestBody::Untouched), dress))
            }
        }
    }

    /// The decision with what only the host knows, where that matters, and logged.
    pub fn concluded(&self, mut decision: Decision) -> Decision {
        let rules = &self.engine.policies().answers;
        let needs = decision.needs(rules);
        let origin = needs.origin.then(|| request::header(&self.request.headers(), "origin")).flatten();
        let random = if needs.random { host::random() } else { 0 };
        let unix_s = if needs.unix_s { host::now_us() / 1_000_000 } else { 0 };
        decision.complete(rules, Circumstances { random, unix_s, origin: origin.as_deref().map(str::as_bytes) });
        log::decision(&decision.report, self.engine.policies(), self.isolate.settings.log_sample);
        self.told.iter().for_each(|told| self.tell(told, &decision.report));
        decision
    }

    fn tell(&self, told: &Told, report: &Report) {
        let policy = report.policy.and_then(|index| self.engine.policies().policies.get(index));
        let limit = report.limit.and_then(|index| policy?.limits.get(index));
        told.set_outcome(report.outcome.word());
        told.set_decided_by(report.decided_by.word());
        told.set_policy(policy.map(|policy| policy.name.as_str()));
        told.set_limit(limit.map(|limit| limit.name.as_str()));
    }

    /// The field that tells who decided, where that was not the store.
    pub fn degraded(&self, report: &Report) -> Option<(String, &'static str)> {
        let degraded = report.decided_by.is_degraded().then(|| report.decided_by.word());
        self.isolate.settings.degraded_header.clone().zip(degraded)
    }

    /// The request as it goes on. What only a gateway may say, no client says.
    pub fn outgoing(&self, mut changes: UpstreamRequest, body: RequestBody) -> Outgoing {
        changes.removed.extend_from_slice(self.engine.reserved_headers());
        Outgoing {
            request: Clone::clone(&self.request),
            environment: self.environment.clone(),
            origin: self.isolate.settings.origin.clone(),
            body,
            changes,
        }
    }
}

#[cfg(feature = "trap")]
#[allow(clippy::panic)]
fn panic_on_purpose(request: &Request) {
    if request::header(&request.headers(), "x-lockkeeper-trap").is_some() {
        panic!("on purpose");
    }
}

#[cfg(not(feature = "trap"))]
fn panic_on_purpose(_request: &Request) {}
