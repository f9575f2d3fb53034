//! An HTTP front of a store, as Upstash offers it: `POST /pipeline` with commands as JSON, answered with their replies.

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use lockkeeper_core::resp::{Decoder, Reply, encode_command};

/// A running front; dropped, it stops and its connections close.
pub struct RestFront {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RestFront {
    /// Starts one on a free loopback port. It opens a connection to the store for each HTTP request.
    pub fn start(store: SocketAddr) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (started, start) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a loopback port is free");
                let _ = started.send(listener.local_addr().expect("a bound listener has an address"));
                tokio::select! { () = serve(listener, store) => {}, _ = stopped => {} }
            });
        });
        let address = start.recv().context("the front did not start")?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RestFront {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, store: SocketAddr) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let answer = service_fn(move |request| answer(request, store));
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

async fn answer(request: Request<Incoming>, store: SocketAddr) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_authorised = request.headers().get("authorization").is_some_and(|value| value == "Bearer token");
    let is_pipeline = request.method() == "POST" && request.uri().path() == "/pipeline";
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let (status, answer) = match (is_authorised, is_pipeline) {
        (false, _) => (401, json!({ "error": "Unauthorized" })),
        (true, false) => (404, json!({ "error": "ERR no such path" })),
        (true, true) => match pipeline(&body, store).await {
            Ok(answers) => (200, answers),
            Err(error) => (502, json!({ "error": format!("{error:#}") })),
        },
    };
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::from(answer.to_string())).unwrap_or_default())
}

async fn pipeline(body: &[u8], store: SocketAddr) -> Result<Value> {
    let commands: Vec<Vec<String>> = serde_json::from_slice(body)?;
    let mut bytes = Vec::new();
    for command in &commands {
        let arguments: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
        encode_command(&arguments, &mut bytes);
    }
    let mut stream = TcpStream::connect(store).await?;
    stream.write_all(&bytes).await?;
    let (mut decoder, mut answers, mut received) = (Decoder::default(), Vec::new(), vec![0; 16 * 1024]);
    while answers.len() < commands.len() {
        while let Some(reply) = decoder.next_reply().map_err(|error| anyhow::anyhow!("{error:?}"))? {
            answers.push(match reply {
                Reply::Error(text) => json!({ "error": text }),
                reply => json!({ "result": json(reply) }),
            });
        }
        if answers.len() < commands.len() {
            let count = stream.read(&mut received).await?;
            anyhow::ensure!(count > 0, "the store closed the connection");
            decoder.extend(&received[..count]);
        }
    }
    Ok(Value::Array(answers))
}

fn json(reply: Reply) -> Value {
    match reply {
        Reply::Array(elements) => elements.into_iter().map(json).collect(),
        Reply::BulkString(bytes) | Reply::SimpleString(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        Reply::Error(text) => text.into(),
        Reply::Integer(number) => number.into(),
        Reply::Null => Value::Null,
    }
}
