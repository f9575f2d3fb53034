//! The core as a gateway of its own, with its scripts in a real Redis and nothing between, before an origin in memory.

use crate::Subject;
use crate::transcript::{Answer, Request};
use lockkeeper_core::admission::{Arrival, Body};
use lockkeeper_core::capture::{Capture, End, ResponseHead};
use lockkeeper_core::claim::Owner;
use lockkeeper_core::completion::Circumstances;
use lockkeeper_core::decision::{Action, Decision};
use lockkeeper_core::engine::{Collected, Engine, Step};
use lockkeeper_core::identity::Attribute;
use lockkeeper_core::lease::{Lease, LeaseCall, LeaseStep};
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::resp::{Decoder, Reply};
use lockkeeper_core::store::StoreFailure;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

const TAG: &str = "transcript";
/// What the origin that stands behind the core says.
const CONTENT: &[u8] = b"done";
/// The request header that chooses its status, as the echo's.
const STATUS: &str = "x-echo-status";

pub struct Core {
    engine: Engine,
    store: RefCell<TcpStream>,
    /// Counted, so that each has an owner of its own.
    requests: Cell<u128>,
}

impl Core {
    pub fn new(policy: &Value, store: SocketAddr) -> Core {
        let policies = PolicySet::from_json(policy.to_string().as_bytes(), LoadOptions::default());
        let engine = Engine::new(policies.unwrap_or_else(|errors| panic!("the policy is refused:\n{errors}")));
        let store = TcpStream::connect(store).expect("Redis accepts connections");
        Core { engine, store: RefCell::new(store), requests: Cell::new(0) }
    }

    fn decide(&self, request: &Request) -> Decision {
        let authority = request.header("host").unwrap_or_else(|| "localhost".to_owned());
        let selection = self.engine.select(&request.method, &authority, &request.target);
        let look_up = |attribute: &Attribute| match attribute {
            Attribute::ClientAddress => Some(b"127.0.0.1".to_vec()),
            Attribute::Header(name) => request.header(name).map(String::into_bytes),
            Attribute::Metadata(_) => None,
        };
        let headers: Vec<_> = self.engine.route_headers(&selection).iter().map(look_up).collect();
        let selection = self.engine.select_by_headers(selection, &headers);
        let values: Vec<_> = self.engine.attributes(&selection).iter().map(look_up).collect();
        let mut step = self.engine.begin_arrived(&selection, &values, &self.arrival(request));
        loop {
            step = match step {
                Step::Call(call) => {
                    let reply = self.ask(|out| call.write(TAG, out));
                    call.resume(reply)
                }
                Step::NeedBody(need) => need.resume(Collected::Whole(request.content.as_bytes())),
                Step::Decide(decision) => return decision,
                other => panic!("{request:?}: {other:?}"),
            };
        }
    }

    fn arrival(&self, request: &Request) -> Arrival {
        self.requests.set(self.requests.get() + 1);
        let body = match request.content.len() {
            0 => Body::Absent,
            bytes => Body::Bytes(bytes as u64),
        };
        Arrival { owner: Some(Owner::new(self.requests.get().to_be_bytes())), floor: 0, body }
    }

    /// The origin answers a request that holds something, and the store is told.
    fn forward(&self, lease: &Lease, status: u16) {
        let end = match lease.idempotency() {
            None => End::RELEASED,
            Some(rules) => {
                let lines = vec![("content-length".to_owned(), CONTENT.len().to_string().into_bytes())];
                let mut capture = Capture::start(rules, &ResponseHead { status, lines, ends: false });
                if capture.wants_more() {
                    capture.push(CONTENT);
                }
                capture.end()
            }
        };
        lease.end(&end).into_iter().for_each(|call| self.tell(call));
    }

    fn tell(&self, mut call: LeaseCall) {
        loop {
            let reply = self.ask(|out| call.write(TAG, out));
            call = match call.resume(reply) {
                LeaseStep::Call(next) => next,
                LeaseStep::Done(_) => return,
                LeaseStep::Failed(call, failure) => panic!("{:?} failed: {failure:?}", call.act()),
            };
        }
    }

    fn ask(&self, write: impl FnOnce(&mut Vec<u8>)) -> Result<Reply, StoreFailure> {
        let mut store = self.store.borrow_mut();
        let (mut command, mut decoder, mut received) = (Vec::new(), Decoder::default(), [0; 4096]);
        write(&mut command);
        store.write_all(&command).expect("Redis reads");
        loop {
            match decoder.next_reply().expect("Redis speaks its protocol") {
                Some(Reply::Error(text)) => return Err(StoreFailure::of_error(&text)),
                Some(reply) => return Ok(reply),
                None => {
                    let count = store.read(&mut received).expect("Redis answers");
                    assert!(count > 0, "Redis closed the connection");
                    decoder.extend(&received[..count]);
                }
            }
        }
    }
}

impl Subject for Core {
    fn answer(&self, request: &Request) -> Answer {
        let mut decision = self.decide(request);
        let origin = request.header("origin");
        let known = Circumstances { random: 0, unix_s: 0, origin: origin.as_deref().map(str::as_bytes) };
        decision.complete(&self.engine.policies().answers, known);
        let is_grpc = request.header("content-type").is_some_and(|kind| kind.starts_with("application/grpc"));
        let (status, headers) = match decision.action {
            Action::Forward { response_headers } => {
                let status = request.header(STATUS).map_or(200, |status| status.parse().expect("a status"));
                if let Some(lease) = decision.claimed.as_ref().and_then(|claimed| claimed.lease.as_ref()) {
                    self.forward(lease, status);
                }
                (status, response_headers)
            }
            Action::Answer(answer) if is_grpc => {
                let grpc = [
                    ("content-type", "application/grpc".into()),
                    ("grpc-status", (answer.grpc_status as i32).to_string()),
                ];
                (200, grpc.map(|(name, value)| (name.into(), value)).into())
            }
            Action::Answer(answer) => (answer.status, answer.headers),
        };
        Answer { status, headers: headers.into_iter().map(|(name, value)| (name.into_owned(), value)).collect() }
    }
}
