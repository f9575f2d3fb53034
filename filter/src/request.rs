//! One request on its way through the filter.

use std::cell::RefCell;
use std::rc::Rc;

use lockkeeper_core::admission::Body;
use lockkeeper_core::capture::End;
use lockkeeper_core::completion::Circumstances;
use lockkeeper_core::decision::{Action as Verdict, Answer, Decision, Header, Outcome, Report, UpstreamRequest};
use lockkeeper_core::engine::{Collected, NeedBody, PREFLIGHT_MARK};
use lockkeeper_core::host_config::HostConfig;
use lockkeeper_core::idempotency::outcome::Dispatched;
use lockkeeper_core::identity::Attribute;
use lockkeeper_core::rate_limit_fields::is_single_valued;
use lockkeeper_core::selection::{GatewayRoute, Selection};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, BufferType};

use crate::gateway::{Gateway, Progress};
use crate::host::{self, LocalResponse};
use crate::parked::Waiter;
use crate::response::HeldResponse;

/// Where a request stands.
pub enum RequestState {
    /// Its headers have not come yet.
    New,
    /// Its fingerprint waits for its body, of which so many bytes are held.
    Body(NeedBody, usize),
    /// It waits for the store, or for its turn.
    Waiting,
    /// It was let pass.
    Forwarded(Forwarded),
    /// We answered it.
    Answered,
    /// The client is gone.
    Gone,
}

/// A request on its way through the upstream.
#[derive(Default)]
pub struct Forwarded {
    /// Fields of its limits, for its response.
    headers: Vec<Header>,
    /// Who decided, when the store could not.
    degraded: Option<&'static str>,
    /// What it holds until it ends.
    held: Option<HeldResponse>,
}

impl RequestState {
    /// Whether a decision still matters.
    pub fn is_waiting(&self) -> bool {
        matches!(self, RequestState::Waiting)
    }

    /// Whether its body is still awaited.
    pub fn needs_body(&self) -> bool {
        matches!(self, RequestState::Body(..))
    }

    /// Carries out a decision that came after the request's own callback had ended. What it grants was asked for at `sent_us`.
    pub fn decide_later(waiter: &Waiter, decision: Decision, gateway: &Gateway, sent_us: u64) {
        if host::set_effective_context(waiter.context_id).is_err() {
            *waiter.request.borrow_mut() = RequestState::Gone;
            give_up(decision, gateway);
            return;
        }
        if decide(waiter, decision, gateway, sent_us) == Action::Continue {
            // The stream may have ended meanwhile; then there is nothing to resume.
            let _ = host::resume_request();
        }
    }

    /// The record is stored, or is not going to be in time: its response goes on. True when there was one.
    pub fn respond_later(waiter: &Waiter) -> bool {
        let is_told = matches!(&*waiter.request.borrow(), RequestState::Forwarded(Forwarded { held: Some(held), .. }) if held.is_told());
        if !is_told || host::set_effective_context(waiter.context_id).is_err() {
            return false;
        }
        if let RequestState::Forwarded(Forwarded { held: Some(held), .. }) = &mut *waiter.request.borrow_mut() {
            held.is_over();
        }
        let _ = host::resume_response();
        true
    }

    /// The body did not come in time.
    pub fn body_late(waiter: &Waiter, gateway: &Gateway) {
        let state = std::mem::replace(&mut *waiter.request.borrow_mut(), RequestState::Waiting);
        let RequestState::Body(need, held) = state else {
            *waiter.request.borrow_mut() = state;
            return;
        };
        gateway.hold_bytes(held, 0);
        gateway.misses_body();
        if let Progress::Decided(decision, sent_us) = gateway.with_body(need, Collected::Failed, waiter) {
            RequestState::decide_later(waiter, decision, gateway, sent_us);
        }
    }
}

/// Nobody is there to be let pass: what the decision granted is given back.
fn give_up(decision: Decision, gateway: &Gateway) {
    if let Some(lease) = decision.claimed.and_then(|claimed| claimed.lease) {
        let holding = gateway.hold(lease, 0, host::monotonic_us());
        gateway.end(&holding, &End::cut(Dispatched::Never), None);
    }
}

