//! A moment of the small world.

use lockkeeper_core::claim::record::Place;

/// Index of a request; each has an owner token of its own.
pub type Index = u8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// True time, which the store's clock may be off from.
    pub time_us: u64,
    pub store: Store,
    /// What a failover falls back to: the store before its last write.
    pub before: Option<Store>,
    pub requests: Vec<Request>,
    /// Commands on their way to the store, in no order.
    pub sent: Vec<Sent>,
    /// Replies on their way back, in no order.
    pub replies: Vec<Reply>,
    /// Writes on their way to the resource: request and fence.
    pub writes: Vec<(Index, u64)>,
    /// The highest fence that the resource has accepted.
    pub accepted: u64,
    /// The highest fence that was ever granted; after a failover, that anybody had heard of.
    pub granted: u64,
    /// The highest fence that a request has heard of.
    pub heard: u64,
    /// How many requests have reached the upstream.
    pub ran: u8,
    pub failovers: u8,
    pub clock_steps: u8,
    pub harm: Harm,
}

/// The store: what stands at the claim's keys, how far its clock is from true time, and, unknown to it, who was granted
/// the claim last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    pub place: Place,
    pub clock: i64,
    pub holder: Option<(Index, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    Idle,
    /// It has sent its begin, perhaps twice.
    Asking {
        again: bool,
    },
    /// It was granted a fence, and believes to hold the claim until then.
    Holding {
        fence: u64,
        until_us: u64,
        renewals: u8,
        ran: bool,
    },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sent {
    pub by: Index,
    pub command: Command,
    /// How often it may still arrive.
    pub copies: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Command {
    Begin { at_us: u64, floor: u64 },
    Renew { at_us: u64, fence: u64, lease_us: u64 },
    Complete { fence: u64 },
    Release { fence: Option<u64> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    /// The begin that was sent at `at_us` was granted.
    Granted { to: Index, at_us: u64, fence: u64 },
    /// The renewal that was sent at `at_us` was heard.
    Renewed { to: Index, at_us: u64, fence: u64 },
    /// There is nothing to hold.
    Refused { to: Index },
}

impl Reply {
    pub fn to(self) -> Index {
        match self {
            Reply::Granted { to, .. } | Reply::Renewed { to, .. } | Reply::Refused { to } => to,
        }
    }
}

/// What must not happen, once it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Harm {
    pub stale_changed: bool,
    pub finished_changed: bool,
    pub fence_fell: bool,
    pub resource_fell: bool,
}

impl State {
    /// Requests that believe to hold the claim.
    pub fn live(&self) -> usize {
        let live =
            |request: &&Request| matches!(request, Request::Holding { until_us, .. } if *until_us > self.time_us);
        self.requests.iter().filter(live).count()
    }

    /// The store's clock.
    pub fn store_us(&self) -> u64 {
        self.time_us.saturating_add_signed(self.store.clock)
    }
}
