//! The bodies that this worker holds while their fingerprints wait for them: how many bytes, and for how long.

use lockkeeper_core::engine::{Collected, NeedBody};

use super::{Gateway, Progress};
use crate::host;
use crate::parked::Waiter;

impl Gateway {
    /// Gives a request until the deadline to send its body.
    pub fn await_body(&self, waiter: Waiter) {
        let at_us = host::monotonic_us().saturating_add(self.config.body_deadline_us);
        self.timers.borrow_mut().body(at_us, waiter);
        self.tick_sooner();
    }

    /// Counts bytes that a request holds while its body comes in; false when there is no room for more.
    pub fn hold_bytes(&self, before: usize, now: usize) -> bool {
        let held = self.held_bodies.get().saturating_sub(before).saturating_add(now);
        let fits = held <= self.config.held_bodies_bytes || now <= before;
        if fits {
            self.held_bodies.set(held);
        }
        fits
    }

    /// Goes on with a request's body: in its own callback, or later.
    pub fn with_body(&self, need: NeedBody, body: Collected<'_>, waiter: &Waiter) -> Progress {
        self.begin(need.resume(body), waiter)
    }

    /// Bodies do come to this filter.
    pub fn sees_bodies(&self) {
        self.bodies_come.set(Some(true));
    }

    /// A body did not come in time. If none ever came, that is no client's fault, and said once.
    pub fn misses_body(&self) {
        if self.bodies_come.get().is_none() {
            self.bodies_come.set(Some(false));
            log::error!(
                "lockkeeper: no body has come to this filter yet, though its host configuration says reads_bodies; \
                 without allow_on_headers_stop_iteration: true in the filter's own configuration none ever does, and \
                 requests whose fingerprints need their bodies get 503"
            );
        }
    }

    /// Holds a request back at its headers, until it is decided, in the callback for them: nothing of it is buffered that
    /// Envoy does not want to buffer.
    pub fn pause_everything(&self, waiter: &Waiter) {
        if self.config.reads_bodies {
            // Refused, its body is held in Envoy's buffer, and one that is too large for it is answered by Envoy.
            let _ = host::pause_everything(self.context_id, waiter.context_id);
        }
    }
}
