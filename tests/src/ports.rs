//! Free ports for servers that must know their port before they start and keep it over a restart.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the kernel's ephemeral range, so that no outgoing connection takes the port of a server that is down for a moment.
const FIRST: u16 = 16_384;
const COUNT: u16 = 16_000;

/// A loopback address nobody listens on. Another process may still take it first: callers try again.
pub fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = std::process::id().wrapping_mul(97) as u16;
    (0..COUNT)
        .map(|_| FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT)
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("one of 16,000 loopback ports is free")
}
