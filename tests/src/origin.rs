//! An upstream that misbehaves on order: it reads HTTP/1 requests, remembers each, and answers by a script that tests can change at
//! any time. What it was asked to do goes on when the caller has gone away, as in any real service.

use crate::tcp::{Connections, TcpServer};
use anyhow::Result;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

/// What the upstream does about one request, in order; then it waits for the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Closes the connection.
    Close,
    /// Sends bytes.
    Send(Vec<u8>),
    /// Works for so long.
    Wait(Duration),
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Its running number over all connections, from 0.
    pub number: usize,
    /// When it was there whole.
    pub at: Instant,
    /// Request line and header fields, in lower case.
    pub head: String,
    /// The content as it was sent.
    pub body: Vec<u8>,
}

impl Arrived {
    /// The first value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.trim())
    }
}

/// What to do about each request.
pub type Behaviour = Arc<dyn Fn(&Arrived) -> Vec<Act> + Send + Sync>;

/// A running upstream; dropped, it closes all connections.
pub struct Origin {
    server: TcpServer,
    shared: Arc<Shared>,
}

struct Shared {
    behaviour: RwLock<Behaviour>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    arrived: Vec<Arrived>,
    at_work: usize,
    most_at_work: usize,
}

impl Origin {
    /// Starts one on a free loopback port.
    pub fn start(behaviour: Behaviour) -> Result<Self> {
        let shared = Arc::new(Shared { behaviour: RwLock::new(behaviour), seen: Mutex::default() });
        let serving = Arc::clone(&shared);
        let server = TcpServer::start(move |stream, _: &Connections| serve(stream, &serving))?;
        Ok(Self { server, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Answers by another script from the next request on.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.shared.behaviour.write().expect("no holder panics") = behaviour;
    }

    /// How many requests arrived whole.
    pub fn count(&self) -> usize {
        self.shared.seen.lock().expect("no holder panics").arrived.len()
    }

    /// All requests that arrived whole, in order.
    pub fn arrived(&self) -> Vec<Arrived> {
        self.shared.seen.lock().expect("no holder panics").arrived.clone()
    }

    /// The most requests that it ever worked on at the same time.
    pub fn most_at_work(&self) -> usize {
        self.shared.seen.lock().expect("no holder panics").most_at_work
    }

    /// Whether it works on a request now.
    pub fn is_at_work(&self) -> bool {
        self.shared.seen.lock().expect("no holder panics").at_work > 0
    }
}

/// Answers 200 with the number of the request, so that each run has an answer of its own.
pub fn numbered() -> Behaviour {
    numbered_after(Duration::ZERO)
}

/// The same after some work.
pub fn numbered_after(work: Duration) -> Behaviour {
    Arc::new(move |arrived| {
        vec![Act::Wait(work), Act::Send(response(200, &format!("{{\"run\":{}}}\n", arrived.number)))]
    })
}

/// Does the same whatever the request.
pub fn acts(acts: &[Act]) -> Behaviour {
    let acts = acts.to_vec();
    Arc::new(move |_| acts.clone())
}

/// A whole response.
pub fn response(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let (mut reader, mut received, mut buffer) = (stream, Vec::new(), [0; 16 * 1024]);
    loop {
        while let Some((head, body)) = take_request(&mut received) {
            let arrived = shared.begin(head, body);
            let acts = shared.behaviour.read().expect("no holder panics").clone()(&arrived);
            let goes_on = acts.into_iter().try_for_each(|act| perform(act, stream)).is_ok();
            shared.seen.lock().expect("no holder panics").at_work -= 1;
            if !goes_on {
                return;
            }
        }
        match reader.read(&mut buffer) {
            Ok(count @ 1..) => received.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
}

impl Shared {
    fn begin(&self, head: String, body: Vec<u8>) -> Arrived {
        let mut seen = self.seen.lock().expect("no holder panics");
        let arrived = Arrived { number: seen.arrived.len(), at: Instant::now(), head, body };
        seen.arrived.push(arrived.clone());
        seen.at_work += 1;
        seen.most_at_work = seen.most_at_work.max(seen.at_work);
        arrived
    }
}

fn perform(act: Act, mut stream: &TcpStream) -> std::io::Result<()> {
    match act {
        Act::Close => Err(std::io::ErrorKind::ConnectionAborted.into()),
        Act::Send(bytes) => stream.write_all(&bytes),
        Act::Wait(time) => {
            std::thread::sleep(time);
            Ok(())
        }
    }
}

/// Takes a whole request off the front, if there is one: its head, and its content as it was sent.
fn take_request(received: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head_end = find(received, b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&received[..head_end]).to_ascii_lowercase();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
    let end = match (field("content-length:"), field("transfer-encoding:")) {
        (Some(length), _) => head_end + length.parse::<usize>().expect("a length is a number"),
        (None, Some(_)) => head_end + find(&received[head_end..], b"0\r\n\r\n")? + 5,
        (None, None) => head_end,
    };
    (received.len() >= end).then(|| {
        let body = received[head_end..end].to_vec();
        received.drain(..end);
        (head, body)
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Client, Request};

    #[test]
    fn it_remembers_requests_and_answers_each_by_its_number() {
        let origin = Origin::start(numbered()).expect("a loopback port is free");
        let client = Client::new(origin.address());
        let post = Request::new("POST", "/a").header("x-name", "value").body("content");
        for number in 0..2 {
            let response = client.send(&post).expect("an answer");
            assert_eq!((response.status, response.body), (200, format!("{{\"run\":{number}}}\n")));
        }
        let arrived = origin.arrived();
        assert_eq!((arrived.len(), arrived[1].header("x-name")), (2, Some("value")));
        assert_eq!((arrived[1].body.as_slice(), origin.most_at_work()), (&b"content"[..], 1));
    }

    #[test]
    fn it_closes_in_the_middle_of_an_answer() {
        let origin = Origin::start(acts(&[Act::Send(b"HTTP/1.1 200 x\r\n".to_vec()), Act::Close]));
        let origin = origin.expect("a loopback port is free");
        assert!(Client::new(origin.address()).send(&Request::get("/")).is_err());
        assert_eq!(origin.count(), 1);
    }
}
