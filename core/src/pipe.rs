//! One persistent, pipelined connection to the store, as a value: commands out in order, replies matched to them in
//! order and by tag, deadlines, reconnection and the breaker. The host moves the bytes and keeps the time.

mod config;
mod round_trip;
mod submission;
mod welcome;

use std::collections::VecDeque;

use crate::breaker::Breaker;
use crate::identity::hex;
use crate::resp::{Decoder, Reply, encode_command};
use crate::script;
use crate::store::{Refusal, StoreFailure};

pub use config::PipeConfig;
use round_trip::ShortestRoundTrip;
pub use submission::Submission;
use welcome::{Welcome, Welcomed};

/// Room for a command as it mostly is.
const COMMAND_BYTES: usize = 384;

/// What the host must do for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// Nothing.
    No,
    /// Open it, and before [`Pipe::maintain`] is called again, call [`Pipe::opened`] or [`Pipe::closed`].
    Open,
    /// Close it, and before [`Pipe::maintain`] is called again, call [`Pipe::closed`].
    Close,
}

/// When the host asks for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Right after a call was submitted: it may wait for others.
    Submitted,
    /// After a reply or on a tick: whatever has gathered goes out.
    Flush,
}

/// A settled command: who waited, and what came of it.
#[derive(Debug, PartialEq)]
pub struct Settled<T> {
    /// What the host parked.
    pub waiter: T,
    /// The reply, or why there is none.
    pub result: Result<Reply, StoreFailure>,
    /// Microseconds since it was submitted.
    pub elapsed_us: u64,
}

/// Counts since the pipe was made, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeCounts {
    /// Connections opened.
    pub opened: u64,
    /// Connections closed, by either side, and attempts to open one that failed.
    pub closed: u64,
    /// Replies that did not belong to the command at the head of the queue, and bytes that were no reply.
    pub desyncs: u64,
    /// Replies that came after their request had been answered.
    pub late: u64,
    /// Greetings that the store refused.
    pub refused: u64,
}

/// What the store refused of what no request waited for, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// The last probe.
    pub probe: Option<Refusal>,
    /// The last greeting.
    pub greeting: Option<Refusal>,
}

/// The pipe. `T` is what the host parks per command.
#[derive(Debug)]
pub struct Pipe<T> {
    config: PipeConfig,
    connection: Connection,
    wanted: bool,
    /// Until the store has accepted the greeting of this connection, nothing else is sent.
    welcome: Option<Welcome>,
    /// Not written yet, with their bytes.
    queued: VecDeque<(Slot<T>, Vec<u8>)>,
    /// The same for what is large: it is written behind whatever else is queued.
    bulky: VecDeque<(Slot<T>, Vec<u8>)>,
    /// Written, in the order of their replies.
    in_flight: VecDeque<Slot<T>>,
    round_trip: ShortestRoundTrip,
    decoder: Decoder,
    breaker: Breaker,
    tag_prefix: u32,
    tags: u32,
    uploaded_at_us: Option<u64>,
    counts: PipeCounts,
    refusals: Refusals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Closed { retry_at_us: u64, pause_us: u64 },
    Open(Life),
    Broken(Life),
}

/// What a connection has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    opened_us: u64,
    /// The store has said something on it that it was asked for.
    has_answered: bool,
    /// The pause after it, should it end now.
    pause_us: u64,
}

#[derive(Debug)]
struct Slot<T> {
    tag: String,
    waiter: Waiter<T>,
    submitted_us: u64,
    deadline_us: u64,
}

#[derive(Debug)]
enum Waiter<T> {
    Call(T),
    Probe,
    Expired,
}

impl<T> Pipe<T> {
    /// A closed pipe. `seed` is random: it makes tags differ between pipes and spreads the probes.
    pub fn new(config: PipeConfig, seed: u64) -> Pipe<T> {
        let breaker = Breaker::new(config.breaker, seed);
        let pause_us = config.reconnect_pause_us.0;
        Pipe {
            config,
            connection: Connection::Closed { retry_at_us: 0, pause_us },
            wanted: false,
            welcome: None,
            queued: VecDeque::new(),
            bulky: VecDeque::new(),
            in_flight: VecDeque::new(),
            round_trip: ShortestRoundTrip::default(),
            decoder: Decoder::default(),
            breaker,
            tag_prefix: (seed >> 32) as u32,
            tags: seed as u32,
            uploaded_at_us: None,
            counts: PipeCounts::default(),
            refusals: Refusals::default(),
        }
    }

