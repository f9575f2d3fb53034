//! The end of the current turn of the event loop. Envoy hands out what a shared queue holds after the other events of a
//! turn, so a root that puts something into a queue of its own is called once those have been seen to.

use std::cell::Cell;

use crate::host;

/// One root's way to be called at the end of a turn.
#[derive(Default)]
pub struct TurnEnd {
    queue: Cell<Option<u32>>,
    asked: Cell<bool>,
}

impl TurnEnd {
    /// Registers the queue for the root that is being called. Its name is random: every worker needs its own, and whoever
    /// registers a name first is not the one who is called.
    pub fn register(&self) {
        let name = host::random_bytes::<16>();
        self.queue.set(name.and_then(|name| host::register_queue(&name)).ok());
    }

    /// Asks to be called at the end of this turn, by `on_queue_ready`; false when that cannot be had.
    pub fn ask(&self) -> bool {
        if !self.asked.get() {
            let is_queued = |queue| host::enqueue(queue, &[]).is_ok();
            self.asked.set(self.queue.get().is_some_and(is_queued));
        }
        self.asked.get()
    }

    /// The end has come, or time has passed without it: the next one is asked for anew.
    pub fn reached(&self) {
        if let (true, Some(queue)) = (self.asked.take(), self.queue.get()) {
            // What it holds has done its work.
            while let Ok(Some(_)) = host::dequeue(queue) {}
        }
    }
}
