//! An HTTP front of a store, as Upstash offers it: `POST /pipeline` with commands as JSON, or `POST /` with
//! one, answered with their replies.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, oneshot};

use lockkeeper_core::resp::{Decoder, Reply, encode_command};

/// A running front; dropped, it stops and its connections close.
pub struct RestFront {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RestFront {
    /// Starts one on a free loopback port. It opens a connection to the store for each of its own.
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
        let line = Arc::new(Mutex::new(Line { store, stream: None }));
        let answer = service_fn(move |request| answer(request, Arc::clone(&line)));
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

async fn answer(request: Request<Incoming>, line: Arc<Mutex<Line>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_authorised = request.headers().get("authorization").is_some_and(|value| value == "Bearer token");
    let is_encoded = request.headers().get("upstash-encoding").is_some_and(|value| value == "base64");
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let (status, answer) = match (is_authorised, path.as_str()) {
        (false, _) => (401, json!({ "error": "Unauthorized" })),
        (true, "/pipeline") => told(pipeline(&body, &line, is_encoded).await),
        (true, "/") => told(single(&body, &line, is_encoded).await),
        (true, _) => (404, json!({ "error": "ERR no such path" })),
    };
    // One command alone tells its error by the status too.
    let status = if answer.get("error").is_some() && status == 200 { 400 } else { status };
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::from(answer.to_string())).unwrap_or_default())
}

fn told(answers: Result<Value>) -> (u16, Value) {
    answers.map_or_else(|error| (502, json!({ "error": format!("{error:#}") })), |answers| (200, answers))
}

async fn single(body: &[u8], line: &Mutex<Line>, is_encoded: bool) -> Result<Value> {
    let command: Vec<Value> = serde_json::from_slice(body)?;
    let mut replies = line.lock().await.ask(&[command]).await?;
    Ok(replies.pop().map_or(Value::Null, |reply| result(reply, is_encoded)))
}

async fn pipeline(body: &[u8], line: &Mutex<Line>, is_encoded: bool) -> Result<Value> {
    let commands: Vec<Vec<Value>> = serde_json::from_slice(body)?;
    let replies = line.lock().await.ask(&commands).await?;
    Ok(replies.into_iter().map(|reply| result(reply, is_encoded)).collect())
}

/// The connection to the store that belongs to one client's connection.
struct Line {
    store: SocketAddr,
    stream: Option<TcpStream>,
}

impl Line {
    async fn ask(&mut self, commands: &[Vec<Value>]) -> Result<Vec<Reply>> {
        let mut bytes = Vec::new();
        for command in commands {
            let arguments: Vec<String> = command.iter().map(argument).collect();
            encode_command(&arguments.iter().map(String::as_bytes).collect::<Vec<_>>(), &mut bytes);
        }
        let mut stream = match self.stream.take() {
            Some(stream) if is_open(&stream) => stream,
            _ => {
                let stream = TcpStream::connect(self.store).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        stream.write_all(&bytes).await?;
        let replies = read(&mut stream, commands.len()).await?;
        // Kept only when nothing is left to come.
        self.stream = Some(stream);
        Ok(replies)
    }
}

/// Whether the store has neither closed it nor said anything unasked.
fn is_open(stream: &TcpStream) -> bool {
    stream.try_read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

async fn read(stream: &mut TcpStream, count: usize) -> Result<Vec<Reply>> {
    let (mut decoder, mut replies, mut received) = (Decoder::default(), Vec::new(), vec![0; 16 * 1024]);
    loop {
        while let Some(reply) = decoder.next_reply().map_err(|error| anyhow::anyhow!("{error:?}"))? {
            replies.push(reply);
        }
        if replies.len() >= count {
            return Ok(replies);
        }
        let bytes = stream.read(&mut received).await?;
        anyhow::ensure!(bytes > 0, "the store closed the connection");
        decoder.extend(&received[..bytes]);
    }
}

/// Numbers stand for their text.
fn argument(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn result(reply: Reply, is_encoded: bool) -> Value {
    match reply {
        Reply::Error(text) => json!({ "error": text }),
        reply => json!({ "result": json(reply, is_encoded) }),
    }
}

fn json(reply: Reply, is_encoded: bool) -> Value {
    match reply {
        Reply::Array(elements) => elements.into_iter().map(|element| json(element, is_encoded)).collect(),
        Reply::BulkString(bytes) | Reply::SimpleString(bytes) if is_encoded => BASE64.encode(bytes).into(),
        Reply::BulkString(bytes) | Reply::SimpleString(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        Reply::Error(text) => text.into(),
        Reply::Integer(number) => number.into(),
        Reply::Null => Value::Null,
    }
}
