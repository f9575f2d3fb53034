//! One worker's gateway to the store: drives the core's pipe and steps with the host's streams, clock and shared data.

mod bodies;
mod leases;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Weak;
use std::time::Duration;

use lockkeeper_core::admission::{Arrival, Body};
use lockkeeper_core::breaker::BreakerConfig;
use lockkeeper_core::call::Call;
use lockkeeper_core::claim::Owner;
use lockkeeper_core::decision::Decision;
use lockkeeper_core::engine::{Engine, NeedBody, Step};
use lockkeeper_core::greeting::Greeting;
use lockkeeper_core::host_config::{HostConfig, PluginConfig};
use lockkeeper_core::local_call::LocalCall;
use lockkeeper_core::pipe::{Connect, Moment, Pipe, PipeConfig, Settled, Submission};
use lockkeeper_core::resp::Reply;
use lockkeeper_core::store::StoreFailure;

use crate::bridge::Bridge;
use crate::holding::Holding;
use crate::host;
use crate::local::LocalTable;
use crate::local_claims::LocalClaims;
use crate::metrics::Metrics;
use crate::outbox::Outbox;
use crate::parked::{Parked, Undecided, Waiter};
use crate::request::RequestState;
use crate::timers::Timers;
use crate::turn::TurnEnd;

/// The most calls in flight on one worker's pipe.
const IN_FLIGHT_MAX: usize = 4_096;
/// The most requests resumed or answered in one callback. Envoy carries them out one inside the other, and a response
/// that passes this filter again costs stack each time: some 700 of them overflow it and kill the VM.
const RESUMED_AT_ONCE_MAX: usize = 128;
/// What is left of a longer backlog goes on with the next tick, this soon.
const BACKLOG_TICK_US: u64 = 1_000;
/// However far the store is, the end of the turn is near.
const COALESCE_ROUND_TRIP_MAX_US: u64 = u64::MAX;
/// The first and the longest pause between attempts to open the pipe.
const RECONNECT_PAUSE_US: (u64, u64) = (25_000, 500_000);
/// A pipe that owes a reply for this long is replaced.
const STUCK_AFTER_US: u64 = 500_000;

/// Everything that lives as long as the root context.
pub struct Gateway {
    context_id: u32,
    engine: Engine,
    config: HostConfig,
    pipe: RefCell<Pipe<Parked>>,
    backlog: RefCell<VecDeque<(Parked, Result<Reply, StoreFailure>)>>,
    stream: Cell<Option<u32>>,
    tick_us: Cell<u64>,
    turn_end: TurnEnd,
    timers: RefCell<Timers>,
    holdings: RefCell<Vec<Weak<RefCell<Holding>>>>,
    /// When the tick must look at the first of them; there are too many to ask them all at each event.
    holdings_at_us: Cell<Option<u64>>,
    outbox: RefCell<Outbox>,
    held_bodies: Cell<usize>,
    /// Whether bodies come to this filter, once that is known.
    bodies_come: Cell<Option<bool>>,
    fence_floor: Cell<u64>,
    local: LocalTable,
    local_claims: LocalClaims,
    metrics: Metrics,
    retired: Cell<bool>,
}

/// What became of a request for now.
pub enum Progress {
    /// It waits for the store, or for its turn.
    Waiting,
    /// It waits for its body.
    NeedBody(NeedBody),
    /// It is decided, by a command that was sent then, in microseconds.
    Decided(Decision, u64),
}

