//! One worker's gateway to the store: drives the core's pipe and steps with the host's streams, clock and shared data.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_core::breaker::BreakerConfig;
use lockkeeper_core::call::Call;
use lockkeeper_core::decision::Decision;
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::host_config::{HostConfig, PluginConfig};
use lockkeeper_core::local_call::LocalCall;
use lockkeeper_core::pipe::{Connect, Moment, Pipe, PipeConfig, Settled};
use lockkeeper_core::resp::Reply;
use lockkeeper_core::store::StoreFailure;

use crate::host;
use crate::local::LocalTable;
use crate::metrics::Metrics;
use crate::request::RequestState;

/// The most calls in flight on one worker's pipe.
const IN_FLIGHT_MAX: usize = 4_096;
/// The most requests resumed or answered in one callback. Envoy carries them out one inside the other, and a response
/// that passes this filter again costs stack each time: some 700 of them overflow it and kill the VM.
const RESUMED_AT_ONCE_MAX: usize = 128;
/// What is left of a longer backlog goes on with the next tick, this soon.
const BACKLOG_TICK_US: u64 = 1_000;
/// A store this near is asked in groups.
const COALESCE_ROUND_TRIP_MAX_US: u64 = 500;
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
    local: LocalTable,
    metrics: Metrics,
    retired: Cell<bool>,
}

/// A request that waits for the store.
pub struct Parked {
    pub context_id: u32,
    pub request: Rc<RefCell<RequestState>>,
    pub call: Call,
    pub deadline_us: u64,
}

/// What became of a request for now.
pub enum Progress {
    /// It waits for the store.
    Waiting,
    /// It is decided.
    Decided(Decision),
}

impl Gateway {
    /// A gateway with a closed pipe: it opens when the first request asks.
    pub fn new(context_id: u32, config: PluginConfig) -> Gateway {
        let PluginConfig { host: config, policies } = config;
        let seed = host::random_bytes().map_or_else(|_| host::monotonic_us(), u64::from_le_bytes);
        let pipe_config = PipeConfig {
            coalesce_above: config.coalesce_above,
            coalesce_round_trip_max_us: COALESCE_ROUND_TRIP_MAX_US,
            in_flight_max: IN_FLIGHT_MAX,
            probe_deadline_us: config.deadline_us,
            stuck_after_us: STUCK_AFTER_US,
            reconnect_pause_us: RECONNECT_PAUSE_US,
            probe_key: format!("{}:probe", policies.namespace),
            breaker: BreakerConfig::default(),
        };
        Gateway {
            context_id,
            local: LocalTable::new(config.local_sets),
            metrics: Metrics::define(&policies),
            engine: Engine::new(policies),
            config,
            pipe: RefCell::new(Pipe::new(pipe_config, seed)),
            backlog: RefCell::default(),
            stream: Cell::new(None),
            tick_us: Cell::new(u64::MAX),
            retired: Cell::new(false),
        }
    }

    /// Starts the tick: without it nothing is told to the host before the first request.
    pub fn start(&self) {
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

    /// Goes through the steps of a request that has just begun, until it is decided or waits for the store.
    pub fn begin(&self, step: Step, context_id: u32, request: &Rc<RefCell<RequestState>>) -> Progress {
        let now_us = host::monotonic_us();
        let deadline_us = now_us.saturating_add(self.config.deadline_us);
        let park = |call| Parked { context_id, request: Rc::clone(request), call, deadline_us };
        let progress = self.advance(step, now_us, park);
        if let Progress::Waiting = progress {
            self.flush(Moment::Submitted);
        }
        progress
    }

    fn advance(&self, mut step: Step, now_us: u64, park: impl Fn(Call) -> Parked) -> Progress {
        loop {
            step = match step {
                Step::Decide(decision) => return Progress::Decided(decision),
                Step::Local(local) => self.decide_locally(local),
                Step::Call(call) => match self.submit(park(self.spare_upload(call, now_us)), now_us) {
                    Ok(()) => return Progress::Waiting,
                    Err(parked) => {
                        self.metrics.store_failure(&StoreFailure::NotSent);
                        parked.call.resume(Err(StoreFailure::NotSent))
                    }
                },
                // The engine has no other steps for policies that only limit.
                _ => return Progress::Waiting,
            };
        }
    }

    fn spare_upload(&self, call: Call, now_us: u64) -> Call {
        let spares = call.is_upload() && !self.pipe.borrow_mut().takes_upload(now_us);
        if spares { call.spare_upload() } else { call }
    }

    fn submit(&self, parked: Parked, now_us: u64) -> Result<(), Parked> {
        let deadline_us = parked.deadline_us;
        let write = |parked: &Parked, tag: &str, out: &mut Vec<u8>| parked.call.write(tag, out);
        let submitted = self.pipe.borrow_mut().submit(parked, now_us, deadline_us, write);
        // A refused call still asks for the connection: the tick must come soon enough to open it.
        self.tick_sooner();
        submitted
    }

    fn decide_locally(&self, call: LocalCall) -> Step {
        let decision = self.local.decide(&call, &self.metrics);
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
        log::info!("lockkeeper: the pipe to the store closed with gRPC status {status}");
        self.stream.set(None);
        let now_us = host::monotonic_us();
        let settled = self.pipe.borrow_mut().closed(now_us);
        self.settle(settled);
        self.after_event(now_us);
    }

    /// Keeps deadlines and the connection.
    pub fn tick(&self) {
        let now_us = host::monotonic_us();
        let expired = self.pipe.borrow_mut().expire(now_us);
        self.settle(expired);
        self.maintain(now_us);
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
        match host::open_stream(&self.config.store_cluster) {
            Ok(token) => {
                self.stream.set(Some(token));
                self.pipe.borrow_mut().opened();
            }
            Err(error) => {
                log::warn!(
                    "lockkeeper: cannot open a pipe to cluster {} (status {})",
                    self.config.store_cluster,
                    error.0
                );
                let settled = self.pipe.borrow_mut().closed(now_us);
                self.settle(settled);
            }
        }
    }

    fn close(&self, now_us: u64) {
        if let Some(token) = self.stream.take() {
            // Gone already, or gone now: both are what we want.
            let _ = host::cancel_stream(token);
        }
        let settled = self.pipe.borrow_mut().closed(now_us);
        self.settle(settled);
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
            let Some((waiter, result)) = self.backlog.borrow_mut().pop_front() else { break };
            if waiter.request.borrow().is_waiting() {
                resumed = resumed.saturating_add(1);
                self.resume(waiter, result, now_us);
            }
        }
        if resumed > 0 {
            // The calls that follow in this callback act on the root again.
            let _ = host::set_effective_context(self.context_id);
        }
    }

    fn resume(&self, waiter: Parked, result: Result<Reply, StoreFailure>, now_us: u64) {
        let Parked { context_id, request, call, deadline_us } = waiter;
        let park = |call| Parked { context_id, request: Rc::clone(&request), call, deadline_us };
        if let Progress::Decided(decision) = self.advance(call.resume(result), now_us, park) {
            RequestState::decide_later(&request, decision, self, context_id);
        }
    }

    /// What every callback of the root ends with.
    fn after_event(&self, now_us: u64) {
        self.work_off(now_us);
        self.flush(Moment::Flush);
        let (counts, breaker_is_closed) = {
            let pipe = self.pipe.borrow();
            (pipe.counts(), pipe.breaker_is_closed())
        };
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
        if self.backlog.borrow().is_empty() { self.pipe.borrow().tick_us() } else { BACKLOG_TICK_US }
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
        self.pipe.borrow().unanswered() == 0 && self.backlog.borrow().is_empty()
    }
}