    /// Queues one command, written by `write(waiter, tag, out)`; gives `waiter` back when it cannot be sent soon. A
    /// call that comes while the connection is about to open waits for it.
    pub fn submit(
        &mut self,
        waiter: T,
        submission: Submission,
        write: impl FnOnce(&T, &str, &mut Vec<u8>),
    ) -> Result<(), T> {
        self.wanted = true;
        let Submission { now_us: submitted_us, deadline_us, tag, is_bulky } = submission;
        if !self.accepts_calls(submitted_us, deadline_us) || deadline_us <= submitted_us {
            return Err(waiter);
        }
        let tag = tag.unwrap_or_else(|| self.next_tag());
        let mut bytes = Vec::with_capacity(COMMAND_BYTES);
        write(&waiter, &tag, &mut bytes);
        let queue = if is_bulky { &mut self.bulky } else { &mut self.queued };
        queue.push_back((Slot { tag, waiter: Waiter::Call(waiter), submitted_us, deadline_us }, bytes));
        Ok(())
    }

    /// Probes write this key from now on.
    pub fn probe_at(&mut self, key: &str) {
        if self.config.probe_key != key {
            key.clone_into(&mut self.config.probe_key);
        }
    }

    /// Whether a call that the store answered with NOSCRIPT should carry the script's text. Of many that were in flight
    /// together one does: the others go out behind it on the same connection and find it loaded.
    pub fn takes_upload(&mut self, now_us: u64) -> bool {
        let pause_us = self.config.probe_deadline_us;
        let is_due = self.uploaded_at_us.is_none_or(|at_us| now_us.saturating_sub(at_us) >= pause_us);
        if is_due {
            self.uploaded_at_us = Some(now_us);
        }
        is_due
    }

    fn accepts_calls(&self, now_us: u64, deadline_us: u64) -> bool {
        let connected = match self.connection {
            Connection::Open(_) => true,
            Connection::Closed { retry_at_us, .. } if self.config.waits_to_reconnect => retry_at_us < deadline_us,
            Connection::Closed { retry_at_us, .. } => retry_at_us <= now_us,
            Connection::Broken(_) => false,
        };
        connected && self.breaker.is_closed() && self.unanswered() < self.config.in_flight_max
    }

    fn next_tag(&mut self) -> String {
        self.tags = self.tags.wrapping_add(1);
        let number = u64::from(self.tag_prefix) << 32 | u64::from(self.tags);
        hex(&number.to_be_bytes())
    }

    /// The bytes to send now, in one write. Empty when there are none or when they should wait for others.
    pub fn output(&mut self, moment: Moment) -> Vec<u8> {
        if let Some(welcome) = &mut self.welcome {
            return welcome.output();
        }
        if !self.is_open() || (moment == Moment::Submitted && self.coalesces()) {
            return Vec::new();
        }
        let mut output = Vec::new();
        for (slot, mut bytes) in self.queued.drain(..).chain(self.bulky.drain(..)) {
            if output.is_empty() {
                output = bytes;
            } else {
                output.append(&mut bytes);
            }
            self.in_flight.push_back(slot);
        }
        output
    }

    /// Whether something waits to leave though it could.
    pub fn holds_back(&self) -> bool {
        self.is_open() && self.welcome.is_none() && !(self.queued.is_empty() && self.bulky.is_empty())
    }

    fn coalesces(&self) -> bool {
        self.in_flight.len() >= self.config.coalesce_above
            && self.round_trip.shortest_us() <= self.config.coalesce_round_trip_max_us
    }

    /// Takes received bytes and returns what they settled. A connection that is not open is not listened to.
    pub fn received(&mut self, bytes: &[u8], now_us: u64) -> Vec<Settled<T>> {
        let mut settled = Vec::new();
        if self.is_open() {
            self.decoder.extend(bytes);
        }
        while self.is_open() {
            match self.decoder.next_reply() {
                Ok(None) => break,
                Ok(Some(reply)) if self.welcome.is_some() => settled.extend(self.welcomed(&reply, now_us)),
                Ok(Some(reply)) if self.answers_head(&reply) => {
                    let is_demoted = is_read_only(&reply);
                    settled.extend(self.settle_head(reply, now_us));
                    if is_demoted {
                        // A replica knows late what was charged, and cannot charge: nothing is decided by it.
                        self.breaker.trip(now_us);
                        settled.extend(self.break_connection(&StoreFailure::NotSent, now_us));
                    }
                }
                Ok(Some(_)) | Err(_) => settled.extend(self.desync(now_us)),
            }
        }
        settled
    }