/// Carries out a decision in the request's own context: records it, and answers if it says so.
fn decide(waiter: &Waiter, mut decision: Decision, gateway: &Gateway, sent_us: u64) -> Action {
    complete(&mut decision, gateway);
    let Decision { action, report, claimed, .. } = decision;
    gateway.metrics().decision(&report);
    if gateway.config().filter_state {
        record(&report, gateway);
    }
    let degraded = report.decided_by.is_degraded().then(|| report.decided_by.word());
    match action {
        Verdict::Forward { response_headers } => {
            let held = claimed.and_then(|claimed| {
                change(&claimed.upstream);
                let lease = claimed.lease?;
                Some(HeldResponse::new(gateway.hold(lease, waiter.context_id, sent_us)))
            });
            let forwarded = Forwarded { headers: response_headers, degraded, held };
            *waiter.request.borrow_mut() = RequestState::Forwarded(forwarded);
            Action::Continue
        }
        Verdict::Answer(answer) => {
            *waiter.request.borrow_mut() = RequestState::Answered;
            send(&answer, gateway.config().degraded_header.as_deref().zip(degraded), &report);
            Action::Pause
        }
    }
}

/// Changes the request on its way to the upstream.
fn change(upstream: &UpstreamRequest) {
    for name in &upstream.removed {
        let _ = host::remove_request_header(name);
    }
    for (name, value) in &upstream.set {
        let _ = host::set_request_header(name, value);
    }
    if upstream.once {
        // Envoy's own retries would run a claimed request again behind our back.
        let _ = host::set_request_header("x-envoy-max-retries", "0");
        let _ = host::remove_request_header("x-envoy-hedge-on-per-try-timeout");
    }
}

/// Tells the decision what only the host knows, where that matters.
fn complete(decision: &mut Decision, gateway: &Gateway) {
    let rules = &gateway.engine().policies().answers;
    let needs = decision.needs(rules);
    let origin = needs.origin.then(|| host::request_header("origin").ok().flatten()).flatten();
    let random = if needs.random { host::random_bytes().map_or(0, u64::from_le_bytes) } else { 0 };
    let unix_s = if needs.unix_s { host::unix_s() } else { 0 };
    decision.complete(rules, Circumstances { random, unix_s, origin: origin.as_deref() });
}

/// Writes the decision where access logs and later filters find it.
fn record(report: &Report, gateway: &Gateway) {
    let policies = &gateway.engine().policies().policies;
    let policy = report.policy.and_then(|index| policies.get(index));
    let limit = report.limit.and_then(|index| policy?.limits.get(index));
    let fields = [
        ("lockkeeper.policy", policy.map(|policy| policy.name.as_str())),
        ("lockkeeper.limit", limit.map(|limit| limit.name.as_str())),
        ("lockkeeper.outcome", Some(report.outcome.word())),
        ("lockkeeper.decided_by", Some(report.decided_by.word())),
    ];
    for (name, value) in fields.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let _ = host::set_filter_state(name, value);
    }
}

