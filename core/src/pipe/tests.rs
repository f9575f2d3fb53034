//! The pipe against hand-made replies in virtual time.

#![allow(clippy::arithmetic_side_effects, clippy::string_slice, reason = "a test fails by panicking")]

mod breaker;
mod connection;
mod deadlines;
mod greeting;
mod matching;

use crate::breaker::BreakerConfig;
use crate::greeting::Greeting;
use redis_protocol::resp2::types::Resp2Frame;

use super::*;

const DEADLINE_US: u64 = 50_000;
const PROBE_KEY: &str = "ns:probe";

fn config() -> PipeConfig {
    PipeConfig {
        coalesce_above: 4,
        coalesce_round_trip_max_us: 500,
        in_flight_max: 100,
        probe_deadline_us: DEADLINE_US,
        stuck_after_us: 500_000,
        reconnect_pause_us: (25_000, 500_000),
        waits_to_reconnect: false,
        greeting: Greeting::default(),
        probe_key: PROBE_KEY.into(),
        // Here each failed call counts, so that few make a case.
        breaker: BreakerConfig { failure_spacing_us: 0, ..BreakerConfig::default() },
    }
}

/// A pipe with its clock. Calls are numbered; each command is `["CALL", number, tag]`.
struct Client {
    pipe: Pipe<u32>,
    now_us: u64,
}

/// What came of a call, in short.
#[derive(Debug, PartialEq)]
enum Came {
    /// A script's reply that carries this number.
    Reply(i64),
    NotSent,
    Unknown,
    Refused(Refusal),
}

impl Client {
    fn closed() -> Client {
        Client { pipe: Pipe::new(config(), 0x1234_5678_9abc_def0), now_us: 1_000_000 }
    }

    fn open() -> Client {
        let mut client = Client::closed();
        client.pipe.wanted = true;
        assert_eq!(client.pipe.maintain(client.now_us), Connect::Open);
        client.pipe.opened(client.now_us);
        client
    }

    /// Open, and the store has answered a call.
    fn answered() -> Client {
        let mut client = Client::open();
        let tag = client.call(1);
        client.receive(reply(&tag, 1));
        client
    }

    fn submit(&mut self, number: u32) -> bool {
        let write = |number: &u32, tag: &str, out: &mut Vec<u8>| {
            encode_command(&[b"CALL", number.to_string().as_bytes(), tag.as_bytes()], out);
        };
        self.pipe.submit(number, Submission::new(self.now_us, self.now_us + DEADLINE_US), write).is_ok()
    }

    /// The commands that go out now, each as its words.
    fn sent(&mut self, moment: Moment) -> Vec<Vec<String>> {
        commands(&self.pipe.output(moment))
    }

    /// Sends one call and returns its tag.
    fn call(&mut self, number: u32) -> String {
        assert!(self.submit(number), "call {number} was refused");
        let sent = self.sent(Moment::Flush);
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert_eq!(sent[0][1], number.to_string());
        sent[0][2].clone()
    }

    fn receive(&mut self, bytes: impl AsRef<[u8]>) -> Vec<(u32, Came)> {
        came(self.pipe.received(bytes.as_ref(), self.now_us))
    }

    fn expire(&mut self) -> Vec<(u32, Came)> {
        came(self.pipe.expire(self.now_us))
    }

    fn close(&mut self) -> Vec<(u32, Came)> {
        came(self.pipe.closed(self.now_us))
    }

    fn wait_us(&mut self, us: u64) {
        self.now_us += us;
    }

    /// Lets calls fail until the breaker opens.
    fn open_breaker(&mut self) {
        for number in 1001..=1005 {
            self.call(number);
            assert_eq!(self.receive(error("LOADING wait")), [(number, Came::Refused(Refusal::Loading))]);
        }
        assert!(!self.pipe.breaker_is_closed());
    }
}

fn commands(bytes: &[u8]) -> Vec<Vec<String>> {
    let mut decoder = Decoder::default();
    decoder.extend(bytes);
    let text = |frame: Reply| String::from_utf8(frame.as_bytes().unwrap().to_vec()).unwrap();
    std::iter::from_fn(|| decoder.next_reply().unwrap())
        .map(|command| match command {
            Reply::Array(words) => words.into_iter().map(text).collect(),
            other => panic!("{other:?} is no command"),
        })
        .collect()
}

fn came(settled: Vec<Settled<u32>>) -> Vec<(u32, Came)> {
    let short = |result| match result {
        Ok(Reply::Array(elements)) => match elements.as_slice() {
            [Reply::BulkString(_), Reply::Integer(number)] => Came::Reply(*number),
            other => panic!("{other:?} is no reply of these tests"),
        },
        Ok(other) => panic!("{other:?} was taken for a script's reply"),
        Err(StoreFailure::NotSent) => Came::NotSent,
        Err(StoreFailure::Unknown) => Came::Unknown,
        Err(StoreFailure::Refused(refusal)) => Came::Refused(refusal),
    };
    settled.into_iter().map(|one| (one.waiter, short(one.result))).collect()
}

/// A script's reply with a number that tells it from others.
fn reply(tag: &str, number: i64) -> Vec<u8> {
    format!("*2\r\n${}\r\n{tag}\r\n:{number}\r\n", tag.len()).into_bytes()
}

fn error(text: &str) -> Vec<u8> {
    format!("-{text}\r\n").into_bytes()
}
