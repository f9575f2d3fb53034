//! The way to the store of one request: the transport of the settings, one deadline over all of it, the isolate's breaker.

pub mod handshake;
mod object;
mod rest;
mod rest_json;
mod tcp;
pub mod wire;

use lockkeeper_core::breaker::{Breaker, BreakerConfig};
use lockkeeper_core::resp::{Reply, encode_command};
use lockkeeper_core::script;
use lockkeeper_core::store::{Refusal, StoreFailure};
use std::cell::{Cell, RefCell};
use wasm_bindgen::JsValue;

use self::object::{Question, Unanswered};
use self::rest::RestSession;
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
    /// When the probe under way began.
    probed_at_us: Cell<Option<u64>>,
}

/// The calls of one request.
pub struct Session<'s> {
    store: &'s Store,
    environment: &'s JsValue,
    deadline_us: u64,
    line: Line,
    /// Whether the commands of others go first, where they share a connection.
    pub gives_way: bool,
}

enum Line {
    Tcp(TcpSession),
    Object,
    Rest(RestSession),
}

impl Store {
    /// A store nothing is known of yet. `seed` is random.
    pub fn new(transport: Transport, deadline_us: u64, seed: u64) -> Store {
        let breaker = RefCell::new(Breaker::new(BreakerConfig::default(), seed));
        Store { transport, deadline_us, breaker, probe_key: RefCell::default(), probed_at_us: Cell::new(None) }
    }

    /// Probes write a key of this namespace from now on.
    pub fn probe_in(&self, namespace: &str) {
        self.probe_key.replace(format!("{namespace}:probe"));
    }

    /// Begins the calls of a request; its deadline counts from now.
    pub fn session<'s>(&'s self, environment: &'s JsValue) -> Session<'s> {
        let line = match self.transport {
            Transport::Tcp(_) => Line::Tcp(TcpSession::default()),
            Transport::DurableObject { .. } => Line::Object,
            Transport::Rest { .. } => Line::Rest(RestSession::default()),
        };
        let deadline_us = host::now_us().saturating_add(self.deadline_us);
        Session { store: self, environment, deadline_us, line, gives_way: false }
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
        match (answered, &session.line) {
            (Ok(Ok(_)), _) | (Ok(Err(_)), Line::Object) => self.breaker.borrow_mut().success(),
            _ => self.breaker.borrow_mut().probe_failure(host::now_us()),
        }
    }

    /// Whether calls go out.
    pub fn is_asked(&self) -> bool {
        self.breaker.borrow().is_closed()
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
        match self.exchange(&tag, &command).await {
            Ok(result) => {
                let answers = matches!(result, Ok(_) | Err(StoreFailure::Refused(Refusal::NoScript)));
                // An object that answers is well, whatever it says of the store: it has a breaker of its own.
                self.store.count(answers || matches!(self.line, Line::Object));
                result
            }
            Err(Unanswered(failure)) => {
                self.store.count(false);
                Err(failure)
            }
        }
    }

    async fn exchange(&mut self, tag: &str, command: &[u8]) -> Result<Result<Reply, StoreFailure>, Unanswered> {
        let deadline_us = self.deadline_us;
        let answered = host::within(deadline_us, self.send(tag, command)).await;
        let result = match answered {
            Some(answered) => answered?,
            None => return Err(Unanswered(self.timed_out())),
        };
        Ok(result.and_then(|reply| if echoes(&reply, tag) { Ok(reply) } else { Err(StoreFailure::Unknown) }))
    }

    async fn send(&mut self, tag: &str, command: &[u8]) -> Result<Result<Reply, StoreFailure>, Unanswered> {
        let left_us = self.deadline_us.saturating_sub(host::now_us());
        match (&mut self.line, &self.store.transport) {
            (Line::Tcp(session), Transport::Tcp(server)) => Ok(session.ask(server, command).await),
            (Line::Rest(session), Transport::Rest { url, token }) => Ok(session.ask(url, token, command).await),
            (_, Transport::DurableObject { objects, location, .. }) => {
                let object = u32::try_from(host::random().checked_rem(u64::from(*objects)).unwrap_or(0)).unwrap_or(0);
                let (probe_key, gives_way) = (self.store.probe_key.borrow().clone(), self.gives_way);
                let question = Question { tag, command, wait_us: left_us, probe_key: &probe_key, gives_way };
                object::ask(self.environment, (object, location.as_deref()), question).await
            }
            _ => Ok(Err(StoreFailure::NotSent)),
        }
    }

    fn timed_out(&self) -> StoreFailure {
        match &self.line {
            Line::Tcp(session) => session.timed_out(),
            Line::Object | Line::Rest(_) => StoreFailure::Unknown,
        }
    }
}

/// Closes what the calls had opened. The platform itself closes what a request leaves that it has cancelled.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        match &mut self.line {
            Line::Tcp(session) => session.close(),
            Line::Object => {}
            Line::Rest(session) => session.close(),
        }
    }
}

/// A mark that no other command in flight has.
fn tag() -> String {
    format!("{:016x}", host::random())
}

/// A script's reply begins with the tag of the command that it answers.
fn echoes(reply: &Reply, tag: &str) -> bool {
    let Reply::Array(elements) = reply else { return false };
    matches!(elements.first(), Some(Reply::BulkString(echoed)) if echoed.as_slice() == tag.as_bytes())
}