    /// Takes a reply to the greeting. What waits behind a refused one was never sent, and fails as it did.
    fn welcomed(&mut self, reply: &Reply, now_us: u64) -> Vec<Settled<T>> {
        let welcomed = self.welcome.as_mut().map_or(Welcomed::Wholly, |welcome| welcome.take(reply));
        match welcomed {
            Welcomed::Not => Vec::new(),
            Welcomed::Wholly => {
                self.life().into_iter().for_each(|life| life.has_answered = true);
                self.welcome = None;
                Vec::new()
            }
            Welcomed::Refused(failure) => {
                self.counts.refused = self.counts.refused.saturating_add(1);
                self.refusals.greeting = failure.refusal();
                self.break_connection(&failure, now_us)
            }
            Welcomed::Desync => self.desync(now_us),
        }
    }

    fn desync(&mut self, now_us: u64) -> Vec<Settled<T>> {
        self.counts.desyncs = self.counts.desyncs.saturating_add(1);
        self.break_connection(&StoreFailure::NotSent, now_us)
    }

    fn life(&mut self) -> Option<&mut Life> {
        match &mut self.connection {
            Connection::Open(life) | Connection::Broken(life) => Some(life),
            Connection::Closed { .. } => None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.connection, Connection::Open(_))
    }

    /// A script's reply echoes the tag first; an error reply carries none and keeps its place.
    fn answers_head(&self, reply: &Reply) -> bool {
        match (self.in_flight.front(), reply) {
            (None, _) => false,
            (Some(_), Reply::Error(_)) => true,
            (Some(slot), Reply::Array(elements)) => {
                matches!(elements.first(), Some(Reply::BulkString(tag)) if tag.as_slice() == slot.tag.as_bytes())
            }
            (Some(_), _) => false,
        }
    }

    fn settle_head(&mut self, reply: Reply, now_us: u64) -> Option<Settled<T>> {
        let slot = self.in_flight.pop_front()?;
        let elapsed_us = now_us.saturating_sub(slot.submitted_us);
        self.round_trip.measured(elapsed_us, now_us);
        let shortest_us = self.config.reconnect_pause_us.0;
        if let Some(life) = self.life() {
            life.has_answered = true;
            if !matches!(slot.waiter, Waiter::Probe) {
                life.pause_us = shortest_us;
            }
        }
        let result = match reply {
            Reply::Error(text) => Err(StoreFailure::of_error(&text)),
            reply => Ok(reply),
        };
        match slot.waiter {
            Waiter::Call(waiter) => {
                self.count_call(&result, now_us);
                Some(Settled { waiter, result, elapsed_us })
            }
            Waiter::Probe => {
                self.count_probe(&result, now_us);
                None
            }
            Waiter::Expired => {
                self.counts.late = self.counts.late.saturating_add(1);
                None
            }
        }
    }

    /// NOSCRIPT is an answer like any other: the store is well.
    fn count_call(&mut self, result: &Result<Reply, StoreFailure>, now_us: u64) {
        match result {
            Ok(_) | Err(StoreFailure::Refused(Refusal::NoScript)) => self.breaker_success(),
            Err(_) => self.breaker.failure(now_us),
        }
    }

    fn count_probe(&mut self, result: &Result<Reply, StoreFailure>, now_us: u64) {
        self.refusals.probe = result.as_ref().err().and_then(StoreFailure::refusal);
        match result {
            Ok(_) => self.breaker.success(),
            Err(_) => self.breaker.probe_failure(now_us),
        }
    }

    /// An answer to a call sent before the breaker opened does not close it; the probe does.
    fn breaker_success(&mut self) {
        if self.breaker.is_closed() {
            self.breaker.success();
        }
    }

    /// Settles what has passed its deadline. What was written keeps its slot, for the reply may still come; what was
    /// not is never sent.
    pub fn expire(&mut self, now_us: u64) -> Vec<Settled<T>> {
        let mut settled = Vec::new();
        for slot in &mut self.in_flight {
            if slot.deadline_us <= now_us {
                let waiter = std::mem::replace(&mut slot.waiter, Waiter::Expired);
                let elapsed_us = now_us.saturating_sub(slot.submitted_us);
                settled.extend(self.breaker.settle_failed(waiter, StoreFailure::Unknown, elapsed_us, now_us));
            }
        }
        for queue in [&mut self.queued, &mut self.bulky] {
            let (expired, waiting) =
                std::mem::take(queue).into_iter().partition(|(slot, _)| slot.deadline_us <= now_us);
            *queue = waiting;
            let expired: VecDeque<_> = expired;
            settled.extend(expired.into_iter().filter_map(|(slot, _)| {
                let elapsed_us = now_us.saturating_sub(slot.submitted_us);
                self.breaker.settle_failed(slot.waiter, StoreFailure::NotSent, elapsed_us, now_us)
            }));
        }
        settled
    }

