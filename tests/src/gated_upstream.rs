//! An upstream that holds each request until its test lets it go: tests about what runs at the same time need no clock.

use crate::poll;
use crate::tcp::TcpServer;
use anyhow::Result;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Far above what any request takes to arrive.
const ARRIVAL: Duration = Duration::from_secs(20);

/// A running upstream; dropped, it lets go of all and closes its connections.
pub struct GatedUpstream {
    server: TcpServer,
    gate: Arc<Gate>,
}

/// How a request goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Go {
    /// An answer with this status and a short body; the connection stays open.
    Answer(u16),
    /// These bytes, and then it is held again.
    Write(Vec<u8>),
    /// These bytes, and then whatever comes is sent back until the other side closes.
    Echo(Vec<u8>),
    /// The connection closes.
    Close,
}

/// A request that has come.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Request line and header lines, names in lower case.
    pub head: String,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: Vec<(Arrived, Option<Go>)>,
    /// How all go on that come from now on.
    open: Option<Go>,
    running: usize,
    most_running: usize,
    is_over: bool,
}

impl Arrived {
    /// The value of a header; empty when it is missing.
    pub fn header(&self, name: &str) -> &str {
        let mut values = self.head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        values.next_back().unwrap_or_default()
    }
}

impl GatedUpstream {
    /// Starts one on a free loopback port, with the gate closed.
    pub fn start() -> Result<Self> {
        let gate = Arc::<Gate>::default();
        let shared = Arc::clone(&gate);
        let server = TcpServer::start(move |stream, _| while serve(stream, &shared).unwrap_or(false) {})?;
        Ok(Self { server, gate })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// How many requests have come.
    pub fn count(&self) -> usize {
        self.gate.lock().requests.len()
    }

    /// Waits until so many requests have come, and returns them in their order.
    pub fn arrived(&self, count: usize) -> Vec<Arrived> {
        poll::until(&format!("{count} requests reach the upstream"), ARRIVAL, || {
            let state = self.gate.lock();
            let heads = state.requests.iter().map(|(arrived, _)| arrived.clone());
            (state.requests.len() >= count).then(|| heads.collect())
        })
        .unwrap_or_else(|error| panic!("{error}; {} did", self.count()))
    }

    /// Lets number `request`, from 0, go on.
    pub fn let_go(&self, request: usize, go: Go) {
        self.gate.lock().requests[request].1 = Some(go);
        self.gate.changed.notify_all();
    }

    /// Whether a request has gone on since it was last let go.
    pub fn has_gone(&self, request: usize) -> bool {
        self.gate.lock().requests[request].1.is_none()
    }

    /// Lets all go on that are here or come from now on.
    pub fn open(&self, go: Go) {
        let mut state = self.gate.lock();
        state.requests.iter_mut().for_each(|(_, waiting)| *waiting = Some(go.clone()));
        state.open = Some(go);
        self.gate.changed.notify_all();
    }

    /// Holds all that come from now on.
    pub fn close(&self) {
        self.gate.lock().open = None;
    }

    /// The most requests that were here at the same time.
    pub fn most_running(&self) -> usize {
        self.gate.lock().most_running
    }
}

impl Drop for GatedUpstream {
    fn drop(&mut self) {
        self.gate.lock().is_over = true;
        self.gate.changed.notify_all();
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Takes a request in; its number.
    fn enter(&self, head: String) -> usize {
        let mut state = self.lock();
        let go = state.open.clone();
        state.requests.push((Arrived { head }, go));
        state.running += 1;
        state.most_running = state.most_running.max(state.running);
        state.requests.len() - 1
    }

    /// Waits until a request may go on.
    fn pass(&self, request: usize) -> Go {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return Go::Close;
            }
            if let Some(go) = state.requests[request].1.take() {
                return go;
            }
            state = self.changed.wait(state).expect("no holder panics");
        }
    }
}

/// Serves one request; whether the connection stays open.
fn serve(mut stream: &TcpStream, gate: &Gate) -> Result<bool> {
    let Some(head) = read_head(stream)? else { return Ok(false) };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(Ok(0), str::parse)?];
    stream.read_exact(&mut body)?;
    // Clients here send chunks only when there is nothing in them.
    if head.contains("\ntransfer-encoding: chunked\n") {
        read_head(stream)?;
    }
    let request = gate.enter(head);
    let ended = loop {
        match gate.pass(request) {
            Go::Write(bytes) => match stream.write_all(&bytes) {
                Ok(()) => {}
                Err(error) => break Err(error),
            },
            last => break Ok(last),
        }
    };
    // What ends is over before the answer is written, so that whoever waits for the answer finds it over.
    gate.lock().running -= 1;
    match ended? {
        Go::Answer(status) => {
            write!(stream, "HTTP/1.1 {status} Status\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\ndone\n")?;
            Ok(true)
        }
        Go::Echo(bytes) => {
            stream.write_all(&bytes)?;
            std::io::copy(&mut &*stream, &mut stream)?;
            Ok(false)
        }
        Go::Write(_) | Go::Close => Ok(false),
    }
}

/// Up to the empty line, names in lower case; nothing at the end of the connection.
fn read_head(mut stream: &TcpStream) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        bytes.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
    let lines = text.trim_end().lines().map(|line| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}\n", name.to_ascii_lowercase()),
        None => format!("{line}\n"),
    });
    Ok(Some(lines.collect()))
}
