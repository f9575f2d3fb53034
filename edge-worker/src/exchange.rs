//! A request that holds something, at the origin: its response is held or followed, its lease kept meanwhile, and the store
//! told how it ended.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::future::{Either, select};
use js_sys::Uint8Array;
use lockkeeper_core::capture::{Capture, End, Pass};
use lockkeeper_core::idempotency::fingerprint::BodyHasher;
use lockkeeper_core::idempotency::outcome::Dispatched;
use lockkeeper_core::lease::Lease;
use lockkeeper_core::policy::{BodyFingerprint, Idempotency};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use worker::web_sys::{AbortController, Response};

use crate::answer;
use crate::body::Hash;
use crate::host::{self, HostResult};
use crate::isolate::Isolate;
use crate::lease::Teller;
use crate::log;
use crate::outgoing::{Company, Outgoing};
use crate::passage::{Content, Dress};
use crate::response::Origins;
use crate::stream::{Sink, Source};

/// How far the origin may go ahead of the client where nothing is kept of the response.
const AHEAD_BYTES: usize = 64 * 1024;

/// One request that holds something.
pub struct Exchange {
    isolate: Rc<Isolate>,
    environment: JsValue,
    lease: Lease,
    /// When the command that was granted had been sent.
    granted_us: u64,
    dress: Dress,
    respond: Respond,
    /// Cuts the origin off.
    cancel: Option<AbortController>,
}

/// How an exchange ended, and the response where it waits for the store.
struct Ended {
    end: End,
    response: Option<HostResult<Response>>,
}

/// Who waits for the response.
struct Respond(RefCell<Option<oneshot::Sender<HostResult<Response>>>>);

/// A response on its way.
struct Coming {
    response: Response,
    origins: Origins,
    source: Source,
    capture: Option<Capture>,
}

impl Exchange {
    /// Before the request has gone to the origin. The response goes to `respond`.
    pub fn new(
        (isolate, environment): (Rc<Isolate>, JsValue),
        (lease, granted_us): (Lease, u64),
        dress: Dress,
        respond: oneshot::Sender<HostResult<Response>>,
    ) -> Exchange {
        let respond = Respond(RefCell::new(Some(respond)));
        Exchange { isolate, environment, lease, granted_us, dress, respond, cancel: AbortController::new().ok() }
    }

    /// Sends the request and goes on until the store knows how it ended.
    pub async fn run(mut self, outgoing: Outgoing) {
        let hash = RefCell::default();
        let lapses_us = Cell::new(self.granted_us.saturating_add(self.lease.shortest_us()));
        let Ended { end, response } = self.keep_while(self.with_origin(outgoing, &hash), &lapses_us).await;
        if let Some(hash) = hash.take().and_then(|hash: Hash| hash.take()) {
            self.lease.bind_body(hash);
        }
        let teller = self.teller();
        let calls = self.lease.end(&end);
        let left = if response.is_some() { teller.tell_first(calls).await } else { calls };
        response.into_iter().for_each(|response| self.respond.send(response));
        teller.tell_all(left, lapses_us.get()).await;
    }

