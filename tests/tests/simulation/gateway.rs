//! One gateway: drives the pipe and the steps as the Envoy filter does.

use std::collections::HashMap;

use lockkeeper_core::breaker::BreakerConfig;
use lockkeeper_core::call::Call;
use lockkeeper_core::decision::Decision;
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::greeting::Greeting;
use lockkeeper_core::local::{LocalDecision, LocalStep, Swap, Table};
use lockkeeper_core::local_call::LocalCall;
use lockkeeper_core::pipe::{Connect, Moment, Pipe, PipeConfig, Settled, Submission};
use lockkeeper_core::resp::Reply;
use lockkeeper_core::store::StoreFailure;

use crate::network::Link;

pub const DEADLINE_US: u64 = 50_000;

/// A request that waits for the store.
pub struct Parked {
    pub request: usize,
    pub call: Call,
    pub deadline_us: u64,
}

/// What the world has to know of what a gateway did.
pub enum Happened {
    /// A request was decided.
    Decided { request: usize, decision: Decision },
    /// A command for a request was written, with this tag; an upload carries the script.
    Written { request: usize, tag: String, is_upload: bool },
    /// A request got a script's reply from the pipe.
    Replied { request: usize, reply: Reply },
    /// These bytes go to the store.
    Sent(Vec<u8>),
    /// A connection is wanted.
    Opens,
    /// The next tick comes after this time, and then each time.
    Ticks(u64),
}

pub struct Gateway {
    engine: Engine,
    pub pipe: Pipe<Parked>,
    pub link: Option<Link>,
    pub tick_us: u64,
    table: Table,
    shared: HashMap<String, (Vec<u8>, u32)>,
    happened: Vec<Happened>,
}

impl Gateway {
    pub fn new(engine: Engine, seed: u64) -> Gateway {
        let config = PipeConfig {
            coalesce_above: 16,
            coalesce_round_trip_max_us: 500,
            in_flight_max: 64,
            probe_deadline_us: DEADLINE_US,
            stuck_after_us: 500_000,
            reconnect_pause_us: (25_000, 500_000),
            waits_to_reconnect: false,
            greeting: Greeting::default(),
            probe_key: "sim:probe".into(),
            breaker: BreakerConfig::default(),
        };
        Gateway {
            engine,
            pipe: Pipe::new(config, seed),
            link: None,
            tick_us: u64::MAX,
            table: Table::new(16, [7; 16]),
            shared: HashMap::new(),
            happened: Vec::new(),
        }
    }

    pub fn happened(&mut self) -> Vec<Happened> {
        std::mem::take(&mut self.happened)
    }

    /// A request comes.
    pub fn begin(&mut self, request: usize, path: &str, client: &str, now_us: u64) {
        let selection = self.engine.select("GET", "api.example.com", path);
        let values = vec![Some(client.as_bytes().to_vec()); self.engine.attributes(&selection).len()];
        let step = self.engine.begin(&selection, &values);
        self.advance(step, request, now_us, now_us + DEADLINE_US);
        self.flush(Moment::Submitted);
        self.schedule();
    }

    fn advance(&mut self, mut step: Step, request: usize, now_us: u64, deadline_us: u64) {
        loop {
            step = match step {
                Step::Decide(decision) => {
                    self.happened.push(Happened::Decided { request, decision });
                    return;
                }
                Step::Local(local) => {
                    let decision = self.decide_locally(&local, now_us);
                    local.resume(&decision)
                }
                Step::Call(call) => {
                    let spares = call.is_upload() && !self.pipe.takes_upload(now_us);
                    let call = if spares { call.spare_upload() } else { call };
                    match self.submit(Parked { request, call, deadline_us }, now_us) {
                        Ok(()) => return,
                        Err(parked) => parked.call.resume(Err(StoreFailure::NotSent)),
                    }
                }
                other => panic!("{other:?} is no step of these policies"),
            };
        }
    }

    fn submit(&mut self, parked: Parked, now_us: u64) -> Result<(), Parked> {
        let (happened, deadline_us) = (&mut self.happened, parked.deadline_us);
        let write = |parked: &Parked, tag: &str, out: &mut Vec<u8>| {
            let (request, is_upload) = (parked.request, parked.call.is_upload());
            happened.push(Happened::Written { request, tag: tag.to_owned(), is_upload });
            parked.call.write(tag, out);
        };
        self.pipe.submit(parked, Submission::new(now_us, deadline_us), write)
    }

    fn decide_locally(&mut self, call: &LocalCall, now_us: u64) -> LocalDecision {
        let charges = call.charges();
        let mut step = self.table.start(&charges, now_us);
        loop {
            step = match step {
                LocalStep::Done(decision) => return decision,
                LocalStep::Read(read) => match self.shared.get(read.key()) {
                    Some((bytes, version)) => read.resume(bytes, Some(*version)),
                    None => read.resume(&[], None),
                },
                LocalStep::Write(write) => {
                    let version = write.version().unwrap_or(0) + 1;
                    self.shared.insert(write.key().to_owned(), (write.bytes().to_vec(), version));
                    write.resume(Swap::Written)
                }
            };
        }
    }

    /// Bytes come over the connection.
    pub fn received(&mut self, bytes: &[u8], now_us: u64) {
        let settled = self.pipe.received(bytes, now_us);
        self.settle(settled, now_us);
        self.flush(Moment::Flush);
        self.schedule();
    }

    /// The connection is gone, or could not be opened.
    pub fn closed(&mut self, now_us: u64) {
        self.link = None;
        let settled = self.pipe.closed(now_us);
        self.settle(settled, now_us);
        self.schedule();
    }

    pub fn tick(&mut self, now_us: u64) {
        let expired = self.pipe.expire(now_us);
        self.settle(expired, now_us);
        match self.pipe.maintain(now_us) {
            Connect::No => {}
            Connect::Open => self.happened.push(Happened::Opens),
            Connect::Close => self.closed(now_us),
        }
        self.flush(Moment::Flush);
        if self.pipe.tick_us() > self.tick_us {
            self.set_tick();
        }
        self.schedule();
    }

    /// The connection is open: what waited for it goes out.
    pub fn opened(&mut self, link: Link, now_us: u64) {
        self.link = Some(link);
        self.pipe.opened(now_us);
        self.flush(Moment::Flush);
        self.schedule();
    }

    fn settle(&mut self, settled: Vec<Settled<Parked>>, now_us: u64) {
        for Settled { waiter, result, .. } in settled {
            let Parked { request, call, deadline_us } = waiter;
            if let Ok(reply) = &result {
                self.happened.push(Happened::Replied { request, reply: reply.clone() });
            }
            self.advance(call.resume(result), request, now_us, deadline_us);
        }
    }

    fn flush(&mut self, moment: Moment) {
        let output = self.pipe.output(moment);
        if !output.is_empty() {
            self.happened.push(Happened::Sent(output));
        }
    }

    /// Only the tick itself slows down again.
    fn schedule(&mut self) {
        if self.pipe.tick_us() < self.tick_us {
            self.set_tick();
        }
    }

    fn set_tick(&mut self) {
        self.tick_us = self.pipe.tick_us();
        self.happened.push(Happened::Ticks(self.tick_us));
    }
}
