//! A small blocking HTTP client: any bytes in header values, keep-alive, the time each answer took.

use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use ureq::http::request::Builder;
use ureq::http::{HeaderMap, HeaderName, HeaderValue};

/// Far above every deadline under test, so that a request left hanging is seen as such.
const HANGING: Duration = Duration::from_secs(30);

/// A request to send, possibly many times.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body, with replacement characters where it is not UTF-8.
    pub body: String,
    /// The body byte for byte.
    pub content: Vec<u8>,
    /// From sending the request to the end of the body.
    pub elapsed: Duration,
}

/// A client of one server; its connections are kept open.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    server: SocketAddr,
}

impl Request {
    /// A GET without header fields.
    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// A request without header fields and body.
    pub fn new(method: &str, path: &str) -> Self {
        Self { method: method.to_owned(), path: path.to_owned(), headers: HeaderMap::new(), body: Vec::new() }
    }

    /// Sets the path, with the query.
    pub fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Adds a header field; a name may occur many times. Panics on bytes that HTTP forbids.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name: HeaderName = name.parse().expect("a header name");
        self.headers.append(name, HeaderValue::from_bytes(value.as_ref()).expect("a header value"));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// All but the body.
    pub(crate) fn head(&self, server: SocketAddr) -> Result<Builder> {
        let mut head = ureq::http::Request::builder().method(self.method.as_str());
        head = head.uri(format!("http://{server}{}", self.path));
        head.headers_mut().context("a request target and a method")?.clone_from(&self.headers);
        Ok(head)
    }
}

impl Response {
    pub(crate) fn new(status: u16, headers: HeaderMap, content: Vec<u8>, elapsed: Duration) -> Self {
        let body = String::from_utf8_lossy(&content).into_owned();
        Self { status, headers, body, content, elapsed }
    }

    /// The first value of a header field, when it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Client {
    /// A client of the server at an address.
    pub fn new(server: SocketAddr) -> Self {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0).timeout_global(Some(HANGING));
        Self { agent: config.proxy(None).build().into(), server }
    }

    /// Sends a request and reads the whole answer; an error when there is none within 30 s.
    pub fn send(&self, request: &Request) -> Result<Response> {
        let message = request.head(self.server)?;
        let start = Instant::now();
        let response = match request.body.is_empty() {
            true => self.agent.run(message.body(())?),
            false => self.agent.run(message.body(request.body.as_slice())?),
        };
        let (parts, body) = response?.into_parts();
        let content = ureq::Body::into_with_config(body).limit(u64::MAX).read_to_vec()?;
        Ok(Response::new(parts.status.as_u16(), parts.headers, content, start.elapsed()))
    }

    /// Sends a GET. Panics when there is no answer.
    pub fn get(&self, path: &str) -> Response {
        self.send(&Request::get(path)).unwrap_or_else(|error| panic!("GET {path}: {error:#}"))
    }
}
