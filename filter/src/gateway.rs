//! One worker's gateway to the store: drives the core's pipe and steps with the host's streams, clock and shared data.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_core::breaker::BreakerConfig;
use lockkeeper_core::call::Call;
use lockkeeper_core::decision::Decision;
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::host_config::{HostConfig, PluginConfig};
use lockkeeper_core::local_call::LocalCall;
use lockkeeper_core::pipe::{Connect, Moment, Pipe, PipeConfig, Settled};
use lockkeeper_core::store::StoreFailure;

use crate::host;
use crate::local::LocalTable;
use crate::metrics::Metrics;
use crate::request::RequestState;

/// The most calls in flight on one worker's pipe.
const IN_FLIGHT_MAX: usize = 16_384;
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
            stream: Cell::new(None),
            tick_us: Cell::new(0),
            retired: Cell::new(false),
        }
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
            self.schedule();
        }
        progress
    }

    fn advance(&self, mut step: Step, now_us: u64, park: impl Fn(Call) -> Parked) -> Progress {
        loop {
            step = match step {
                Step::Decide(decision) => return Progress::Decided(decision),
                Step::Local(local) => self.decide_locally(local),
                Step::Call(call) => match self.submit(park(call), now_us) {
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

    fn submit(&self, parked: Parked, now_us: u64) -> Result<(), Parked> {
        let deadline_us = parked.deadline_us;
        let write = |parked: &Parked, tag: &str, out: &mut Vec<u8>| parked.call.write(tag, out);
        let submitted = self.pipe.borrow_mut().submit(parked, now_us, deadline_us, write);
        // A refused call still asks for the connection: the tick must come soon enough to open it.
        self.schedule();
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
        self.settle(settled, now_us);
        self.flush(Moment::Flush);
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
        self.settle(settled, now_us);
        self.after_event(now_us);
    }

    /// Keeps deadlines and the connection.
    pub fn tick(&self) {
        let now_us = host::monotonic_us();
        let expired = self.pipe.borrow_mut().expire(now_us);
        self.settle(expired, now_us);
        self.maintain(now_us);
        self.flush(Moment::Flush);
        self.after_event(now_us);
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
                log::warn!("lockkeeper: cannot open a pipe to cluster {} (status {})", self.config.store_cluster, error.0);
                let settled = self.pipe.borrow_mut().closed(now_us);
                self.settle(settled, now_us);
            }
        }
    }

    fn close(&self, now_us: u64) {
        if let Some(token) = self.stream.take() {
            // Gone already, or gone now: both are what we want.
            let _ = host::cancel_stream(token);
        }
        let settled = self.pipe.borrow_mut().closed(now_us);
        self.settle(settled, now_us);
    }

    fn flush(&self, moment: Moment) {
        let output = self.pipe.borrow_mut().output(moment);
        if let (Some(token), false) = (self.stream.get(), output.is_empty()) {
            // A failed send ends in `on_grpc_stream_close` or in the deadlines of what was sent.
            let _ = host::send_on_stream(token, &output);
        }
    }

    fn settle(&self, settled: Vec<Settled<Parked>>, now_us: u64) {
        for Settled { waiter, result, elapsed_us } in settled {
            match &result {
                Ok(_) => self.metrics.store_answer(elapsed_us),
                Err(failure) => self.metrics.store_failure(failure),
            }
            if waiter.request.borrow().is_waiting() {
                self.resume(waiter, result, now_us);
            }
        }
        // The calls that follow in this callback act on the root again.
        let _ = host::set_effective_context(self.context_id);
    }

    fn resume(&self, waiter: Parked, result: Result<lockkeeper_core::resp::Reply, StoreFailure>, now_us: u64) {
        let Parked { context_id, request, call, deadline_us } = waiter;
        let park = |call| Parked { context_id, request: Rc::clone(&request), call, deadline_us };
        if let Progress::Decided(decision) = self.advance(call.resume(result), now_us, park) {
            RequestState::decide_later(&request, decision, self, context_id);
        }
    }

    fn after_event(&self, now_us: u64) {
        let (counts, breaker_is_closed) = {
            let pipe = self.pipe.borrow();
            (pipe.counts(), pipe.breaker_is_closed())
        };
        self.metrics.pipe(counts, breaker_is_closed, now_us);
        self.schedule();
        if self.retired.get() && self.pipe.borrow().unanswered() == 0 {
            let _ = host::root_done();
        }
    }

    /// Ticks as often as the pipe needs.
    fn schedule(&self) {
        let tick_us = self.pipe.borrow().tick_us();
        if self.tick_us.replace(tick_us) != tick_us {
            host::set_tick_period(Duration::from_micros(tick_us));
        }
    }

    /// The configuration was replaced: true when nothing is in flight any more.
    pub fn retire(&self) -> bool {
        self.retired.set(true);
        self.metrics.retire();
        self.pipe.borrow().unanswered() == 0
    }
}
