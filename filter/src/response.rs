//! The response of a request that holds something: held or followed on its way, and told to the store when it ends.

use std::cell::RefCell;
use std::rc::Rc;

use lockkeeper_core::capture::{Capture, End, Pass, RecordEnd, ResponseHead};
use lockkeeper_core::idempotency::fingerprint::BodyHasher;
use lockkeeper_core::idempotency::outcome::{self, Dispatched};
use lockkeeper_core::policy::{BodyFingerprint, Idempotency};
use proxy_wasm::types::{Action, BufferType};

use crate::gateway::Gateway;
use crate::holding::Holding;
use crate::host;
use crate::parked::Waiter;

/// What a request holds, and where its response stands.
pub struct HeldResponse {
    holding: Rc<RefCell<Holding>>,
    phase: Phase,
    /// The body's fingerprint, where it is bound with the outcome.
    hasher: Option<BodyHasher>,
}

enum Phase {
    /// The upstream has not answered.
    Upstream,
    /// The body is held back until the record is stored.
    Held(Capture),
    /// The body goes on as it comes.
    Followed(Option<Capture>),
    /// The store is being told; the response waits for that.
    Told,
    /// There is nothing more to do.
    Over,
}

impl HeldResponse {
    /// The upstream has not answered yet.
    pub fn new(holding: Rc<RefCell<Holding>>) -> HeldResponse {
        let hasher = holding.borrow().lease().idempotency().and_then(hasher);
        HeldResponse { holding, phase: Phase::Upstream, hasher }
    }

    /// Whether the response waits for the store.
    pub fn is_told(&self) -> bool {
        matches!(self.phase, Phase::Told)
    }

    /// The response waits no more.
    pub fn is_over(&mut self) {
        self.phase = Phase::Over;
    }

    /// A piece of the request's body goes to the upstream.
    pub fn request_body(&mut self, bytes: usize, ends: bool) {
        let Some(hasher) = &mut self.hasher else { return };
        if bytes > 0 {
            hasher.push(&host::buffer(BufferType::HttpRequestBody, 0, bytes).unwrap_or_default());
        }
        if ends && let Some(hasher) = self.hasher.take() {
            self.holding.borrow_mut().lease_mut().bind_body(hasher.finish());
        }
    }

    /// The response's headers have come: the upstream's, or an answer of the gateway's own.
    pub fn headers(&mut self, ends: bool, waiter: Waiter, gateway: &Gateway) -> Action {
        if !matches!(self.phase, Phase::Upstream) {
            return Action::Continue;
        }
        if !outcome::is_from_upstream(&code_details()) {
            return self.not_answered(gateway);
        }
        let capture = self.holding.borrow().lease().idempotency().map(|rules| Capture::start(rules, &head(ends)));
        let is_held = capture.as_ref().is_some_and(|capture| capture.pass() == Pass::Held);
        match (capture, is_held) {
            (Some(capture), true) if !ends => {
                self.phase = Phase::Held(capture);
                // Without the flag that lets bodies pass a paused head, the head goes on and the body is held.
                if gateway.config().reads_bodies { Action::Pause } else { Action::Continue }
            }
            (capture, is_held) => {
                self.phase = Phase::Followed(capture);
                if ends { self.complete(is_held.then_some(waiter), gateway) } else { Action::Continue }
            }
        }
    }

    /// The gateway answers for the upstream.
    fn not_answered(&mut self, gateway: &Gateway) -> Action {
        let end = End::cut(dispatched());
        if end.record == RecordEnd::LeaveUnknown && self.holding.borrow().lease().idempotency().is_some() {
            let _ = host::set_response_header("idempotency-outcome", "unknown");
        }
        self.finish(&end, None, gateway)
    }

    /// A piece of the response's body.
    pub fn body(&mut self, bytes: usize, ends: bool, waiter: Waiter, gateway: &Gateway) -> Action {
        match &mut self.phase {
            // What is held grows in the host's buffer, and is read once.
            Phase::Held(_) if !ends => Action::Pause,
            Phase::Held(capture) => {
                capture.push(&host::buffer(BufferType::HttpResponseBody, 0, bytes).unwrap_or_default());
                self.complete(Some(waiter), gateway)
            }
            Phase::Followed(capture) => {
                if let Some(capture) = capture.as_mut().filter(|capture| bytes > 0 && capture.wants_more()) {
                    capture.push(&host::buffer(BufferType::HttpResponseBody, 0, bytes).unwrap_or_default());
                }
                if ends { self.complete(None, gateway) } else { Action::Continue }
            }
            Phase::Told => Action::Pause,
            Phase::Upstream | Phase::Over => Action::Continue,
        }
    }

    /// The response ends with trailers.
    pub fn trailers(&mut self, waiter: Waiter, gateway: &Gateway) -> Action {
        match &mut self.phase {
            Phase::Held(capture) => {
                capture.has_trailers();
                self.complete(Some(waiter), gateway)
            }
            Phase::Followed(capture) => {
                capture.iter_mut().for_each(Capture::has_trailers);
                self.complete(None, gateway)
            }
            Phase::Told => Action::Pause,
            Phase::Upstream | Phase::Over => Action::Continue,
        }
    }

    /// The whole response has come.
    fn complete(&mut self, waiter: Option<Waiter>, gateway: &Gateway) -> Action {
        let end = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Held(capture) | Phase::Followed(Some(capture)) => capture.end(),
            Phase::Followed(None) => End::RELEASED,
            Phase::Upstream | Phase::Told | Phase::Over => return Action::Continue,
        };
        self.finish(&end, waiter, gateway)
    }

    /// The stream is over: whatever has not come will not come.
    pub fn log(&mut self, gateway: &Gateway) {
        let end = match &self.phase {
            Phase::Upstream => End::cut(dispatched()),
            Phase::Held(_) | Phase::Followed(_) => End::cut(Dispatched::Maybe),
            Phase::Told | Phase::Over => return,
        };
        self.finish(&end, None, gateway);
    }

    fn finish(&mut self, end: &End, waiter: Option<Waiter>, gateway: &Gateway) -> Action {
        let waits = gateway.end(&self.holding, end, waiter);
        self.phase = if waits { Phase::Told } else { Phase::Over };
        if waits { Action::Pause } else { Action::Continue }
    }
}

/// A hasher of the body, where the policy binds its fingerprint with the outcome.
fn hasher(rules: &Idempotency) -> Option<BodyHasher> {
    let rule = rules.fingerprint.body;
    (rule == BodyFingerprint::AtCompletion).then(|| BodyHasher::new(rule))
}

/// Whether the upstream may have seen the request, as far as Envoy knows.
fn dispatched() -> Dispatched {
    let has_address = host::property("upstream\0local_address").ok().flatten().is_some();
    let attempts = host::property("upstream\0request_attempt_count").ok().flatten();
    let attempts = attempts.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    outcome::dispatched(has_address, attempts, &code_details())
}

fn code_details() -> String {
    let details = host::property("response\0code_details").ok().flatten();
    details.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn head(ends: bool) -> ResponseHead {
    let lines = host::response_headers().unwrap_or_default();
    let status = lines.iter().find(|(name, _)| name == ":status").map(|(_, value)| value.as_slice());
    let status = status.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()).unwrap_or(0);
    ResponseHead { status, lines, ends }
}