fn send(answer: &Answer, degraded: Option<(&str, &str)>, report: &Report) {
    let details = format!("lockkeeper_{}", report.outcome.word());
    let mut headers: Vec<(&[u8], &[u8])> =
        answer.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    headers.extend(answer.stored_headers.iter().map(|(name, value)| (name.as_bytes(), value.as_slice())));
    headers.extend(degraded.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    let status = u32::from(answer.status);
    let http = LocalResponse { status, headers: &headers, body: &answer.body, grpc_status: None, details: &details };
    // A replay is the upstream's own answer, whatever its protocol.
    let _ = match report.outcome != Outcome::Replayed && is_grpc() {
        false => host::send_response(&http),
        true => {
            // The content type is the protocol's own there.
            headers.retain(|(name, _)| *name != b"content-type");
            let status = Some(answer.grpc_status as i32);
            host::send_response(&LocalResponse {
                status: 200,
                headers: &headers,
                body: answer.grpc_message.as_bytes(),
                grpc_status: status,
                details: &details,
            })
        }
    };
}

fn is_grpc() -> bool {
    let content_type = host::request_header("content-type").ok().flatten().unwrap_or_default();
    match content_type.strip_prefix(b"application/grpc") {
        Some(rest) => matches!(rest.first(), None | Some(b'+' | b';')),
        None => false,
    }
}

/// The HTTP context of the limiter.
pub struct Request {
    waiter: Waiter,
    gateway: Rc<Gateway>,
}

impl Request {
    /// A request whose headers have not come yet.
    pub fn new(context_id: u32, gateway: Rc<Gateway>) -> Request {
        let request = Rc::new(RefCell::new(RequestState::New));
        Request { waiter: Waiter { context_id, request }, gateway }
    }

    fn goes_on(&self, progress: Progress) -> Action {
        match progress {
            Progress::Waiting => Action::Pause,
            Progress::NeedBody(need) => {
                *self.waiter.request.borrow_mut() = RequestState::Body(need, 0);
                self.gateway.await_body(self.waiter.clone());
                Action::Pause
            }
            Progress::Decided(decision, sent_us) => decide(&self.waiter, decision, &self.gateway, sent_us),
        }
    }

    /// Goes on with as much of the body as there is; it is complete when it `ends`.
    fn collect(&self, bytes: usize, ends: bool) -> Action {
        let state = std::mem::replace(&mut *self.waiter.request.borrow_mut(), RequestState::Waiting);
        let RequestState::Body(need, held) = state else {
            *self.waiter.request.borrow_mut() = state;
            return Action::Continue;
        };
        self.gateway.sees_bodies();
        let has_room = self.gateway.hold_bytes(held, bytes);
        if has_room && !ends && bytes <= need.bytes_max() {
            *self.waiter.request.borrow_mut() = RequestState::Body(need, bytes);
            return Action::Pause;
        }
        self.gateway.hold_bytes(if has_room { bytes } else { held }, 0);
        let body = match bytes {
            _ if !has_room => Some(Vec::new()),
            0 => Some(Vec::new()),
            bytes if bytes > need.bytes_max() => None,
            bytes => host::buffer(BufferType::HttpRequestBody, 0, bytes).ok(),
        };
        let collected = match &body {
            _ if !has_room => Collected::Failed,
            Some(body) => Collected::Whole(body),
            None => Collected::TooLarge,
        };
        let progress = self.gateway.with_body(need, collected, &self.waiter);
        self.goes_on(progress)
    }

    /// Does something with what the request holds.
    fn with_held<R>(&self, act: impl FnOnce(&mut HeldResponse) -> R) -> Option<R> {
        match &mut *self.waiter.request.borrow_mut() {
            RequestState::Forwarded(Forwarded { held: Some(held), .. }) => Some(act(held)),
            _ => None,
        }
    }
}

impl Context for Request {
    fn on_done(&mut self) -> bool {
        if let RequestState::Body(_, held) = &*self.waiter.request.borrow() {
            self.gateway.hold_bytes(*held, 0);
        }
        *self.waiter.request.borrow_mut() = RequestState::Gone;
        true
    }
}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        trap_on_purpose();
        let engine = self.gateway.engine();
        for name in engine.reserved_headers() {
            let _ = host::remove_request_header(name);
        }
        let selection = select(&self.gateway);
        let values: Vec<Option<Vec<u8>>> =
            engine.attributes(&selection).iter().map(|one| look_up(one, &self.gateway)).collect();
        let step = match engine.may_hold(&selection) {
            false => engine.begin(&selection, &values),
            true => engine.begin_arrived(&selection, &values, &self.gateway.arrival(body_ahead(end_of_stream))),
        };
        *self.waiter.request.borrow_mut() = RequestState::Waiting;
        let progress = self.gateway.begin(step, &self.waiter);
        if let (Progress::Waiting, false) = (&progress, end_of_stream) {
            self.gateway.pause_everything(&self.waiter);
        }
        self.goes_on(progress)
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if self.waiter.request.borrow().needs_body() {
            return self.collect(size, end_of_stream);
        }
        if self.waiter.request.borrow().is_waiting() {
            return Action::Pause;
        }
        self.with_held(|held| held.request_body(size, end_of_stream));
        Action::Continue
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        let held = match &*self.waiter.request.borrow() {
            RequestState::Body(_, held) => Some(*held),
            _ => None,
        };
        match held {
            Some(held) => self.collect(held, true),
            None if self.waiter.request.borrow().is_waiting() => Action::Pause,
            None => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if let RequestState::Forwarded(Forwarded { headers, degraded, .. }) = &*self.waiter.request.borrow() {
            add_beside_upstreams(headers);
            if let Some((name, decider)) = self.gateway.config().degraded_header.as_deref().zip(*degraded) {
                let _ = host::set_response_header(name, decider);
            }
        }
        let waiter = self.waiter.clone();
        self.with_held(|held| held.headers(end_of_stream, waiter, &self.gateway)).unwrap_or(Action::Continue)
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        let waiter = self.waiter.clone();
        self.with_held(|held| held.body(size, end_of_stream, waiter, &self.gateway)).unwrap_or(Action::Continue)
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        let waiter = self.waiter.clone();
        self.with_held(|held| held.trailers(waiter, &self.gateway)).unwrap_or(Action::Continue)
    }

    fn on_log(&mut self) {
        self.with_held(|held| held.log(&self.gateway));
    }
}

/// What the headers say of the body.
fn body_ahead(end_of_stream: bool) -> Body {
    if end_of_stream {
        return Body::Absent;
    }
    let length = host::request_header("content-length").ok().flatten();
    let length = length.and_then(|length| std::str::from_utf8(&length).ok()?.trim().parse().ok());
    length.map_or(Body::Unknown, Body::Bytes)
}

