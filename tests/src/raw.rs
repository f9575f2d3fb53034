//! HTTP/1 by hand over one TCP connection: for requests that a proper client refuses to send, and for floods.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Far above every deadline under test, so that a request left hanging is seen as such.
const HANGING: Duration = Duration::from_secs(30);
/// Threads of a flood: each serves many connections, so that it is not the bottleneck.
const THREADS: usize = 2;

/// One connection.
pub struct RawConnection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// An answer with a `content-length`, or without content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawResponse {
    /// The status code.
    pub status: u16,
    /// Status line and header fields as they came, names in lower case.
    pub head: String,
    /// The content.
    pub body: String,
}

impl RawConnection {
    /// Connects to a server.
    pub fn open(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANGING))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends bytes; dropping the connection afterwards is a client that goes away.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Reads the next answer to anything but HEAD.
    pub fn receive(&mut self) -> Result<RawResponse> {
        let response = self.receive_head()?;
        let length = response.head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(Ok(0), |length| length.trim().parse())?;
        self.read_until(|received| (received.len() >= length).then_some(length))?;
        let body = String::from_utf8_lossy(&self.received[..length]).into_owned();
        self.received.drain(..length);
        Ok(RawResponse { body, ..response })
    }

    /// Reads the next answer's status line and header fields: the whole answer to HEAD.
    pub fn receive_head(&mut self) -> Result<RawResponse> {
        let bytes = self.read_until(|received| received.windows(4).position(|four| four == b"\r\n\r\n"))? + 4;
        let head = String::from_utf8_lossy(&self.received[..bytes]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status line")?;
        self.received.drain(..bytes);
        Ok(RawResponse { status, head, body: String::new() })
    }

    /// Sends one request and reads its answer.
    pub fn exchange(&mut self, request: &[u8]) -> Result<RawResponse> {
        self.send(request)?;
        self.receive()
    }

    fn read_until(&mut self, whole: impl Fn(&[u8]) -> Option<usize>) -> Result<usize> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(end) = whole(&self.received) {
                return Ok(end);
            }
            match self.stream.read(&mut buffer)? {
                0 => bail!("the server closed the connection after {} bytes of an answer", self.received.len()),
                count => self.received.extend_from_slice(&buffer[..count]),
            }
        }
    }
}

/// Sends `requests` requests over `connections` connections, one at a time on each, and counts the answers by status.
/// Panics when one is missing.
pub fn flood(
    server: SocketAddr,
    connections: usize,
    requests: usize,
    request: impl Fn(usize) -> Vec<u8> + Sync,
) -> BTreeMap<u16, usize> {
    let next = AtomicUsize::new(0);
    let worker = |connections: usize| {
        let mut statuses = BTreeMap::new();
        let open = || RawConnection::open(server).expect("the server accepts");
        let mut connections: Vec<_> = (0..connections).map(|_| open()).collect();
        loop {
            let numbers = connections.iter().map(|_| next.fetch_add(1, Ordering::Relaxed));
            let numbers: Vec<_> = numbers.take_while(|number| *number < requests).collect();
            if numbers.is_empty() {
                return statuses;
            }
            for (number, connection) in numbers.iter().zip(&mut connections) {
                connection.send(&request(*number)).expect("the server reads");
            }
            for (number, connection) in numbers.iter().zip(&mut connections) {
                let response = connection.receive().unwrap_or_else(|error| panic!("request {number}: {error:#}"));
                *statuses.entry(response.status).or_insert(0) += 1;
            }
        }
    };
    std::thread::scope(|scope| {
        let worker = &worker;
        let threads: Vec<_> = (0..THREADS.min(connections))
            .map(|thread| scope.spawn(move || worker((connections + thread) / THREADS.min(connections))))
            .collect();
        let mut total = BTreeMap::new();
        for (status, count) in threads.into_iter().flat_map(|thread| thread.join().expect("a worker does not panic")) {
            *total.entry(status).or_insert(0) += count;
        }
        total
    })
}
