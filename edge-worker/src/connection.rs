//! The Durable Object's part: one persistent, pipelined connection to the store for the requests of many isolates. It
//! drives the core's pipe with a socket and a timer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use js_sys::{Function, Uint8Array};
use lockkeeper_core::breaker::BreakerConfig;
use lockkeeper_core::greeting::Greeting;
use lockkeeper_core::pipe::{Connect, Moment, Pipe, PipeConfig, Settled, Submission};
use lockkeeper_core::resp::{Decoder, Reply};
use lockkeeper_core::store::StoreFailure;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use worker::Delay;

use crate::host::{self, Socket};
use crate::log;
use crate::settings::{Server, Settings, Transport};
use crate::store::handshake::{accepted, greeting};
use crate::store::wire;

/// The most calls without a reply: above it isolates are told at once that theirs was not sent.
const IN_FLIGHT_MAX: usize = 1_024;
/// With this many in flight, further calls gather until the next reply.
const COALESCE_ABOVE: usize = 4;
/// A store this near is asked in groups.
const COALESCE_ROUND_TRIP_MAX_US: u64 = 2_000;
/// The first and the longest pause between attempts to connect.
const RECONNECT_PAUSE_US: (u64, u64) = (25_000, 500_000);
/// A connection that owes a reply for this long is replaced.
const STUCK_AFTER_US: u64 = 500_000;
/// Without calls for this long, an object in trouble stops looking for the store until the next one.
const WATCH_US: u64 = 10_000_000;

type Answer = Result<Reply, StoreFailure>;

/// What a Durable Object holds.
#[wasm_bindgen]
pub struct Connection {
    shared: Rc<Shared>,
}

struct Shared {
    server: Server,
    deadline_us: u64,
    pipe: RefCell<Pipe<Function>>,
    socket: RefCell<Option<Rc<Socket>>>,
    /// Connecting: the pipe must not be asked again what to do.
    opening: Cell<bool>,
    ticking: Cell<bool>,
    asked_at_us: Cell<u64>,
}

#[wasm_bindgen]
impl Connection {
    /// A closed connection: it opens with the first call.
    ///
    /// # Errors
    /// The settings are faulty, or say that the store is reached otherwise.
    #[wasm_bindgen(constructor)]
    pub fn new(environment: JsValue) -> Result<Connection, JsValue> {
        let settings = Settings::read(|name| host::variable(&environment, name));
        let settings = settings.map_err(|faults| JsValue::from_str(&faults.join("; ")))?;
        let Transport::DurableObject { server, .. } = settings.transport else {
            return Err(JsValue::from_str("TRANSPORT: expected \"durable_object\""));
        };
        Ok(Connection { shared: Rc::new(Shared::new(server, settings.deadline_us)) })
    }

    /// Sends a command that is marked with `tag`. `resolve` takes the reply, or why there is none within `wait_ms`. Whoever
    /// asks may write `probe_key`, if it says one; a command that is bulky lets others go first.
    pub fn ask(
        &self,
        tag: String,
        command: Vec<u8>,
        wait_ms: f64,
        probe_key: Option<String>,
        is_bulky: Option<bool>,
        resolve: Function,
    ) {
        if let Some(key) = probe_key {
            self.shared.pipe.borrow_mut().probe_at(&key);
        }
        let wait_us = (wait_ms * 1_000.0) as u64;
        self.shared.ask((tag, &command), is_bulky.unwrap_or(false), wait_us, resolve);
    }
}

impl Shared {
    fn new(server: Server, deadline_us: u64) -> Shared {
        let config = PipeConfig {
            coalesce_above: COALESCE_ABOVE,
            coalesce_round_trip_max_us: COALESCE_ROUND_TRIP_MAX_US,
            in_flight_max: IN_FLIGHT_MAX,
            probe_deadline_us: deadline_us,
            stuck_after_us: STUCK_AFTER_US,
            reconnect_pause_us: RECONNECT_PAUSE_US,
            waits_to_reconnect: true,
            // Said before the pipe is told that the connection is open.
            greeting: Greeting::default(),
            // Those who ask say another: the store may let them write no key but their own.
            probe_key: "lockkeeper:probe".into(),
            breaker: BreakerConfig::default(),
        };
        Shared {
            server,
            deadline_us,
            pipe: RefCell::new(Pipe::new(config, host::random())),
            socket: RefCell::default(),
            opening: Cell::new(false),
            ticking: Cell::new(false),
            asked_at_us: Cell::new(0),
        }
    }

    fn ask(self: &Rc<Self>, (tag, command): (String, &[u8]), is_bulky: bool, wait_us: u64, resolve: Function) {
        let now_us = host::now_us();
        self.asked_at_us.set(now_us);
        let deadline_us = now_us.saturating_add(wait_us.min(self.deadline_us));
        let write = |_: &_, _: &str, out: &mut Vec<u8>| out.extend_from_slice(command);
        let submission = Submission::new(now_us, deadline_us).tagged(tag).bulky(is_bulky);
        let submitted = self.pipe.borrow_mut().submit(resolve, submission, write);
        // A refused call still asks for the connection.
        self.maintain(now_us);
        self.flush(Moment::Submitted);
        self.keep_time();
        if let Err(resolve) = submitted {
            answer(&resolve, &Err(StoreFailure::NotSent));
        }
    }