impl Gateway {
    /// A gateway with a closed pipe: it opens when the first request asks, and says `greeting` first.
    pub fn new(context_id: u32, config: PluginConfig, greeting: Greeting) -> Gateway {
        let PluginConfig { host: config, policies } = config;
        let seed = host::random_bytes().map_or_else(|_| host::monotonic_us(), u64::from_le_bytes);
        let pipe_config = PipeConfig {
            coalesce_above: config.coalesce_above,
            coalesce_round_trip_max_us: COALESCE_ROUND_TRIP_MAX_US,
            in_flight_max: IN_FLIGHT_MAX,
            probe_deadline_us: config.deadline_us,
            stuck_after_us: STUCK_AFTER_US,
            reconnect_pause_us: RECONNECT_PAUSE_US,
            waits_to_reconnect: true,
            greeting,
            probe_key: format!("{}:probe", policies.namespace),
            breaker: BreakerConfig::default(),
        };
        Gateway {
            context_id,
            local: LocalTable::new(config.local_sets),
            local_claims: LocalClaims::new(config.local_claim_sets, &policies),
            metrics: Metrics::define(&policies),
            engine: Engine::new(policies),
            config,
            pipe: RefCell::new(Pipe::new(pipe_config, seed)),
            backlog: RefCell::default(),
            stream: Cell::new(None),
            tick_us: Cell::new(u64::MAX),
            turn_end: TurnEnd::default(),
            timers: RefCell::default(),
            holdings: RefCell::default(),
            holdings_at_us: Cell::new(None),
            outbox: RefCell::default(),
            held_bodies: Cell::new(0),
            bodies_come: Cell::new(None),
            fence_floor: Cell::new(0),
            retired: Cell::new(false),
        }
    }

    /// Starts the tick: without it nothing is told to the host before the first request.
    pub fn start(&self) {
        self.turn_end.register();
        self.tick_sooner();
    }

    /// The engine with the policies.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The host configuration.
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// What this host knows of a request that may come to hold something.
    pub fn arrival(&self, body: Body) -> Arrival {
        let owner = host::random_bytes().ok().map(Owner::new);
        Arrival { owner, floor: self.fence_floor.get(), body }
    }

    /// Goes through the steps of a request, within one of its own callbacks, until it is decided or waits.
    pub fn begin(&self, step: Step, waiter: &Waiter) -> Progress {
        let now_us = host::monotonic_us();
        let progress = self.advance(step, now_us, now_us.saturating_add(self.config.deadline_us), waiter);
        if let Progress::Waiting = progress {
            self.flush_soon();
        }
        progress
    }

    fn advance(&self, mut step: Step, now_us: u64, deadline_us: u64, waiter: &Waiter) -> Progress {
        loop {
            step = match step {
                Step::Decide(decision) => {
                    let releases = decision.claimed.iter().flat_map(|claimed| &claimed.releases);
                    self.tell_all(releases, now_us);
                    return Progress::Decided(decision, now_us);
                }
                Step::Local(local) => self.decide_locally(local, now_us),
                Step::LocalClaims(claims) => self.local_claims.decide(claims, &self.metrics),
                Step::NeedBody(need) => return Progress::NeedBody(need),
                Step::WaitUntil(wait) => {
                    let at_us = now_us.saturating_add(wait.after_us());
                    self.timers.borrow_mut().wait(at_us, wait, waiter.clone());
                    self.tick_sooner();
                    return Progress::Waiting;
                }
                Step::Call(mut call) => {
                    call.raise_floor(self.fence_floor.get());
                    let call = self.spare_upload(call, now_us);
                    let undecided = Undecided { waiter: waiter.clone(), call, sent_us: now_us, deadline_us };
                    match self.submit(Parked::Decision(undecided), now_us, deadline_us) {
                        Ok(()) => return Progress::Waiting,
                        Err(Parked::Decision(Undecided { call, .. })) => {
                            self.metrics.store_failure(&StoreFailure::NotSent);
                            call.resume(Err(StoreFailure::NotSent))
                        }
                        Err(Parked::Lease(_)) => return Progress::Waiting,
                    }
                }
                // The engine has no other steps.
                _ => return Progress::Waiting,
            };
        }
    }

    fn spare_upload(&self, call: Call, now_us: u64) -> Call {
        let spares = call.is_upload() && !self.pipe.borrow_mut().takes_upload(now_us);
        if spares { call.spare_upload() } else { call }
    }

    fn submit(&self, parked: Parked, now_us: u64, deadline_us: u64) -> Result<(), Parked> {
        let is_bulky = matches!(&parked, Parked::Lease(told) if told.call.is_bulky());
        let submission = Submission::new(now_us, deadline_us).bulky(is_bulky);
        let submitted = self.pipe.borrow_mut().submit(parked, submission, Parked::write);
        // A refused call still asks for the connection: the tick must come soon enough to open it.
        self.tick_sooner();
        submitted
    }

    fn decide_locally(&self, call: LocalCall, now_us: u64) -> Step {
        let decision = self.local.decide(&call, now_us, &self.metrics);
        call.resume(&decision)
    }