    fn teller(&self) -> Teller<'_> {
        Teller { isolate: &self.isolate, environment: &self.environment }
    }

    /// Keeps the lease as long as the work takes. When it is lost, and the policy says so, the origin is cut off.
    async fn keep_while(&self, work: impl Future<Output = Ended>, lapses_us: &Cell<u64>) -> Ended {
        let teller = self.teller();
        match select(pin!(work), pin!(teller.keep(&self.lease, self.granted_us, lapses_us))).await {
            Either::Left((ended, _)) => ended,
            Either::Right(((), work)) => {
                self.cancel.iter().for_each(host::abort);
                work.await
            }
        }
    }

    async fn with_origin(&self, outgoing: Outgoing, hash: &RefCell<Option<Hash>>) -> Ended {
        let is_head = outgoing.request.method() == "HEAD";
        let hasher = self.lease.idempotency().and_then(hasher);
        let signal = self.cancel.as_ref().map(AbortController::signal);
        let (response, hashing) = match outgoing.send(Company { signal: signal.as_ref(), hasher }) {
            Ok(sent) => sent,
            Err(error) => {
                log::origin(&error);
                return Ended { end: End::cut(Dispatched::Never), response: Some(answer::no_origin(false)) };
            }
        };
        *hash.borrow_mut() = hashing;
        let response: Response = match JsFuture::from(response).await.and_then(JsCast::dyn_into) {
            Ok(response) => response,
            // It may have been carried out: the platform does not tell.
            Err(error) => {
                log::origin(&error);
                return self.unanswered();
            }
        };
        let origins = Origins::of(&response, is_head);
        if !origins.is_usable() {
            return self.unanswered();
        }
        if origins.is_platforms_own() {
            self.respond.send(self.dress_of_unknown().put_on(response, Content::Own));
            return Ended { end: End::cut(Dispatched::Maybe), response: None };
        }
        let source = Source::of(response.body().filter(|_| !origins.head.ends).as_ref());
        let capture = self.lease.idempotency().map(|rules| Capture::start(rules, &origins.head));
        self.answered(Coming { response, origins, source, capture }).await
    }

    /// The origin did not answer, or not to the end.
    fn unanswered(&self) -> Ended {
        let is_kept = self.lease.idempotency().is_some();
        Ended { end: End::cut(Dispatched::Maybe), response: Some(answer::no_origin(is_kept)) }
    }

    fn dress_of_unknown(&self) -> Dress {
        let unknown = self.lease.idempotency().map(|_| answer::UNKNOWN_OUTCOME);
        let fields = unknown.into_iter().map(|(name, value)| (name.into(), value.to_owned()));
        Dress { fields: fields.collect(), degraded: self.dress.degraded.clone() }
    }

    async fn answered(&self, coming: Coming) -> Ended {
        let is_held = coming.capture.as_ref().is_some_and(|capture| capture.pass() == Pass::Held);
        match (coming.origins.head.ends, is_held) {
            (false, true) => self.hold(coming).await,
            (false, false) => self.follow(coming).await,
            (true, _) => {
                let response = self.dress.put_on(coming.response, Content::Own);
                let end = ended(coming.capture);
                if is_held {
                    return Ended { end, response: Some(response) };
                }
                self.respond.send(response);
                Ended { end, response: None }
            }
        }
    }

    /// Holds the response until its record is stored.
    async fn hold(&self, mut coming: Coming) -> Ended {
        let bytes_max = self.bytes_max();
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        loop {
            match coming.source.next().await {
                Ok(Some(piece)) => {
                    bytes.extend(piece.to_vec());
                    pieces.push(piece);
                }
                Ok(None) => break,
                Err(_) => return self.unanswered(),
            }
            if bytes.len() > bytes_max {
                // It unfolds to more than its declared length, and is not kept.
                coming.source.put_back(pieces);
                return self.follow(coming).await;
            }
        }
        coming.capture.iter_mut().for_each(|capture| capture.push(&bytes));
        let content = Content::Bytes(Uint8Array::from(bytes.as_slice()));
        Ended { end: ended(coming.capture), response: Some(self.dress.put_on(coming.response, content)) }
    }

    /// Passes the response on as it comes.
    async fn follow(&self, coming: Coming) -> Ended {
        let Coming { response, origins, mut source, mut capture } = coming;
        let Ok((mut sink, stream)) = Sink::open(origins.length, self.bytes_max()) else { return self.unanswered() };
        self.respond.send(self.dress.put_on(response, Content::Stream(stream)));
        let end = loop {
            match source.next().await {
                Ok(Some(piece)) => {
                    if let Some(capture) = capture.as_mut().filter(|capture| capture.wants_more()) {
                        capture.push(&piece.to_vec());
                    }
                    sink.write(&piece).await;
                }
                Ok(None) => {
                    sink.close();
                    break ended(capture);
                }
                Err(_) => {
                    sink.abort();
                    break End::cut(Dispatched::Maybe);
                }
            }
        };
        Ended { end, response: None }
    }

    /// What is kept of a response comes whole, however slow its client is.
    fn bytes_max(&self) -> usize {
        self.lease.idempotency().map_or(AHEAD_BYTES, |rules| rules.stored.max_body_bytes)
    }
}

impl Respond {
    /// The client may have gone; then nobody waits.
    fn send(&self, response: HostResult<Response>) {
        if let Some(respond) = self.0.borrow_mut().take() {
            let _ = respond.send(response);
        }
    }
}

/// The whole response has come.
fn ended(capture: Option<Capture>) -> End {
    capture.map_or(End::RELEASED, Capture::end)
}

/// A hasher of the body, where the policy binds its fingerprint with the outcome.
fn hasher(rules: &Idempotency) -> Option<BodyHasher> {
    let rule = rules.fingerprint.body;
    (rule == BodyFingerprint::AtCompletion).then(|| BodyHasher::new(rule))
}