    fn maintain(self: &Rc<Self>, now_us: u64) {
        if self.opening.get() {
            return;
        }
        let connect = self.pipe.borrow_mut().maintain(now_us);
        match connect {
            Connect::No => {}
            Connect::Open => {
                self.opening.set(true);
                spawn_local(Rc::clone(self).run());
            }
            Connect::Close => self.close(),
        }
    }

    /// The life of one connection, from connecting to its end.
    async fn run(self: Rc<Self>) {
        let deadline_us = host::now_us().saturating_add(self.deadline_us);
        let opened = host::within(deadline_us, open(&self.server)).await;
        self.opening.set(false);
        let Some(Ok(socket)) = opened else {
            if let Some(Err(failure)) = opened {
                log::store_refuses(&failure);
            }
            return self.close();
        };
        *self.socket.borrow_mut() = Some(Rc::clone(&socket));
        self.pipe.borrow_mut().opened(host::now_us());
        self.flush(Moment::Flush);
        while let Some(bytes) = socket.read().await {
            if !self.is_current(&socket) {
                return;
            }
            let now_us = host::now_us();
            let settled = self.pipe.borrow_mut().received(&bytes, now_us);
            settle(settled);
            self.maintain(now_us);
            self.flush(Moment::Flush);
        }
        if self.is_current(&socket) {
            self.close();
        }
    }

    /// Whether that is the connection the pipe believes in.
    fn is_current(&self, socket: &Rc<Socket>) -> bool {
        self.socket.borrow().as_ref().is_some_and(|current| Rc::ptr_eq(current, socket))
    }

    /// The connection is of no more use, or could not be opened.
    fn close(&self) {
        if let Some(socket) = self.socket.borrow_mut().take() {
            socket.close();
        }
        let settled = self.pipe.borrow_mut().closed(host::now_us());
        settle(settled);
    }

    fn flush(&self, moment: Moment) {
        let output = self.pipe.borrow_mut().output(moment);
        if let (Some(socket), false) = (&*self.socket.borrow(), output.is_empty()) {
            socket.write(&output);
        }
    }

    /// Ticks as long as there is something to time.
    fn keep_time(self: &Rc<Self>) {
        if !self.ticking.replace(true) {
            spawn_local(Rc::clone(self).tick());
        }
    }

    async fn tick(self: Rc<Self>) {
        while self.needs_time() {
            let tick_us = self.pipe.borrow().tick_us();
            Delay::from(Duration::from_micros(tick_us)).await;
            let now_us = host::now_us();
            let settled = self.pipe.borrow_mut().expire(now_us);
            settle(settled);
            self.maintain(now_us);
            self.flush(Moment::Flush);
        }
        self.ticking.set(false);
    }

    /// A timer keeps the object awake, which costs: it runs while calls wait, and while the store is looked for on
    /// behalf of recent ones.
    fn needs_time(&self) -> bool {
        let pipe = self.pipe.borrow();
        let is_wanted = host::now_us().saturating_sub(self.asked_at_us.get()) < WATCH_US;
        pipe.unanswered() > 0 || (!pipe.is_healthy() && is_wanted)
    }
}

/// Hands the answers to those who wait. One that has gone does not matter.
fn settle(settled: Vec<Settled<Function>>) {
    for Settled { waiter, result, .. } in settled {
        answer(&waiter, &result);
    }
}

fn answer(waiter: &Function, result: &Answer) {
    // What resolves a promise does not fail.
    let _ = waiter.call1(&JsValue::NULL, &Uint8Array::from(wire::encode(result).as_slice()));
}

/// A connection that has introduced itself.
async fn open(server: &Server) -> Result<Rc<Socket>, StoreFailure> {
    let socket = Socket::connect(&server.host, server.port, server.tls).await.map_err(|_| StoreFailure::NotSent)?;
    let greeting = greeting(server);
    if greeting.replies() > 0 {
        socket.write(greeting.bytes());
    }
    let introduced = introduced(&socket, greeting.replies()).await;
    if introduced.is_err() {
        socket.close();
    }
    introduced.map(|()| Rc::new(socket))
}

/// Waits for the replies to the greeting. Nothing else was asked, so nothing else may come.
async fn introduced(socket: &Socket, replies: usize) -> Result<(), StoreFailure> {
    let mut decoder = Decoder::default();
    for _ in 0..replies {
        let reply = loop {
            match decoder.next_reply().map_err(|_| StoreFailure::Unknown)? {
                Some(reply) => break reply,
                None => decoder.extend(&socket.read().await.ok_or(StoreFailure::Unknown)?),
            }
        };
        accepted(&reply)?;
    }
    Ok(())
}
