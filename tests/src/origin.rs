//! An upstream that misbehaves on order: it reads HTTP/1 requests, remembers each, and answers by a script that tests can change at
//! any time. What it was asked to do goes on when the caller has gone away, as in any real service.

use crate::tcp::TcpServer;
use anyhow::Result;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes as they are.
    Bytes(Vec<u8>),
    /// Nothing for a while: the upstream works.
    Pause(Duration),
    /// The connection ends, in order.
    Close,
}

/// A request that has come as a whole.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its running number over all connections, from 0.
    pub number: usize,
    /// When it was there.
    pub at: Instant,
    /// Request line and header lines, names in lower case.
    pub head: String,
    /// The content.
    pub body: Vec<u8>,
}

impl Piece {
    /// Bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Piece {
        Piece::Bytes(bytes.into())
    }
}

impl Seen {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The path, with the query.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// What to do about each request.
pub type Behaviour = Arc<dyn Fn(&Seen) -> Vec<Piece> + Send + Sync>;

/// A running upstream; dropped, it closes all connections.
pub struct Origin {
    server: TcpServer,
    shared: Arc<Shared>,
}

struct Shared {
    behaviour: RwLock<Behaviour>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    begun: usize,
    seen: Vec<Seen>,
    at_work: usize,
    most_at_work: usize,
}

impl Origin {
    /// Starts one on a free loopback port.
    pub fn start(behaviour: Behaviour) -> Result<Self> {
        let shared = Arc::new(Shared { behaviour: RwLock::new(behaviour), state: Mutex::default() });
        let serving = Arc::clone(&shared);
        let server = TcpServer::start(move |stream, _| {
            // It ends with the connection, whichever side closes that.
            let _ = serve(stream, &serving);
        })?;
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

    /// How many requests have begun to arrive: their heads have.
    pub fn begun(&self) -> usize {
        self.shared.locked(|state| state.begun)
    }

    /// How many requests have arrived as a whole.
    pub fn count(&self) -> usize {
        self.shared.locked(|state| state.seen.len())
    }

    /// The requests that have arrived as a whole, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.locked(|state| state.seen.clone())
    }

    /// The most requests that it ever worked on at the same time.
    pub fn most_at_work(&self) -> usize {
        self.shared.locked(|state| state.most_at_work)
    }

    /// Whether it works on a request now.
    pub fn is_at_work(&self) -> bool {
        self.shared.locked(|state| state.at_work > 0)
    }
}

/// Answers 200 with the number of the request, so that each run has an answer of its own.
pub fn numbered() -> Behaviour {
    numbered_after(Duration::ZERO)
}

/// The same after some work.
pub fn numbered_after(work: Duration) -> Behaviour {
    Arc::new(move |seen| {
        vec![Piece::Pause(work), Piece::Bytes(response(200, &format!("{{\"run\":{}}}\n", seen.number)))]
    })
}

/// Does the same whatever the request.
pub fn always(pieces: &[Piece]) -> Behaviour {
    let pieces = pieces.to_vec();
    Arc::new(move |_| pieces.clone())
}

/// A whole response.
pub fn response(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn serve(stream: &TcpStream, shared: &Shared) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let head = read_lines(&mut reader)?;
        if head.is_empty() {
            return Ok(());
        }
        shared.locked(|state| state.begun += 1);
        let body = read_body(&mut reader, &head)?;
        let pieces = shared.begin(head, body);
        let sent = pieces.into_iter().try_for_each(|piece| send(piece, stream));
        shared.locked(|state| state.at_work -= 1);
        sent?;
    }
}

impl Shared {
    fn locked<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().expect("no holder panics"))
    }

    /// Takes up the work on a request: what it is answered.
    fn begin(&self, head: String, body: Vec<u8>) -> Vec<Piece> {
        let seen = self.locked(|state| {
            state.seen.push(Seen { number: state.seen.len(), at: Instant::now(), head, body });
            state.at_work += 1;
            state.most_at_work = state.most_at_work.max(state.at_work);
            state.seen[state.seen.len() - 1].clone()
        });
        let behaviour = self.behaviour.read().expect("no holder panics").clone();
        behaviour(&seen)
    }
}

fn send(piece: Piece, mut stream: &TcpStream) -> std::io::Result<()> {
    match piece {
        Piece::Close => Err(std::io::ErrorKind::ConnectionAborted.into()),
        Piece::Bytes(bytes) => stream.write_all(&bytes),
        Piece::Pause(time) => {
            std::thread::sleep(time);
            Ok(())
        }
    }
}

/// Lines up to an empty one, without it; nothing at the end of the connection. Names become lower case.
fn read_lines(reader: &mut impl BufRead) -> Result<String> {
    let mut lines = String::new();
    loop {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.is_empty() {
            return Ok(lines);
        }
        let line = match line.split_once(": ") {
            Some((name, value)) => format!("{}: {value}", name.to_ascii_lowercase()),
            None => line,
        };
        lines += &(line + "\n");
    }
}

fn read_body(reader: &mut impl BufRead, head: &str) -> Result<Vec<u8>> {
    let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    if value("transfer-encoding: ").is_some_and(|coding| coding.contains("chunked")) {
        return read_chunks(reader);
    }
    let length = value("content-length: ").map_or(Ok(0), str::parse)?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16)?;
        if size == 0 {
            // Trailers, if any, and the empty line.
            read_lines(reader)?;
            return Ok(body);
        }
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..])?;
        read_lines(reader)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Client, Request};

    #[test]
    fn it_remembers_requests_and_answers_each_by_its_number() {
        let origin = Origin::start(numbered()).expect("a loopback port is free");
        let client = Client::new(origin.address());
        let post = Request::new("POST", "/a").header("x-name", "Value").body("content");
        for number in 0..2 {
            let response = client.send(&post).expect("an answer");
            assert_eq!((response.status, response.body), (200, format!("{{\"run\":{number}}}\n")));
        }
        let seen = origin.seen();
        assert_eq!((seen.len(), seen[1].path(), seen[1].header("x-name")), (2, "/a", Some("Value")));
        assert_eq!((seen[1].body.as_slice(), origin.most_at_work()), (&b"content"[..], 1));
    }

    #[test]
    fn it_closes_in_the_middle_of_an_answer() {
        let origin = Origin::start(always(&[Piece::bytes("HTTP/1.1 200 x\r\n"), Piece::Close]));
        let origin = origin.expect("a loopback port is free");
        assert!(Client::new(origin.address()).send(&Request::get("/")).is_err());
        assert_eq!(origin.count(), 1);
    }
}
