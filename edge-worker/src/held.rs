//! A request that may come to hold something. It is seen through to its end on the platform's promise to wait for it, so
//! that neither what it holds nor what it did depends on its client's staying.

use std::rc::Rc;

use futures_channel::oneshot;
use lockkeeper_core::admission::Arrival;
use lockkeeper_core::claim::Owner;
use lockkeeper_core::decision::{Action, Claimed, Decision};
use lockkeeper_core::selection::Selection;
use worker::Context;

use crate::answer;
use crate::body::{self, RequestBody};
use crate::decide::Arrived;
use crate::exchange::Exchange;
use crate::host::{self, HostResult};
use crate::lease::Teller;
use crate::passage::{Dress, Passage};
use crate::request;
use crate::steps::Steps;

/// Decides such a request and starts it on its way.
///
/// # Errors
/// The platform failed.
pub async fn decide(arrived: Arrived, selection: Selection, context: &Context) -> HostResult<Passage> {
    let (tell, told) = oneshot::channel();
    context.wait_until(see_through(arrived, selection, tell));
    told.await.unwrap_or_else(|_| Err("the request was given up".into()))
}

async fn see_through(arrived: Arrived, selection: Selection, tell: oneshot::Sender<HostResult<Passage>>) {
    let Arrived { isolate, engine, request, environment, .. } = &arrived;
    let values = request::values(engine, &selection, request);
    let arrival =
        Arrival { owner: host::secret().map(Owner::new), floor: isolate.fence_floor.get(), body: body::ahead(request) };
    let mut steps = Steps::new(isolate, environment, request);
    let decision = steps.carry_out(engine.begin_arrived(&selection, &values, &arrival)).await;
    let Steps { body, sent_us, .. } = steps;
    let Some(decision) = decision else {
        let _ = tell.send(Err("a step that is unknown here".into()));
        return;
    };
    let decision = arrived.concluded(decision);
    go_on(&arrived, decision, (body, sent_us), tell).await;
}

async fn go_on(
    arrived: &Arrived,
    decision: Decision,
    (body, sent_us): (RequestBody, u64),
    tell: oneshot::Sender<HostResult<Passage>>,
) {
    let degraded = arrived.degraded(&decision.report);
    let Decision { action, report, claimed, .. } = decision;
    let Claimed { upstream, lease, releases } = claimed.map(|claimed| *claimed).unwrap_or_default();
    match (action, lease) {
        (Action::Answer(answer), _) => {
            let answered = answer::response(&answer, report.outcome, request::is_grpc(&arrived.request), degraded);
            let _ = tell.send(answered.map(Passage::answered));
        }
        (Action::Forward { response_headers }, lease) => {
            let dress = Dress { fields: response_headers, degraded };
            let outgoing = arrived.outgoing(upstream, body);
            match lease {
                None => drop(tell.send(Ok(Passage::open(outgoing, dress)))),
                Some(lease) => {
                    arrived.isolate.sees(&lease);
                    let (respond, response) = oneshot::channel();
                    let _ = tell.send(Ok(Passage::held(response)));
                    let place = (Rc::clone(&arrived.isolate), arrived.environment.clone());
                    Exchange::new(place, (lease, sent_us), dress, respond).run(outgoing).await;
                }
            }
        }
    }
    let teller = Teller { isolate: &arrived.isolate, environment: &arrived.environment };
    teller.give_back(releases).await;
}
