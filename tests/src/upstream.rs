//! A small HTTP service that echoes each request as JSON; delay and status are chosen by request header.

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The request header that delays the answer, in milliseconds.
pub const DELAY_MS: &str = "x-echo-delay-ms";
/// The request header that sets the status of the answer.
pub const STATUS: &str = "x-echo-status";
/// How many of the last requests are kept.
const KEPT: usize = 1_000;

/// A running echo service; dropped, it stops and its connections close.
pub struct Upstream {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    count: u64,
    last: VecDeque<Value>,
}

impl Upstream {
    /// Starts one on a free loopback port.
    pub fn start() -> Result<Self> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (stop, stopped) = oneshot::channel();
        let (started, start) = mpsc::channel();
        let shared = Arc::clone(&seen);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a loopback port is free");
                let _ = started.send(listener.local_addr().expect("a bound listener has an address"));
                tokio::select! { () = serve(listener, shared) => {}, _ = stopped => {} }
            });
        });
        let address = start.recv().context("the upstream did not start")?;
        Ok(Self { address, seen, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests reached it.
    pub fn count(&self) -> u64 {
        self.seen.lock().expect("no holder panics").count
    }

    /// The last requests that reached it, at most 1,000, in order; each as it was echoed. Forgets them.
    pub fn take(&self) -> Vec<Value> {
        self.seen.lock().expect("no holder panics").last.drain(..).collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, seen: Arc<Mutex<Seen>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let seen = Arc::clone(&seen);
        let echo = service_fn(move |request| echo(request, Arc::clone(&seen)));
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), echo));
    }
}

async fn echo(request: Request<Incoming>, seen: Arc<Mutex<Seen>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let number = |name: &str| parts.headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let delay = number(DELAY_MS).map(Duration::from_millis);
    let status = number(STATUS).and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let value = json!({
        "method": parts.method.as_str(),
        "path": parts.uri.path_and_query().map_or("", |path| path.as_str()),
        "headers": headers(&parts.headers),
        "body": String::from_utf8_lossy(&body),
    });
    let text = value.to_string();
    {
        let mut seen = seen.lock().expect("no holder panics");
        seen.count += 1;
        if seen.last.len() == KEPT {
            seen.last.pop_front();
        }
        seen.last.push_back(value);
    }
    if let Some(delay) = delay {
        tokio::time::sleep(delay).await;
    }
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::from(text + "\n")).unwrap_or_default())
}

/// Repeated fields are joined by commas, as HTTP allows.
fn headers(headers: &HeaderMap) -> Value {
    let joined = headers.keys().map(|name| {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        (name.to_string(), Value::from(values.join(", ")))
    });
    Value::Object(joined.collect::<Map<_, _>>())
}
