//! A TCP server on loopback with a thread for each connection, which can close them all.

use anyhow::Result;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A running server; dropped, it closes all connections and waits for their threads.
pub(crate) struct TcpServer {
    address: SocketAddr,
    connections: Arc<Connections>,
    thread: Option<JoinHandle<()>>,
}

/// The open connections of a server.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<Vec<Arc<TcpStream>>>,
    accepted: AtomicU64,
    stopping: AtomicBool,
}

impl TcpServer {
    /// Serves each connection with `serve`, in a thread of its own; the connection closes when it returns.
    pub(crate) fn start(serve: impl Fn(&TcpStream, &Connections) + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let connections = Arc::<Connections>::default();
        let shared = Arc::clone(&connections);
        let thread = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                while let Some(stream) = shared.accept(&listener) {
                    let (serve, shared) = (&serve, &shared);
                    scope.spawn(move || {
                        serve(&stream, shared);
                        shared.close(&stream);
                    });
                }
            });
        });
        Ok(Self { address, connections, thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.connections.accepted.load(Ordering::Relaxed)
    }

    /// Closes all connections; new ones are accepted.
    pub(crate) fn close_connections(&self) {
        for stream in self.connections.open.lock().expect("no holder panics").iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.connections.stopping.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then sees that it is to stop.
        let _ = TcpStream::connect(self.address);
        self.close_connections();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Connections {
    fn accept(&self, listener: &TcpListener) -> Option<Arc<TcpStream>> {
        loop {
            let accepted = listener.accept();
            if self.stopping.load(Ordering::Relaxed) {
                return None;
            }
            let Ok((stream, _)) = accepted else { continue };
            let _ = stream.set_nodelay(true);
            return Some(self.keep(stream));
        }
    }

    /// Counts a stream among those that are closed with the server.
    pub(crate) fn keep(&self, stream: TcpStream) -> Arc<TcpStream> {
        let stream = Arc::new(stream);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.lock().expect("no holder panics").push(Arc::clone(&stream));
        if self.stopping.load(Ordering::Relaxed) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        stream
    }

    /// Closes a stream and forgets it.
    pub(crate) fn close(&self, stream: &Arc<TcpStream>) {
        let _ = stream.shutdown(Shutdown::Both);
        self.open.lock().expect("no holder panics").retain(|open| !Arc::ptr_eq(open, stream));
    }
}