    /// Keeps the connection: call it on every tick, then do what it says.
    pub fn maintain(&mut self, now_us: u64) -> Connect {
        match self.connection {
            Connection::Closed { retry_at_us, .. } if self.wanted && retry_at_us <= now_us => Connect::Open,
            Connection::Closed { .. } => Connect::No,
            Connection::Broken(_) => Connect::Close,
            Connection::Open(_) if self.is_stuck(now_us) => Connect::Close,
            Connection::Open(_) => {
                self.probe(now_us);
                Connect::No
            }
        }
    }

    fn is_stuck(&self, now_us: u64) -> bool {
        let stuck = |slot: &Slot<T>| slot.deadline_us.saturating_add(self.config.stuck_after_us) <= now_us;
        self.in_flight.front().is_some_and(stuck)
            || self.welcome.as_ref().is_some_and(|welcome| welcome.is_stuck(now_us))
    }

    /// Asks a store that failed whether it is back; and one that nobody asks, on a new connection, whether it is there at
    /// all, since a store that closes idle connections looks like one that has gone.
    fn probe(&mut self, now_us: u64) {
        if self.breaker.take_probe(now_us) {
            self.send_probe(now_us, now_us.saturating_add(self.config.probe_deadline_us));
        } else if self.is_unknown() {
            self.send_probe(now_us, self.patient_us(now_us));
        }
    }

    fn is_unknown(&self) -> bool {
        let has_not_answered = matches!(self.connection, Connection::Open(Life { has_answered: false, .. }));
        has_not_answered && self.welcome.is_none() && self.breaker.is_closed() && self.unanswered() == 0
    }

    fn send_probe(&mut self, now_us: u64, deadline_us: u64) {
        let (tag, text) = (self.next_tag(), script::PROBE.text());
        let arguments: [&[u8]; 5] = [b"EVAL", text.as_bytes(), b"1", self.config.probe_key.as_bytes(), tag.as_bytes()];
        let mut bytes = Vec::new();
        encode_command(&arguments, &mut bytes);
        self.queued.push_back((Slot { tag, waiter: Waiter::Probe, submitted_us: now_us, deadline_us }, bytes));
    }

    /// The connection is open.
    pub fn opened(&mut self, now_us: u64) {
        self.counts.opened = self.counts.opened.saturating_add(1);
        let pause_us = self.next_pause_us(now_us);
        self.connection = Connection::Open(Life { opened_us: now_us, has_answered: false, pause_us });
        self.welcome = Welcome::of(&self.config.greeting, self.patient_us(now_us));
    }

    /// Until when a new connection may take for its first answer.
    fn patient_us(&self, now_us: u64) -> u64 {
        now_us.saturating_add(self.config.probe_deadline_us).saturating_add(self.config.stuck_after_us)
    }

    /// The connection is gone, or could not be opened: everything in flight has an unknown outcome. One on which nothing
    /// was answered counts as a failure, though nobody may have waited: so an outage is noticed without traffic, too.
    pub fn closed(&mut self, now_us: u64) -> Vec<Settled<T>> {
        if !self.life().is_some_and(|life| life.has_answered) {
            self.breaker.failure(now_us);
        }
        let pause_us = self.next_pause_us(now_us);
        self.counts.closed = self.counts.closed.saturating_add(1);
        self.connection =
            Connection::Closed { retry_at_us: now_us.saturating_add(pause_us), pause_us: self.longer(pause_us) };
        self.abandon_all(&StoreFailure::NotSent, now_us)
    }

    /// The pause before the next attempt, should this connection end now. It starts over with the short one after a
    /// connection that answered a call, or answered and lasted; a store that answers and closes at once is not to be asked
    /// all the time.
    fn next_pause_us(&self, now_us: u64) -> u64 {
        let (shortest_us, longest_us) = self.config.reconnect_pause_us;
        match self.connection {
            Connection::Closed { pause_us, .. } => pause_us,
            Connection::Open(life) | Connection::Broken(life) => {
                let has_lasted = now_us.saturating_sub(life.opened_us) >= longest_us;
                if life.has_answered && has_lasted { shortest_us } else { life.pause_us }
            }
        }
    }

