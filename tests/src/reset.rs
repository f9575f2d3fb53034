//! Clients that go away in the middle of a request: HTTP/2 streams reset, HTTP/1 connections closed.

use crate::http::Request;
use anyhow::Result;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Sends a request without body `count` times over one HTTP/2 connection, all at once, and resets number `n` after
/// `patience(n)` unless it has been answered. Returns how many were reset.
pub fn http2(
    server: SocketAddr,
    request: &Request,
    count: usize,
    patience: impl Fn(usize) -> Duration,
) -> Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(server).await?;
        let (sender, connection) = h2::client::handshake(stream).await?;
        let connection = tokio::spawn(connection);
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..count {
            let mut sender = sender.clone().ready().await?;
            let (response, _) = sender.send_request(request.head(server)?.body(())?, true)?;
            // Dropping the response future resets the stream.
            let patience = patience(number);
            requests.spawn(async move { tokio::time::timeout(patience, response).await.is_err() });
        }
        let resets = requests.join_all().await.into_iter().filter(|reset| *reset).count();
        drop(sender);
        connection.await??;
        Ok(resets)
    })
}

/// Sends a GET over a new HTTP/1 connection and closes it after `patience`, without reading the answer.
pub fn http1(server: SocketAddr, path: &str, patience: Duration) -> Result<()> {
    let mut stream = TcpStream::connect(server)?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {server}\r\n\r\n")?;
    std::thread::sleep(patience);
    Ok(stream.shutdown(Shutdown::Both)?)
}