    /// Takes what came over the pipe.
    pub fn received(&self, token: u32, bytes: &[u8]) {
        if self.stream.get() != Some(token) {
            return;
        }
        let now_us = host::monotonic_us();
        let settled = self.pipe.borrow_mut().received(bytes, now_us);
        self.settle(settled);
        self.after_event(now_us);
    }

    /// The pipe was closed by the other side, or could not be opened.
    pub fn stream_closed(&self, token: u32, status: u32) {
        if self.stream.get() != Some(token) {
            return;
        }
        // A store may close what is not used.
        if self.is_news() && self.pipe.borrow().is_owed() {
            log::info!("lockkeeper: the pipe to the store closed with gRPC status {status}");
        }
        self.stream.set(None);
        let now_us = host::monotonic_us();
        let settled = self.pipe.borrow_mut().closed(now_us);
        self.settle(settled);
        self.after_event(now_us);
    }

    /// Keeps deadlines and the connection.
    pub fn tick(&self) {
        self.turn_end.reached();
        let now_us = host::monotonic_us();
        let expired = self.pipe.borrow_mut().expire(now_us);
        self.settle(expired);
        self.maintain(now_us);
        self.keep_leases(now_us);
        self.push_outcomes(now_us);
        self.wake(now_us);
        self.after_event(now_us);
        self.metrics.flush();
        let tick_us = self.wanted_tick_us();
        if tick_us > self.tick_us.get() {
            self.set_tick(tick_us);
        }
    }

    fn maintain(&self, now_us: u64) {
        let connect = self.pipe.borrow_mut().maintain(now_us);
        match connect {
            Connect::No => {}
            Connect::Open => self.open(now_us),
            Connect::Close => self.close(now_us),
        }
    }

    fn open(&self, now_us: u64) {
        match self.open_stream() {
            Some(token) => {
                self.stream.set(Some(token));
                self.pipe.borrow_mut().opened(now_us);
            }
            None => {
                let settled = self.pipe.borrow_mut().closed(now_us);
                self.settle(settled);
            }
        }
    }

    fn open_stream(&self) -> Option<u32> {
        let cluster = &self.config.store_cluster;
        if Bridge::is_in_this_vm() {
            if self.is_news() {
                log::error!(
                    "lockkeeper: no pipe: resp_bridge runs in the VM of the filter; give resp_bridge another vm_id"
                );
            }
            return None;
        }
        let opened = host::open_stream(cluster);
        if let (Err(error), true) = (&opened, self.is_news()) {
            log::warn!("lockkeeper: cannot open a pipe to cluster {cluster} (status {})", error.0);
        }
        opened.ok()
    }

    /// Whether what befalls the pipe is worth a line. Once the breaker is open, which is one, attempts go on twice a second.
    fn is_news(&self) -> bool {
        self.pipe.borrow().breaker_is_closed()
    }

    fn close(&self, now_us: u64) {
        if let Some(token) = self.stream.take() {
            // Gone already, or gone now: both are what we want.
            let _ = host::cancel_stream(token);
        }
        let settled = self.pipe.borrow_mut().closed(now_us);
        self.settle(settled);
    }

    /// The other events of this turn of the event loop have been seen to: what they submitted leaves together.
    pub fn turn_ends(&self) {
        self.turn_end.reached();
        self.flush(Moment::Flush);
    }

    /// Sends what was submitted: at once, or at the end of the turn when much is in flight.
    fn flush_soon(&self) {
        self.flush(Moment::Submitted);
        if self.pipe.borrow().holds_back() && !self.turn_end.ask() {
            self.flush(Moment::Flush);
        }
    }

    fn flush(&self, moment: Moment) {
        let output = self.pipe.borrow_mut().output(moment);
        if let (Some(token), false) = (self.stream.get(), output.is_empty()) {
            // A failed send ends in `on_grpc_stream_close` or in the deadlines of what was sent.
            let _ = host::send_on_stream(token, &output);
        }
    }

