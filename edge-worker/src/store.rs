//! The way to the store of one request: the transport of the settings, one deadline over all of it, the isolate's breaker.

pub mod handshake;
mod object;
mod rest;
mod rest_json;
mod tcp;
pub mod wire;

use js_sys::Promise;
use lockkeeper_core::breaker::{Breaker, BreakerConfig};
use lockkeeper_core::resp::{Reply, encode_command};
use lockkeeper_core::script;
use lockkeeper_core::store::{Refusal, StoreFailure};
use std::cell::{Cell, RefCell};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;

use self::object::{Question, Unanswered};
use self::tcp::TcpSession;
use crate::host;
use crate::settings::Transport;

/// A probe that has not ended after this, in microseconds, never will: its request was cancelled.
const PROBE_LOST_US: u64 = 15_000_000;

/// What an isolate knows of the store.
pub struct Store {
    transport: Transport,
    deadline_us: u64,
    breaker: RefCell<Breaker>,
    /// What probes write.
    probe_key: RefCell<String>,
    /// Whether the last answer was a reply: only then an object need not be told what to probe.
    is_well: Cell<bool>,
    /// When the probe under way began.
    probed_at_us: Cell<Option<u64>>,
}

/// The calls of one request.
pub struct Session<'s> {
    store: &'s Store,
    environment: &'s JsValue,
    deadline_us: u64,
    tcp: TcpSession,
    /// Whether the commands of others go first, where they share a connection.
    pub gives_way: bool,
}

/// A command on its way.
pub struct Asked {
    /// What its reply begins with.
    pub tag: String,
    /// What [`Store::reply`] reads.
    pub answer: Promise,
}

impl Store {
    /// A store nothing is known of yet. `seed` is random.
    pub fn new(transport: Transport, deadline_us: u64, seed: u64) -> Store {
        let breaker = RefCell::new(Breaker::new(BreakerConfig::default(), seed));
        Store {
            transport,
            deadline_us,
            breaker,
            probe_key: RefCell::default(),
            is_well: Cell::new(false),
            probed_at_us: Cell::new(None),
        }
    }

    /// Probes write a key of this namespace from now on.
    pub fn probe_in(&self, namespace: &str) {
        self.probe_key.replace(format!("{namespace}:probe"));
    }

    /// The longest that a request waits for the store.
    pub fn deadline_us(&self) -> u64 {
        self.deadline_us
    }

    /// Begins the calls of a request; its deadline counts from now.
    pub fn session<'s>(&'s self, environment: &'s JsValue) -> Session<'s> {
        let deadline_us = host::now_us().saturating_add(self.deadline_us);
        Session { store: self, environment, deadline_us, tcp: TcpSession::default(), gives_way: false }
    }

    /// Whether a probe is due. If so, the caller must [`Store::probe`].
    pub fn takes_probe(&self) -> bool {
        let now_us = host::now_us();
        let mut breaker = self.breaker.borrow_mut();
        if self.probed_at_us.get().is_some_and(|at_us| now_us.saturating_sub(at_us) > PROBE_LOST_US) {
            self.probed_at_us.set(None);
            breaker.probe_failure(now_us);
        }
        let takes = breaker.take_probe(now_us);
        if takes {
            self.probed_at_us.set(Some(now_us));
        }
        takes
    }

    /// Looks whether the store is back: it must take a write.
    pub async fn probe(&self, environment: &JsValue) {
        let (tag, key) = (tag(), self.probe_key.borrow().clone());
        let mut command = Vec::new();
        encode_command(&[b"EVAL", script::PROBE.text().as_bytes(), b"1", key.as_bytes(), tag.as_bytes()], &mut command);
        let mut session = self.session(environment);
        let answered = session.exchange(&tag, &command).await;
        self.probed_at_us.set(None);
        match answered {
            Ok(result) if result.is_ok() || self.asks_objects() => self.breaker.borrow_mut().success(),
            _ => self.breaker.borrow_mut().probe_failure(host::now_us()),
        }
    }

    /// Whether JavaScript waits for its answers, see [`Store::ask`].
    pub fn is_promised(&self) -> bool {
        !matches!(self.transport, Transport::Tcp(_))
    }

    fn asks_objects(&self) -> bool {
        matches!(self.transport, Transport::DurableObject { .. })
    }

    /// Whether calls go out.
    pub fn is_asked(&self) -> bool {
        self.breaker.borrow().is_closed()
    }

    /// Sends a command over a transport that JavaScript waits for. `None` while the store is known to fail, and when the
    /// command cannot be sent.
    pub fn ask(&self, environment: &JsValue, write: impl FnOnce(&str, &mut Vec<u8>), wait_us: u64) -> Option<Asked> {
        if !self.is_asked() {
            return None;
        }
        let (tag, mut command) = (tag(), Vec::new());
        write(&tag, &mut command);
        let answer = self.promise(environment, (&tag, &command), wait_us, false)?;
        Some(Asked { tag, answer })
    }

