//! From a request to its passage or answer: drives the core's steps with the store and the isolate's own limiter.

use std::rc::Rc;

use lockkeeper_core::completion::Circumstances;
use lockkeeper_core::decision::{Action, Decision, Report};
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::policy::FailureMode;
use lockkeeper_core::selection::Selection;
use wasm_bindgen::prelude::*;
use worker::Context;
use worker::web_sys::Request;

use crate::answer;
use crate::host::{self, HostResult};
use crate::isolate::Isolate;
use crate::log;
use crate::passage::Passage;
use crate::request;

#[wasm_bindgen]
extern "C" {
    /// What becomes of the request should this module fail.
    pub type Fallback;
    #[wasm_bindgen(method, setter)]
    fn set_passes(this: &Fallback, passes: bool);
}

/// Decides a request.
///
/// # Errors
/// It cannot be decided: settings or policy are refused, or the platform failed.
#[wasm_bindgen]
pub async fn decide(
    request: Request,
    environment: JsValue,
    context: worker::worker_sys::Context,
    fallback: Fallback,
) -> HostResult<Passage> {
    let isolate = Isolate::of(&environment).await?;
    decide_in(&isolate, request, environment, context, fallback).await.map(|(passage, _)| passage)
}

/// The same with what an isolate, or a limiter of its own, holds; and the report on the decision.
///
/// # Errors
/// The platform failed.
pub async fn decide_in(
    isolate: &Rc<Isolate>,
    request: Request,
    environment: JsValue,
    context: worker::worker_sys::Context,
    fallback: Fallback,
) -> HostResult<(Passage, Report)> {
    let engine = isolate.engine();
    let selection = request::select(&engine, &request);
    fallback.set_passes(passes_undecided(&engine, &selection));
    panic_on_purpose(&request);
    keep_up(isolate, &environment, context);
    let values = request::values(&engine, &selection, &request);
    let step = engine.begin(&selection, &values);
    let decision = carry_out(isolate, step, &environment).await;
    conclude(isolate, &engine, decision, request, environment)
}

/// Whether the policy lets requests pass that nobody can decide; a local limiter that has failed too decides nothing.
fn passes_undecided(engine: &Engine, selection: &Selection) -> bool {
    engine.policy(selection).is_none_or(|policy| policy.limits_on_store_failure != FailureMode::Deny)
}

/// What some requests do for the isolate, without waiting for it.
fn keep_up(isolate: &Rc<Isolate>, environment: &JsValue, context: worker::worker_sys::Context) {
    let (probes, looks) = (isolate.store.takes_probe(), isolate.takes_look(environment));
    if !probes && !looks {
        return;
    }
    let (isolate, environment) = (Rc::clone(isolate), environment.clone());
    Context::new(context).wait_until(async move {
        if probes {
            let key = format!("{}:probe", isolate.engine().policies().namespace);
            isolate.store.probe(&environment, &key).await;
        }
        if looks {
            isolate.look_for_policy(&environment).await;
        }
    });
}

async fn carry_out(isolate: &Isolate, mut step: Step, environment: &JsValue) -> Option<Decision> {
    let mut session = isolate.store.session(environment);
    let decision = loop {
        step = match step {
            Step::Call(call) => {
                let result = session.ask(&call).await;
                call.resume(result)
            }
            Step::Decide(decision) => break Some(decision),
            Step::Local(local) => {
                let decision = isolate.local.decide(&local, host::now_us());
                local.resume(&decision)
            }
            // The engine has no other steps for policies that only limit.
            _ => break None,
        };
    };
    session.close();
    decision
}

fn conclude(
    isolate: &Isolate,
    engine: &Engine,
    decision: Option<Decision>,
    request: Request,
    environment: JsValue,
) -> HostResult<(Passage, Report)> {
    let mut decision = decision.ok_or(JsValue::from_str("a step that limits do not have"))?;
    complete(&mut decision, engine, &request);
    let Decision { action, report, .. } = decision;
    log::decision(&report, engine.policies(), isolate.settings.log_sample);
    let degraded = report.decided_by.is_degraded().then(|| report.decided_by.word());
    let degraded = isolate.settings.degraded_header.clone().zip(degraded);
    let passage = match action {
        Action::Answer(answer) => Passage::answered(answer::response(&answer, request::is_grpc(&request), degraded)?),
        Action::Forward { response_headers } => {
            Passage::open(request, environment, isolate.settings.origin.clone(), response_headers, degraded)
        }
    };
    Ok((passage, report))
}

/// Tells the decision what only the host knows, where that matters.
fn complete(decision: &mut Decision, engine: &Engine, request: &Request) {
    let rules = &engine.policies().answers;
    let needs = decision.needs(rules);
    let origin = needs.origin.then(|| request::header(&request.headers(), "origin")).flatten();
    let random = if needs.random { host::random() } else { 0 };
    let unix_s = if needs.unix_s { host::now_us() / 1_000_000 } else { 0 };
    decision.complete(rules, Circumstances { random, unix_s, origin: origin.as_deref().map(str::as_bytes) });
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