    /// Counts what was settled and queues it for [`Gateway::work_off`].
    fn settle(&self, settled: Vec<Settled<Parked>>) {
        let mut answers = settled.iter().filter(|one| one.result.is_ok());
        if let Some(first) = answers.next() {
            let count = answers.count().saturating_add(1);
            self.metrics.store_answers(u64::try_from(count).unwrap_or(u64::MAX), first.elapsed_us);
        }
        for Settled { waiter, result, .. } in settled {
            if let Err(failure) = &result {
                self.metrics.store_failure(failure);
            }
            self.backlog.borrow_mut().push_back((waiter, result));
        }
    }

    /// Goes on with as many settled requests as one callback can bear.
    fn work_off(&self, now_us: u64) {
        let mut resumed = 0_usize;
        while resumed < RESUMED_AT_ONCE_MAX {
            let Some((parked, result)) = self.backlog.borrow_mut().pop_front() else { break };
            if self.resume(parked, result, now_us) {
                resumed = resumed.saturating_add(1);
            }
        }
        if resumed > 0 {
            // The calls that follow in this callback act on the root again.
            let _ = host::set_effective_context(self.context_id);
        }
    }

    /// Goes on with what was settled; true when that may have resumed or answered a stream.
    fn resume(&self, parked: Parked, result: Result<Reply, StoreFailure>, now_us: u64) -> bool {
        match parked {
            Parked::Decision(undecided) => self.decide(undecided, result, now_us),
            Parked::Lease(told) => self.told(*told, result, now_us),
        }
    }

    fn decide(&self, undecided: Undecided, result: Result<Reply, StoreFailure>, now_us: u64) -> bool {
        let Undecided { waiter, call, sent_us, deadline_us } = undecided;
        if !waiter.request.borrow().is_waiting() {
            self.give_back(call, now_us);
            return false;
        }
        // The store or this process stood still: what the reply grants may be another's by now.
        let has_lapsed = now_us.saturating_sub(sent_us) >= call.lapses_after_us();
        let result = if has_lapsed { Err(StoreFailure::Unknown) } else { result };
        if let Progress::Decided(decision, _) = self.advance(call.resume(result), now_us, deadline_us, &waiter) {
            RequestState::decide_later(&waiter, decision, self, sent_us);
        }
        true
    }

    /// The client went away: what its command may have taken is given back.
    fn give_back(&self, call: Call, now_us: u64) {
        if let Some(release) = call.abandon() {
            self.tell_all([&release], now_us);
        }
    }

    /// What every callback of the root ends with.
    fn after_event(&self, now_us: u64) {
        self.work_off(now_us);
        self.flush(Moment::Flush);
        let (counts, refusals, breaker_is_closed) = {
            let mut pipe = self.pipe.borrow_mut();
            (pipe.counts(), pipe.take_refusals(), pipe.breaker_is_closed())
        };
        self.metrics.refusals(refusals);
        self.metrics.pipe(counts, breaker_is_closed, now_us);
        self.tick_sooner();
        if self.retired.get() && self.is_idle() {
            let _ = host::root_done();
        }
    }

    /// Ticks sooner if the pipe needs it. Only the tick itself slows down again, so that steady traffic does not
    /// set the timer for each request.
    fn tick_sooner(&self) {
        let tick_us = self.wanted_tick_us();
        if tick_us < self.tick_us.get() {
            self.set_tick(tick_us);
        }
    }

    fn wanted_tick_us(&self) -> u64 {
        if !self.backlog.borrow().is_empty() {
            return BACKLOG_TICK_US;
        }
        let pipe_us = self.pipe.borrow().tick_us();
        match self.next_event_us() {
            None => pipe_us,
            Some(at_us) => pipe_us.min(at_us.saturating_sub(host::monotonic_us()).max(BACKLOG_TICK_US)),
        }
    }

    fn set_tick(&self, tick_us: u64) {
        self.tick_us.set(tick_us);
        host::set_tick_period(Duration::from_micros(tick_us));
    }

    /// The configuration was replaced: true when nothing is in flight any more.
    pub fn retire(&self) -> bool {
        self.retired.set(true);
        self.metrics.retire();
        self.is_idle()
    }

    fn is_idle(&self) -> bool {
        let is_told = self.outbox.borrow().is_empty() && self.live_holdings() == 0;
        self.pipe.borrow().unanswered() == 0 && self.backlog.borrow().is_empty() && is_told
    }
}