    /// The reply in the answer to such a command.
    pub fn reply(&self, tag: &str, answer: &JsValue) -> Result<Reply, StoreFailure> {
        self.heard(self.read(tag, answer))
    }

    fn promise(
        &self,
        environment: &JsValue,
        (tag, command): (&str, &[u8]),
        wait_us: u64,
        gives_way: bool,
    ) -> Option<Promise> {
        let wait_ms = wait_us.div_ceil(1_000) as f64;
        match &self.transport {
            Transport::DurableObject { objects, location, .. } => {
                let probe_key = self.probe_key.borrow();
                let probe_key = (!self.is_well.get()).then_some(probe_key.as_str());
                let question = Question { tag, command, wait_ms, probe_key, gives_way };
                Some(object::ask(environment, (*objects, location.as_deref()), &question))
            }
            Transport::Rest { url, token } => rest::ask(url, token, command, wait_ms),
            Transport::Tcp(_) => None,
        }
    }

    fn read(&self, tag: &str, answer: &JsValue) -> Result<Result<Reply, StoreFailure>, Unanswered> {
        let result = if self.asks_objects() { object::heard(answer) } else { Ok(rest::heard(answer)) };
        self.is_well.set(matches!(result, Ok(Ok(_))));
        let result = result?;
        Ok(own(result, tag))
    }

    fn heard(&self, answered: Result<Result<Reply, StoreFailure>, Unanswered>) -> Result<Reply, StoreFailure> {
        match answered {
            Ok(result) => {
                let answers = matches!(result, Ok(_) | Err(StoreFailure::Refused(Refusal::NoScript)));
                // An object that answers is well, whatever it says of the store: it has a breaker of its own.
                self.count(answers || self.asks_objects());
                result
            }
            Err(Unanswered(failure)) => {
                self.count(false);
                Err(failure)
            }
        }
    }

    /// An answer to a call that was sent before the breaker opened does not close it; the probe does.
    fn count(&self, is_well: bool) {
        let mut breaker = self.breaker.borrow_mut();
        match is_well {
            true if breaker.is_closed() => breaker.success(),
            true => {}
            false => breaker.failure(host::now_us()),
        }
    }
}

impl Session<'_> {
    /// The reply to a command, or why there is none. While the store is known to fail, nobody waits for it.
    pub async fn ask(&mut self, write: impl FnOnce(&str, &mut Vec<u8>)) -> Result<Reply, StoreFailure> {
        if !self.store.is_asked() {
            return Err(StoreFailure::NotSent);
        }
        self.insist(write).await
    }

    /// The same, even while the store is known to fail: for commands that nobody waits for. `write` writes the command,
    /// marked with a tag.
    pub async fn insist(&mut self, write: impl FnOnce(&str, &mut Vec<u8>)) -> Result<Reply, StoreFailure> {
        let tag = tag();
        let mut command = Vec::new();
        write(&tag, &mut command);
        let answered = self.exchange(&tag, &command).await;
        self.store.heard(answered)
    }

    async fn exchange(&mut self, tag: &str, command: &[u8]) -> Result<Result<Reply, StoreFailure>, Unanswered> {
        let Transport::Tcp(server) = &self.store.transport else {
            let left_us = self.deadline_us.saturating_sub(host::now_us());
            let answer = self.store.promise(self.environment, (tag, command), left_us, self.gives_way);
            let answer = JsFuture::from(answer.ok_or(Unanswered(StoreFailure::NotSent))?).await;
            return self.store.read(tag, &answer.unwrap_or_default());
        };
        match host::within(self.deadline_us, self.tcp.ask(server, command)).await {
            Some(result) => Ok(own(result, tag)),
            None => Err(Unanswered(self.tcp.timed_out())),
        }
    }
}

/// Closes what the calls had opened. The platform itself closes what a request leaves that it has cancelled.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.tcp.close();
    }
}

/// A mark that no other command in flight has.
fn tag() -> String {
    format!("{:016x}", host::random())
}

/// The reply, if it is that of the command with this tag.
fn own(result: Result<Reply, StoreFailure>, tag: &str) -> Result<Reply, StoreFailure> {
    result.and_then(|reply| if echoes(&reply, tag) { Ok(reply) } else { Err(StoreFailure::Unknown) })
}

/// A script's reply begins with the tag of the command that it answers.
fn echoes(reply: &Reply, tag: &str) -> bool {
    let Reply::Array(elements) = reply else { return false };
    matches!(elements.first(), Some(Reply::BulkString(echoed)) if echoed.as_slice() == tag.as_bytes())
}