    fn longer(&self, pause_us: u64) -> u64 {
        pause_us.saturating_mul(2).min(self.config.reconnect_pause_us.1)
    }

    fn break_connection(&mut self, of_unsent: &StoreFailure, now_us: u64) -> Vec<Settled<T>> {
        if let Connection::Open(life) = self.connection {
            self.connection = Connection::Broken(life);
        }
        self.abandon_all(of_unsent, now_us)
    }

    /// What had not been written yet was certainly not sent: it fails with `of_unsent`.
    fn abandon_all(&mut self, of_unsent: &StoreFailure, now_us: u64) -> Vec<Settled<T>> {
        self.welcome = None;
        self.decoder.clear();
        let sent = std::mem::take(&mut self.in_flight).into_iter().map(|slot| (slot, StoreFailure::Unknown));
        let queued = std::mem::take(&mut self.queued).into_iter().chain(std::mem::take(&mut self.bulky));
        let queued = queued.map(|(slot, _)| (slot, of_unsent.clone()));
        sent.chain(queued)
            .filter_map(|(slot, failure)| {
                let elapsed_us = now_us.saturating_sub(slot.submitted_us);
                self.breaker.settle_failed(slot.waiter, failure, elapsed_us, now_us)
            })
            .collect()
    }

    /// How long the host may sleep before the next tick, in microseconds.
    pub fn tick_us(&self) -> u64 {
        let unexpired = self.in_flight.iter().any(|slot| !matches!(slot.waiter, Waiter::Expired));
        let waiting = unexpired || !self.queued.is_empty() || !self.bulky.is_empty();
        match self.connection {
            Connection::Broken(_) => TICK_BROKEN_US,
            _ if waiting => TICK_IN_FLIGHT_US,
            Connection::Open(Life { has_answered: true, .. }) if self.is_healthy() && self.in_flight.is_empty() => {
                TICK_IDLE_US
            }
            Connection::Closed { .. } if !self.wanted => TICK_IDLE_US,
            _ => TICK_RECOVERING_US,
        }
    }

    /// Whether every call goes out: the connection is open, the store has accepted the greeting, and the breaker is closed.
    pub fn is_healthy(&self) -> bool {
        self.is_open() && self.welcome.is_none() && self.breaker.is_closed()
    }

    /// Whether the breaker lets calls pass.
    pub fn breaker_is_closed(&self) -> bool {
        self.breaker.is_closed()
    }

    /// What was refused since the last time.
    pub fn take_refusals(&mut self) -> Refusals {
        std::mem::take(&mut self.refusals)
    }

    /// Whether the store owes something on this connection: a reply, or the first sign that it is there.
    pub fn is_owed(&self) -> bool {
        let has_answered = matches!(self.connection, Connection::Open(Life { has_answered: true, .. }));
        !has_answered || self.unanswered() > 0
    }

    /// Commands whose reply has not come: queued, in flight and expired ones.
    pub fn unanswered(&self) -> usize {
        self.in_flight.len().saturating_add(self.queued.len()).saturating_add(self.bulky.len())
    }

    /// Counts since the pipe was made.
    pub fn counts(&self) -> PipeCounts {
        self.counts
    }
}

/// A demoted primary keeps the connection and refuses writes for ever: only a new connection can find its successor.
fn is_read_only(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if StoreFailure::of_error(text) == StoreFailure::Refused(Refusal::ReadOnly))
}

impl Breaker {
    /// Counts a failed command and hands its waiter back, if one still waits.
    fn settle_failed<T>(
        &mut self,
        waiter: Waiter<T>,
        failure: StoreFailure,
        elapsed_us: u64,
        now_us: u64,
    ) -> Option<Settled<T>> {
        match waiter {
            Waiter::Call(waiter) => {
                self.failure(now_us);
                Some(Settled { waiter, result: Err(failure), elapsed_us })
            }
            Waiter::Probe => {
                self.probe_failure(now_us);
                None
            }
            Waiter::Expired => None,
        }
    }
}

/// Tick while a call waits: bounds how late a deadline is noticed.
const TICK_IN_FLIGHT_US: u64 = 5_000;
/// Tick while the connection is to be closed: calls are refused until it is.
const TICK_BROKEN_US: u64 = 1_000;
/// Tick while the connection is closed or the breaker open.
const TICK_RECOVERING_US: u64 = 25_000;
/// Tick while there is nothing to do.
const TICK_IDLE_US: u64 = 1_000_000;

#[cfg(test)]
mod tests;
