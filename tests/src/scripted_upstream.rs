//! An HTTP/1 upstream that answers what its test wrote, byte for byte, and keeps what reached it: for responses that a
//! proper server does not send.

use crate::tcp::TcpServer;
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running upstream; dropped, it closes its connections.
pub struct ScriptedUpstream {
    server: TcpServer,
    state: Arc<Mutex<State>>,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes as they are.
    Bytes(Vec<u8>),
    /// Nothing for a while.
    Pause(Duration),
    /// The connection ends, in order.
    Close,
}

/// A request that has come as a whole.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Request line and header lines, names in lower case.
    pub head: String,
    /// The content.
    pub body: Vec<u8>,
}

#[derive(Default)]
struct State {
    answers: BTreeMap<String, Vec<Piece>>,
    begun: usize,
    seen: Vec<Seen>,
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
}

impl ScriptedUpstream {
    /// Starts one on a free loopback port; until told otherwise it answers 200 and no content.
    pub fn start() -> Result<Self> {
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let server = TcpServer::start(move |stream, _| {
            let _ = serve(stream, &shared);
        })?;
        Ok(Self { server, state })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// What requests for `path` get from now on.
    pub fn answer(&self, path: &str, pieces: Vec<Piece>) {
        self.locked(|state| state.answers.insert(path.to_owned(), pieces));
    }

    /// The same, as a head without its line ends and a body, sent at once with its length.
    pub fn answer_whole(&self, path: &str, head: &[&str], body: &[u8]) {
        let length = format!("content-length: {}", body.len());
        let lines = [head, &[&length, "", ""]].concat().join("\r\n");
        self.answer(path, vec![Piece::Bytes([lines.as_bytes(), body].concat())]);
    }

    /// How many requests have begun to arrive: their heads have.
    pub fn begun(&self) -> usize {
        self.locked(|state| state.begun)
    }

    /// How many requests have arrived as a whole.
    pub fn count(&self) -> usize {
        self.locked(|state| state.seen.len())
    }

    /// The requests that have arrived as a whole, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.locked(|state| state.seen.clone())
    }

    fn locked<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().expect("no holder panics"))
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let head = read_lines(&mut reader)?;
        if head.is_empty() {
            return Ok(());
        }
        state.lock().expect("no holder panics").begun += 1;
        let body = read_body(&mut reader, &head)?;
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let answer = {
            let mut state = state.lock().expect("no holder panics");
            state.seen.push(Seen { head, body });
            state.answers.get(&path).cloned()
        };
        let plain = vec![Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")];
        for piece in answer.unwrap_or(plain) {
            match piece {
                Piece::Bytes(bytes) => (&*stream).write_all(&bytes)?,
                Piece::Pause(time) => std::thread::sleep(time),
                Piece::Close => return Ok(()),
            }
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
