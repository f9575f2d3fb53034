//! What a request holds, on this platform: renewed by a timer while it runs, and told to the store until that confirms.

use std::cell::Cell;

use lockkeeper_core::lease::{Act, Keeper, Lease, LeaseCall, LeaseStep, Word};
use wasm_bindgen::JsValue;

use crate::host;
use crate::isolate::Isolate;
use crate::log::{self, LeaseEvent};

/// The first and the longest pause before a command is sent again.
const PAUSE_US: (u64, u64) = (100_000, 1_600_000);
/// What the store had in its queue may run long after we gave up on it: it is given back once more after this long.
const RELEASED_AGAIN_AFTER_US: u64 = 1_000_000;
/// How long a release is worth repeating when nothing is known of its lease.
const RELEASE_LASTS_US: u64 = 30_000_000;

/// The way to the store of a request that holds something.
#[derive(Clone, Copy)]
pub struct Teller<'r> {
    /// The isolate.
    pub isolate: &'r Isolate,
    /// The bindings.
    pub environment: &'r JsValue,
}

impl Teller<'_> {
    /// Tells once, whoever knows of the lease: the words for it, or the command that is not known to have happened.
    ///
    /// # Errors
    /// The command, to be sent again.
    async fn tell(&self, call: LeaseCall) -> Result<Vec<Word>, LeaseCall> {
        let table = &self.isolate.local_claims;
        match (call.keeper(), call.act()) {
            (Keeper::Instance, _) => Ok(table.tell(&call)),
            (Keeper::Store, _) => self.tell_store(call).await,
            (Keeper::Both, Act::Renew) => {
                table.tell(&call);
                self.tell_store(call).await
            }
            (Keeper::Both, Act::Complete | Act::Release) => {
                let told = self.tell_store(call.clone()).await;
                table.note(&call, told.as_deref().ok());
                told
            }
        }
    }

    async fn tell_store(&self, mut call: LeaseCall) -> Result<Vec<Word>, LeaseCall> {
        let mut session = self.isolate.store.session(self.environment);
        session.gives_way = call.is_bulky();
        loop {
            let result = session.insist(|tag, out| call.write(tag, out)).await;
            call = match call.resume(result) {
                LeaseStep::Call(call) => call,
                LeaseStep::Done(words) => return Ok(words),
                LeaseStep::Failed(call, _) => return Err(call),
            };
        }
    }

    /// Tells the first of these commands, once: the outcome, or the release of its key, that a response waits for. Gives
    /// back what must be told yet.
    pub async fn tell_first(&self, mut calls: Vec<LeaseCall>) -> Vec<LeaseCall> {
        // Nobody waits for a store that is known to fail.
        if self.isolate.store.is_asked() && !calls.is_empty() {
            let first = calls.remove(0);
            calls.extend(self.once(first).await);
        }
        calls
    }

    /// Tells the store what the isolate's own table alone knows.
    pub async fn push(&self) {
        for call in self.isolate.local_claims.sweep() {
            // What fails comes up again.
            self.once(call).await;
        }
    }

    async fn once(&self, call: LeaseCall) -> Option<LeaseCall> {
        match self.tell(call).await {
            Ok(words) => {
                if words.iter().any(|word| matches!(word, Word::Busy | Word::Lost | Word::Corrupt)) {
                    log::lease(LeaseEvent::Stale);
                }
                None
            }
            Err(call) => Some(call),
        }
    }

    /// Tells the store until it confirms all of it or the time is over.
    pub async fn tell_all(&self, mut calls: Vec<LeaseCall>, expires_us: u64) {
        let (mut pause_us, longest_us) = PAUSE_US;
        loop {
            let mut left = Vec::new();
            for call in calls {
                left.extend(self.once(call).await);
            }
            calls = left;
            let at_us = host::now_us().saturating_add(pause_us);
            if calls.is_empty() {
                return;
            }
            if at_us >= expires_us {
                return log::lease(LeaseEvent::GivenUp);
            }
            host::sleep_until(at_us).await;
            pause_us = pause_us.saturating_mul(2).min(longest_us);
        }
    }

    /// Gives back what may be held without anybody's wanting it.
    pub async fn give_back(&self, releases: Vec<LeaseCall>) {
        if releases.is_empty() {
            return;
        }
        let now_us = host::now_us();
        self.tell_all(releases.clone(), now_us.saturating_add(RELEASE_LASTS_US)).await;
        host::sleep_until(now_us.saturating_add(RELEASED_AGAIN_AFTER_US)).await;
        self.tell_all(releases, host::now_us().saturating_add(RELEASE_LASTS_US)).await;
    }

    /// Renews a lease that was granted by a command sent at `granted_us`, and notes when it lapses by this clock. Ends only
    /// when the lease is lost and the request is to be cancelled then.
    pub async fn keep(&self, lease: &Lease, granted_us: u64, lapses_us: &Cell<u64>) {
        let every_us = lease.renew_every_us();
        let last_us = granted_us.saturating_add(lease.renewed_for_us());
        let mut next_us = granted_us.saturating_add(every_us);
        loop {
            let event_us = if next_us < last_us { next_us.min(lapses_us.get()) } else { lapses_us.get() };
            host::sleep_until(event_us).await;
            let now_us = host::now_us();
            if lapses_us.get() <= now_us {
                break;
            }
            match self.tell(lease.renew()).await {
                Ok(words) if lease.is_lost_by(&words) => break,
                Ok(_) => {
                    lapses_us.set(now_us.saturating_add(lease.shortest_us()));
                    next_us = now_us.saturating_add(every_us);
                }
                Err(_) => next_us = host::now_us().saturating_add(PAUSE_US.0),
            }
        }
        log::lease(LeaseEvent::Lost);
        if !lease.cancels_when_lost() {
            std::future::pending::<()>().await;
        }
    }
}