/// Adds fields to the response. Of those that may occur only once, the upstream's own stay and ours are left out.
fn add_beside_upstreams(headers: &[Header]) {
    let is_there = |name: &str| host::response_header(name).ok().flatten().is_some();
    let is_told = headers.iter().any(|(name, _)| is_single_valued(name) && is_there(name));
    for (name, value) in headers.iter().filter(|(name, _)| !(is_told && is_single_valued(name))) {
        let _ = host::add_response_header(name, value);
    }
}

/// Finds the policy, reading no more of the request than that takes.
fn select(gateway: &Gateway) -> Selection {
    let engine = gateway.engine();
    let needs = engine.line_needs();
    let line = |needed: bool, name: &str| if needed { text(name) } else { String::new() };
    // Asking for a header that is not there costs a fifth of reading one.
    let is_preflight = || needs.method_of_preflight && matches!(host::request_header(PREFLIGHT_MARK), Ok(Some(_)));
    let method = line(needs.method || is_preflight(), ":method");
    let authority = line(needs.authority, ":authority");
    let name = needs.route_name.then(|| property_text("xds\0route_name")).flatten();
    let policy = needs.route_policy.then(|| property_text(ROUTE_POLICY)).flatten();
    let gateway_route = GatewayRoute { name: name.as_deref(), policy: policy.as_deref() };
    let selection = engine.select_routed(&method, &authority, &line(needs.target, ":path"), gateway_route);
    if selection.names_unknown_policy() {
        gateway.metrics().unknown_policy(policy.as_deref().unwrap_or_default());
    }
    let headers = engine.route_headers(&selection);
    if headers.is_empty() {
        return selection;
    }
    let values: Vec<Option<Vec<u8>>> = headers.iter().map(|one| look_up(one, gateway)).collect();
    engine.select_by_headers(selection, &values)
}

/// Where a route of Envoy may name a policy.
const ROUTE_POLICY: &str = "xds\0route_metadata\0filter_metadata\0lockkeeper\0policy";

/// A property as text; what is there but is no text is the empty one.
fn property_text(path: &str) -> Option<String> {
    match host::property(path) {
        Ok(bytes) => bytes.map(|bytes| String::from_utf8(bytes).unwrap_or_default()),
        Err(_) => Some(String::new()),
    }
}

/// A header as text; bytes that are no UTF-8 become U+FFFD, so that such a request still has a host, path and method.
fn text(name: &str) -> String {
    let bytes = host::request_header(name).ok().flatten().unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn look_up(attribute: &Attribute, gateway: &Gateway) -> Option<Vec<u8>> {
    match attribute {
        Attribute::ClientAddress => host::property("source\0address").ok().flatten(),
        // The property joins several lines by a comma; the header call would give the first line alone.
        Attribute::Header(name) => host::property(&["request\0headers\0", name].concat()).ok().flatten(),
        Attribute::Metadata(path) => {
            let value = host::property(&metadata_path(path, gateway.config())).ok().flatten();
            value.filter(|bytes| !is_list_or_object(bytes))
        }
    }
}

/// Whether a property is no scalar. Envoy writes lists and objects as pairs: how many (4 bytes, least first), the two sizes of
/// each, then all texts, each ended by NUL. The members of an object come in any order, so they are no identity.
fn is_list_or_object(bytes: &[u8]) -> bool {
    let size = |word: &[u8]| word.try_into().map_or(usize::MAX, |word| u32::from_le_bytes(word) as usize);
    let Some((count, rest)) = bytes.split_at_checked(4) else { return false };
    let Some((sizes, texts)) = size(count).checked_mul(8).and_then(|sizes| rest.split_at_checked(sizes)) else {
        return false;
    };
    let ends = size(count).saturating_mul(2);
    sizes.chunks_exact(4).map(size).fold(ends, usize::saturating_add) == texts.len()
}

/// The property of a metadata path. `jwt_authn` stands for Envoy's filter of that name and the member in which it keeps
/// the verified payload.
fn metadata_path(path: &[String], config: &HostConfig) -> String {
    let mut property = String::from("metadata\0filter_metadata");
    let mut steps = path.iter().map(String::as_str).peekable();
    if steps.next_if_eq(&"jwt_authn").is_some() {
        property.extend(["\0envoy.filters.http.jwt_authn\0", &config.jwt_payload]);
    }
    steps.for_each(|step| property.extend(["\0", step]));
    property
}

#[cfg(feature = "trap")]
fn trap_on_purpose() {
    if host::request_header("x-lockkeeper-trap").ok().flatten().is_some() {
        std::process::abort();
    }
}

#[cfg(not(feature = "trap"))]
fn trap_on_purpose() {}

/// The HTTP context of a root whose configuration was refused: the host does not route requests to it.
pub struct PassThrough;

impl Context for PassThrough {}

impl HttpContext for PassThrough {}
