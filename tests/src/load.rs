//! Requests from many connections at once, each answer kept with its time.

use crate::http::{Client, Request, Response};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One request of a load and what came of it.
#[derive(Debug)]
pub struct Sample {
    /// When it was sent, from the start of the load.
    pub sent: Duration,
    /// How long the client waited.
    pub elapsed: Duration,
    /// The answer, or why there was none.
    pub answer: Result<Response, String>,
}

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub enum Until<'a> {
    /// After so many requests over all connections.
    Requests(usize),
    /// After this time.
    Elapsed(Duration),
    /// When this becomes true.
    Told(&'a AtomicBool),
}

impl Sample {
    /// The status code; 0 when there was no answer.
    pub fn status(&self) -> u16 {
        self.answer.as_ref().map_or(0, |response| response.status)
    }
}

/// Sends what `request` makes of the running number over `connections` connections, each with one request at a time. In order of sending.
pub fn run(
    server: SocketAddr,
    connections: usize,
    until: Until<'_>,
    request: impl Fn(usize) -> Request + Sync,
) -> Vec<Sample> {
    let (start, next) = (Instant::now(), AtomicUsize::new(0));
    let connection = || {
        let (client, mut samples) = (Client::new(server), Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let over = match until {
                Until::Requests(count) => number >= count,
                Until::Elapsed(time) => start.elapsed() >= time,
                Until::Told(over) => over.load(Ordering::Relaxed),
            };
            if over {
                return samples;
            }
            // Making a request may take time, on purpose: the client's waiting starts afterwards.
            let request = request(number);
            let sent = start.elapsed();
            let answer = client.send(&request).map_err(|error| format!("{error:#}"));
            samples.push(Sample { sent, elapsed: start.elapsed().saturating_sub(sent), answer });
        }
    };
    let mut samples: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(connection)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a connection does not panic")).collect()
    });
    samples.sort_by_key(|sample| sample.sent);
    samples
}

/// How many samples have this status.
pub fn count(samples: &[Sample], status: u16) -> usize {
    samples.iter().filter(|sample| sample.status() == status).count()
}
