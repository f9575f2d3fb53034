//! One HTTP/2 request over a connection of its own: its body in pieces, with pauses and trailers.

use crate::http::{Request, Response};
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use ureq::http::HeaderMap;

/// Far above every deadline under test, so that a request left hanging is seen as such.
const HANGING: Duration = Duration::from_secs(30);

/// The body of a request as it goes out: each piece in a frame of its own.
#[derive(Clone, Debug, Default)]
pub struct Upload {
    /// The pieces; none at all: the stream ends with its headers, unless there are trailers.
    pub pieces: Vec<Vec<u8>>,
    /// What follows the last piece.
    pub trailers: Option<HeaderMap>,
    /// The pause before each piece, and before the trailers.
    pub pause: Duration,
}

/// Sends the head of `request` with that body and reads the whole answer; an error when there is none within 30 s.
pub fn send(server: SocketAddr, request: &Request, upload: &Upload) -> Result<Response> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(HANGING, exchange(server, request, upload)).await? })
}

async fn exchange(server: SocketAddr, request: &Request, upload: &Upload) -> Result<Response> {
    let stream = tokio::net::TcpStream::connect(server).await?;
    let (sender, connection) = h2::client::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let start = Instant::now();
    let ends = upload.pieces.is_empty() && upload.trailers.is_none();
    let (response, body) = sender.ready().await?.send_request(request.head(server)?.body(())?, ends)?;
    let sending = async {
        // An answer may come before the whole body: then the stream takes no more of it.
        let _ = send_body(body, upload, ends).await;
    };
    let receiving = async {
        let (parts, mut body) = response.await?.into_parts();
        let mut content = Vec::new();
        while let Some(bytes) = body.data().await {
            let bytes = bytes?;
            body.flow_control().release_capacity(bytes.len())?;
            content.extend_from_slice(&bytes);
        }
        Ok::<_, h2::Error>((parts, content))
    };
    let ((), received) = tokio::join!(sending, receiving);
    connection.abort();
    let (parts, content) = received.context("no answer")?;
    Ok(Response::new(parts.status.as_u16(), parts.headers, content, start.elapsed()))
}

async fn send_body(mut body: h2::SendStream<hyper::body::Bytes>, upload: &Upload, ends: bool) -> Result<()> {
    for (number, piece) in upload.pieces.iter().enumerate() {
        tokio::time::sleep(upload.pause).await;
        let last = number + 1 == upload.pieces.len() && upload.trailers.is_none();
        send_piece(&mut body, piece, last).await?;
    }
    if let (Some(trailers), false) = (&upload.trailers, ends) {
        tokio::time::sleep(upload.pause).await;
        body.send_trailers(trailers.clone())?;
    }
    Ok(())
}

/// Sends as the window allows.
async fn send_piece(body: &mut h2::SendStream<hyper::body::Bytes>, piece: &[u8], last: bool) -> Result<()> {
    if piece.is_empty() {
        return Ok(body.send_data(hyper::body::Bytes::new(), last)?);
    }
    let mut rest = piece;
    while !rest.is_empty() {
        body.reserve_capacity(rest.len());
        let room = std::future::poll_fn(|context| body.poll_capacity(context)).await.context("the stream ended")??;
        let (now, later) = rest.split_at(room.min(rest.len()));
        body.send_data(hyper::body::Bytes::copy_from_slice(now), last && later.is_empty())?;
        rest = later;
    }
    Ok(())
}
