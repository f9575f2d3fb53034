//! What waits for the store on this worker's pipe: requests for their decisions, leases for theirs.

use std::cell::RefCell;
use std::rc::Rc;

use lockkeeper_core::call::Call;
use lockkeeper_core::lease::LeaseCall;

use crate::holding::Holding;
use crate::request::RequestState;

/// A command that waits for its reply.
pub enum Parked {
    /// A request waits for its decision.
    Decision(Undecided),
    /// The store is told of a lease.
    Lease(Box<Told>),
}

impl Parked {
    /// Appends the command.
    pub fn write(&self, tag: &str, out: &mut Vec<u8>) {
        match self {
            Parked::Decision(undecided) => undecided.call.write(tag, out),
            Parked::Lease(told) => told.call.write(tag, out),
        }
    }
}

/// A request on its way to a decision.
pub struct Undecided {
    /// Which request.
    pub waiter: Waiter,
    /// Its command.
    pub call: Call,
    /// When that was sent, in microseconds.
    pub sent_us: u64,
    /// It is decided by then.
    pub deadline_us: u64,
}

/// A request that waits.
#[derive(Clone)]
pub struct Waiter {
    /// Its stream.
    pub context_id: u32,
    /// Where it stands.
    pub request: Rc<RefCell<RequestState>>,
}

/// A command about a lease.
pub struct Told {
    /// The command.
    pub call: LeaseCall,
    /// What happens when it is answered.
    pub purpose: Purpose,
}

/// What an answer to a command about a lease is for.
#[derive(Clone)]
pub enum Purpose {
    /// The lease goes on, from `sent_us`.
    Renewal { holding: Rc<RefCell<Holding>>, sent_us: u64 },
    /// A response waits to be sent on; until `expires_us` the command is worth repeating.
    Response { waiter: Waiter, expires_us: u64 },
    /// Nobody waits; until `expires_us` it is worth repeating.
    Record { expires_us: u64 },
}
