//! An upstream that answers each path what its test wrote, byte for byte: for responses that a proper server does not send.

use crate::origin::{Behaviour, Origin};
use anyhow::Result;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

pub use crate::origin::{Piece, Seen};

/// A running upstream; dropped, it closes its connections.
pub struct ScriptedUpstream {
    origin: Origin,
    answers: Arc<Mutex<BTreeMap<String, Vec<Piece>>>>,
}

impl ScriptedUpstream {
    /// Starts one on a free loopback port; until told otherwise it answers 200 and no content.
    pub fn start() -> Result<Self> {
        let answers = Arc::<Mutex<BTreeMap<String, Vec<Piece>>>>::default();
        let known = Arc::clone(&answers);
        let plain = vec![Piece::bytes("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")];
        let behaviour: Behaviour = Arc::new(move |seen| {
            let answer = known.lock().expect("no holder panics").get(seen.path()).cloned();
            answer.unwrap_or_else(|| plain.clone())
        });
        Ok(Self { origin: Origin::start(behaviour)?, answers })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.origin.address()
    }

    /// What requests for `path` get from now on.
    pub fn answer(&self, path: &str, pieces: Vec<Piece>) {
        self.answers.lock().expect("no holder panics").insert(path.to_owned(), pieces);
    }

    /// The same, as a head without its line ends and a body, sent at once with its length.
    pub fn answer_whole(&self, path: &str, head: &[&str], body: &[u8]) {
        let length = format!("content-length: {}", body.len());
        let lines = [head, &[&length, "", ""]].concat().join("\r\n");
        self.answer(path, vec![Piece::Bytes([lines.as_bytes(), body].concat())]);
    }

    /// How many requests have begun to arrive: their heads have.
    pub fn begun(&self) -> usize {
        self.origin.begun()
    }

    /// How many requests have arrived as a whole.
    pub fn count(&self) -> usize {
        self.origin.count()
    }

    /// The requests that have arrived as a whole, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.origin.seen()
    }
}
