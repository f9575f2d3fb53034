//! A network link to a real store that is slow, or cut: a TCP proxy with a delay each way.

use crate::tcp::{Connections, TcpServer};
use anyhow::Result;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// A running link; dropped, it closes all connections.
pub struct SlowLink {
    server: TcpServer,
    delays_us: Arc<[AtomicU64; 2]>,
    target: Arc<Mutex<SocketAddr>>,
}

impl SlowLink {
    /// A link to `target` that adds `round_trip` to each exchange, half of it each way.
    pub fn start(target: SocketAddr, round_trip: Duration) -> Result<Self> {
        let delays_us = Arc::<[AtomicU64; 2]>::default();
        let shared = Arc::clone(&delays_us);
        let target = Arc::new(Mutex::new(target));
        let current = Arc::clone(&target);
        let server = TcpServer::start(move |client, connections| {
            let target = *current.lock().expect("no holder panics");
            relay(client, target, connections, &shared);
        })?;
        let link = Self { server, delays_us, target };
        link.set_round_trip(round_trip);
        Ok(link)
    }

    /// Where to connect instead of the target.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Changes the added round trip for what is sent from now on.
    pub fn set_round_trip(&self, round_trip: Duration) {
        self.set_delays(round_trip / 2, round_trip / 2);
    }

    /// Changes the delay of what is sent from now on: of commands on their way there, and of replies on their way back.
    pub fn set_delays(&self, there: Duration, back: Duration) {
        for (delay_us, delay) in self.delays_us.iter().zip([there, back]) {
            let micros = u64::try_from(delay.as_micros()).expect("a delay is short");
            delay_us.store(micros, Ordering::Relaxed);
        }
    }

    /// Leads new connections elsewhere, as a virtual address does after a failover; open ones stay where they are.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().expect("no holder panics") = target;
    }

    /// Closes all connections; new ones are accepted.
    pub fn cut(&self) {
        self.server.close_connections();
    }
}

fn relay(client: &TcpStream, target: SocketAddr, connections: &Connections, [there, back]: &[AtomicU64; 2]) {
    let Ok(server) = TcpStream::connect(target) else { return };
    let _ = server.set_nodelay(true);
    let server = connections.keep(server);
    std::thread::scope(|scope| {
        scope.spawn(|| copy(client, &server, there));
        copy(&server, client, back);
    });
    connections.close(&server);
}

/// One direction. Bytes wait side by side: the link is slow, not narrow.
fn copy(mut from: &TcpStream, mut to: &TcpStream, delay_us: &AtomicU64) {
    let (pieces, inbox) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (due, bytes) in inbox {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Read), to.shutdown(Shutdown::Write));
        });
        let mut buffer = [0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let due = Instant::now() + Duration::from_micros(delay_us.load(Ordering::Relaxed));
            let _ = pieces.send((due, buffer[..count].to_vec()));
        }
        drop(pieces);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub_store::{StubStore, admit};

    #[test]
    fn an_exchange_takes_the_round_trip_longer_and_pieces_do_not_queue_up() {
        let stub = StubStore::start(admit()).expect("a loopback port is free");
        let round_trip = Duration::from_millis(40);
        let link = SlowLink::start(stub.address(), round_trip).expect("a loopback port is free");
        let mut stream = TcpStream::connect(link.address()).expect("the link accepts");
        let start = Instant::now();
        for _ in 0..10 {
            stream.write_all(b"*1\r\n$4\r\nPING\r\n").expect("the link reads");
        }
        let mut replies = [0; 50];
        stream.read_exact(&mut replies).expect("the stub answers");
        assert_eq!(replies.as_slice(), b"+OK\r\n".repeat(10));
        assert!(start.elapsed() >= round_trip && start.elapsed() < round_trip * 5, "{:?}", start.elapsed());
    }

    #[test]
    fn a_cut_closes_and_new_connections_work() {
        let stub = StubStore::start(admit()).expect("a loopback port is free");
        let link = SlowLink::start(stub.address(), Duration::ZERO).expect("a loopback port is free");
        for _ in 0..2 {
            let mut stream = TcpStream::connect(link.address()).expect("the link accepts");
            stream.write_all(b"*1\r\n$4\r\nPING\r\n").expect("the link reads");
            let mut reply = [0; 5];
            stream.read_exact(&mut reply).expect("the stub answers");
            link.cut();
            assert!(matches!(stream.read(&mut reply), Ok(0) | Err(_)));
        }
    }
}
