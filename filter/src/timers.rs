//! Requests that wait for time to pass: for their turn at a lock, or for their body.

use lockkeeper_core::engine::Wait;

use crate::parked::Waiter;

/// The requests that wait.
#[derive(Default)]
pub struct Timers {
    waits: Vec<(u64, Wait, Waiter)>,
    bodies: Vec<(u64, Waiter)>,
}

impl Timers {
    /// A request asks the store again at `at_us`.
    pub fn wait(&mut self, at_us: u64, wait: Wait, waiter: Waiter) {
        self.waits.push((at_us, wait, waiter));
    }

    /// A request's body must be complete by `at_us`.
    pub fn body(&mut self, at_us: u64, waiter: Waiter) {
        self.bodies.push((at_us, waiter));
    }

    /// Takes out the waits that are over.
    pub fn waits_over(&mut self, now_us: u64) -> Vec<(Wait, Waiter)> {
        let (over, rest) = std::mem::take(&mut self.waits).into_iter().partition(|(at_us, ..)| *at_us <= now_us);
        self.waits = rest;
        let over: Vec<_> = over;
        over.into_iter().map(|(_, wait, waiter)| (wait, waiter)).collect()
    }

    /// Takes out the requests whose bodies are late, and forgets those whose bodies have come.
    pub fn bodies_late(&mut self, now_us: u64) -> Vec<Waiter> {
        self.bodies.retain(|(_, waiter)| waiter.request.borrow().needs_body());
        let (late, rest) = std::mem::take(&mut self.bodies).into_iter().partition(|(at_us, _)| *at_us <= now_us);
        self.bodies = rest;
        let late: Vec<_> = late;
        late.into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// When the next one is over.
    pub fn next_us(&self) -> Option<u64> {
        let bodies = self.bodies.iter().map(|(at_us, _)| *at_us);
        self.waits.iter().map(|(at_us, ..)| *at_us).chain(bodies).min()
    }
}
