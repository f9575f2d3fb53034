//! A server that cannot be reached: connecting to it takes until the client gives up.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// An address whose handshakes are never completed: the queue of a listener that accepts nobody is full.
pub struct BlackHole {
    address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl BlackHole {
    /// Fills the queue of a listener of its own.
    pub fn open() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        // SAFETY: a plain system call on a descriptor that is open: it shortens the queue of a listening socket.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
        let queued = std::iter::from_fn(connect).take(16).collect();
        Self { address, _listener: listener, _queued: queued }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
