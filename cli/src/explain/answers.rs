//! What a client would see: the decision is run against a store that is imagined, first empty, then just used up.

use std::time::{SystemTime, UNIX_EPOCH};

use lockkeeper_core::algorithm::{Algorithm, Charge, FixedWindow, State, Verdict, decide};
use lockkeeper_core::call::Call;
use lockkeeper_core::completion::Circumstances;
use lockkeeper_core::decision::{Action, Header};
use lockkeeper_core::engine::Step;
use lockkeeper_core::policy::AnswerRules;
use lockkeeper_core::resp::Reply;
use lockkeeper_core::store::StoreFailure;
use serde::Serialize;

use crate::store::SLOT_RETRY_US;

/// Every window begins at this time, so resets are the longest possible.
const NOW_US: u64 = 0;

/// What a client may see.
#[derive(Debug, Serialize)]
pub struct Answers {
    /// To the first request of its identity.
    pub first: Seen,
    /// To the first request that is denied when all come in one instant.
    pub denied: Option<Denied>,
    /// When the store fails; none when no store is asked.
    pub on_store_failure: Option<Seen>,
}

/// A denial.
#[derive(Debug, Serialize)]
pub struct Denied {
    /// Which request it is, counted from 1.
    pub request: u64,
    /// The answer.
    #[serde(flatten)]
    pub seen: Seen,
}

/// What is done with the request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub enum Seen {
    /// It is answered.
    Answer {
        /// What metrics and access logs show.
        outcome: &'static str,
        /// The HTTP status.
        status: u16,
        /// The fields.
        headers: Vec<(String, String)>,
        /// The content.
        body: String,
    },
    /// It passes, and its response gets these fields.
    Forward {
        /// What metrics and access logs show.
        outcome: &'static str,
        /// The fields.
        headers: Vec<(String, String)>,
    },
    /// The gateway's own limiter decides.
    LimitLocally,
}

impl Answers {
    /// `begin` begins the decision anew each time; `origin` is the request's header of that name.
    pub fn of(begin: impl Fn() -> Step, rules: &AnswerRules, origin: Option<&str>) -> Answers {
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let circumstances = Circumstances { random: 0, unix_s, origin: origin.map(str::as_bytes) };
        let seen = |step| seen(step, rules, circumstances);
        Answers {
            first: seen(answered(begin(), 1)),
            denied: first_denied(&begin()).map(|request| Denied { request, seen: seen(answered(begin(), request)) }),
            on_store_failure: match begin() {
                Step::Call(call) => Some(seen(call.resume(Err(StoreFailure::NotSent)))),
                _ => None,
            },
        }
    }
}

/// The number of the first request in one instant that an enforced limit denies.
fn first_denied(step: &Step) -> Option<u64> {
    let Step::Call(call) = step else { return None };
    let enforced = call.charges().into_iter().filter(|charge| charge.enforce);
    enforced.map(|charge| admitted_at_once(&charge).saturating_add(1)).min()
}

fn admitted_at_once(charge: &Charge<'_>) -> u64 {
    charge.algorithm.allowance().checked_div(charge.cost).unwrap_or(u64::MAX)
}

/// Ends the decision as a store would for the request of this number in one instant.
fn answered(step: Step, number: u64) -> Step {
    let Step::Call(call) = step else { return step };
    let reply = reply(&call, &verdicts(&call, number));
    call.resume(Ok(reply))
}

fn verdicts(call: &Call, number: u64) -> Vec<Verdict> {
    let algorithms: Vec<Algorithm> = call.charges().iter().map(|charge| imagined(charge.algorithm)).collect();
    let charges = call.charges();
    let charges: Vec<Charge<'_>> =
        charges.iter().zip(&algorithms).map(|(charge, algorithm)| Charge { algorithm, ..*charge }).collect();
    let mut states = vec![State::Absent; charges.len()];
    for (charge, state) in charges.iter().zip(&mut states) {
        let earlier = number.saturating_sub(1).min(admitted_at_once(charge));
        if earlier > 0 {
            let all = Charge { cost: charge.cost.saturating_mul(earlier), enforce: true, ..*charge };
            decide(&[all], std::slice::from_mut(state), NOW_US);
        }
    }
    let mut verdicts = decide(&charges, &mut states, NOW_US).verdicts;
    let held = call.charges().into_iter().zip(&mut verdicts).filter(|(charge, _)| charge.algorithm.is_held());
    held.for_each(|(_, verdict)| verdict.retry_us = verdict.retry_us.min(SLOT_RETRY_US));
    verdicts
}

/// Who holds slots is known to a store alone. In one instant nobody gives one back, and a window of the lease's length is
/// the same.
fn imagined(algorithm: &Algorithm) -> Algorithm {
    let window = || FixedWindow::new(algorithm.allowance(), algorithm.window_us()).ok();
    let held = Some(algorithm).filter(|algorithm| algorithm.is_held());
    held.and_then(|_| window()).map_or_else(|| algorithm.clone(), Algorithm::from)
}

/// What a store says that keeps no record of the request's claims yet.
fn reply(call: &Call, verdicts: &[Verdict]) -> Reply {
    let integer = |number: u64| Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let text = |text: &str| Reply::BulkString(text.as_bytes().to_vec());
    let mut elements = vec![text("tag")];
    let is_denied = call.charges().iter().zip(verdicts).any(|(charge, verdict)| charge.enforce && !verdict.admitted);
    match is_denied {
        _ if call.asks().is_empty() => {}
        true => elements.push(text("denied")),
        false => {
            elements.push(text("new"));
            call.asks().iter().for_each(|_| elements.extend([text("1"), integer(1)]));
        }
    }
    elements.extend(verdicts.iter().flat_map(|verdict| {
        [u64::from(verdict.admitted), verdict.remaining, verdict.reset_us, verdict.retry_us].map(integer)
    }));
    Reply::Array(elements)
}

fn seen(step: Step, rules: &AnswerRules, circumstances: Circumstances<'_>) -> Seen {
    let Step::Decide(mut decision) = step else { return Seen::LimitLocally };
    decision.complete(rules, circumstances);
    let outcome = decision.report.outcome.word();
    let owned = |headers: Vec<Header>| headers.into_iter().map(|(name, value)| (name.into_owned(), value)).collect();
    match decision.action {
        Action::Forward { response_headers } => Seen::Forward { outcome, headers: owned(response_headers) },
        Action::Answer(answer) => {
            let body = answer.text().into_owned();
            Seen::Answer { outcome, status: answer.status, headers: owned(answer.headers), body }
        }
    }
}
