//! The settings of a pipe, as its host chooses them.

use crate::breaker::BreakerConfig;
use crate::greeting::Greeting;

/// The pipe's settings.
#[derive(Clone, Debug)]
pub struct PipeConfig {
    /// With at least this many commands in flight, further ones wait for the next reply and go out together…
    pub coalesce_above: usize,
    /// …as long as the store is this near: the shortest recent round trip, in microseconds. Waiting costs up to one
    /// round trip, which is less than what single writes cost only when the store is close. A host that asks for the output
    /// again before the next reply, at the end of a turn of its event loop, need not mind the distance.
    pub coalesce_round_trip_max_us: u64,
    /// The most commands in flight, expired ones included. Above it calls are not sent.
    pub in_flight_max: usize,
    /// How long a probe may take, in microseconds.
    pub probe_deadline_us: u64,
    /// An expired command that stays unanswered for this long means that the connection is stuck: it is replaced.
    pub stuck_after_us: u64,
    /// The first and the longest pause between attempts to connect, in microseconds.
    pub reconnect_pause_us: (u64, u64),
    /// Whether a call waits for the next attempt to connect when that comes before its deadline, instead of failing at
    /// once.
    pub waits_to_reconnect: bool,
    /// What each connection says first.
    pub greeting: Greeting,
    /// The key that probes write.
    pub probe_key: String,
    /// The breaker's settings.
    pub breaker: BreakerConfig,
}
