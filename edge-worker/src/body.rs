//! A request's body: read as far as a fingerprint needs it, hashed on its way where it is bound with the outcome, and sent
//! on whole either way.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::Uint8Array;
use lockkeeper_core::admission::Body as Ahead;
use lockkeeper_core::idempotency::fingerprint::BodyHasher;
use wasm_bindgen_futures::spawn_local;
use worker::web_sys::{Request, RequestInit};

use crate::host::{self, HostResult};
use crate::isolate::HeldBytes;
use crate::request;
use crate::stream::{Sink, Source};

/// What has become of the body so far.
pub enum RequestBody {
    /// Nothing: the request still has it.
    Untouched,
    /// All of it was read.
    Read(Vec<Uint8Array>),
    /// Some of it was read, and is put back.
    Begun(Source),
}

/// What was read for a fingerprint.
pub enum Read {
    /// All of it.
    Whole(Vec<u8>),
    /// More than was of use.
    TooLarge,
    /// It did not come, not in time, or there was no room for it.
    Failed,
}

/// A body's fingerprint, once it has passed.
pub type Hash = Rc<RefCell<Option<String>>>;

/// How far the client may go ahead of the origin.
const AHEAD_BYTES: usize = 64 * 1024;

/// What the head says of the body.
pub fn ahead(request: &Request) -> Ahead {
    match request.body() {
        None => Ahead::Absent,
        Some(_) => length(request).map_or(Ahead::Unknown, Ahead::Bytes),
    }
}

fn length(request: &Request) -> Option<u64> {
    request::header(&request.headers(), "content-length")?.trim().parse().ok()
}

impl RequestBody {
    /// Reads the body until `deadline_us`, as long as it has at most `bytes_max`.
    pub async fn read(&mut self, request: &Request, bytes_max: usize, deadline_us: u64, held: &HeldBytes) -> Read {
        if is_taken(request) {
            return Read::Failed;
        }
        let mut source = Source::of(request.body().as_ref());
        let mut pieces = Pieces { pieces: Vec::new(), bytes: 0 };
        let read = host::within(deadline_us, pieces.fill(&mut source, bytes_max, held)).await;
        held.give_back(pieces.bytes);
        match read {
            Some(Ok(Filled::Whole)) => {
                let whole = pieces.pieces.iter().flat_map(Uint8Array::to_vec).collect();
                *self = RequestBody::Read(pieces.pieces);
                Read::Whole(whole)
            }
            Some(Ok(Filled::TooLarge)) => {
                source.put_back(pieces.pieces);
                *self = RequestBody::Begun(source);
                Read::TooLarge
            }
            Some(Ok(Filled::NoRoom) | Err(_)) | None => Read::Failed,
        }
    }

    /// Gives the body to a request that goes on, hashed on its way if there is a hasher.
    ///
    /// # Errors
    /// The platform refuses its length; somebody else has read it.
    pub fn lend(self, request: &Request, hasher: Option<BodyHasher>, init: &RequestInit) -> HostResult<Option<Hash>> {
        if matches!(self, RequestBody::Untouched) && is_taken(request) {
            return Err("the body was read before the decision".into());
        }
        let source = match (self, request.body(), &hasher) {
            (RequestBody::Read(pieces), ..) => {
                init.set_body(&joined(&pieces));
                return Ok(None);
            }
            (RequestBody::Begun(source), ..) => source,
            (RequestBody::Untouched, None, _) => return Ok(finished(hasher)),
            (RequestBody::Untouched, Some(body), None) => {
                init.set_body(&body);
                return Ok(None);
            }
            (RequestBody::Untouched, Some(body), Some(_)) => Source::of(Some(&body)),
        };
        let (sink, stream) = Sink::open(length(request), AHEAD_BYTES)?;
        init.set_body(&stream);
        let hash = Hash::default();
        spawn_local(pass(source, sink, hasher, Rc::clone(&hash)));
        Ok(Some(hash))
    }
}

/// Whether the importing Worker reads the body, or has.
fn is_taken(request: &Request) -> bool {
    request.body_used() || request.body().is_some_and(|body| body.locked())
}

fn finished(hasher: Option<BodyHasher>) -> Option<Hash> {
    Some(Rc::new(RefCell::new(hasher.map(BodyHasher::finish))))
}

fn joined(pieces: &[Uint8Array]) -> Uint8Array {
    match pieces {
        [piece] => Clone::clone(piece),
        pieces => Uint8Array::from(pieces.iter().flat_map(Uint8Array::to_vec).collect::<Vec<u8>>().as_slice()),
    }
}

/// Passes a body on, to its end.
async fn pass(mut source: Source, mut sink: Sink, mut hasher: Option<BodyHasher>, hash: Hash) {
    loop {
        match source.next().await {
            Ok(Some(piece)) => {
                hasher.iter_mut().for_each(|hasher| hasher.push(&piece.to_vec()));
                sink.write(&piece).await;
            }
            Ok(None) => {
                *hash.borrow_mut() = hasher.map(BodyHasher::finish);
                return sink.close();
            }
            Err(_) => return sink.abort(),
        }
    }
}

struct Pieces {
    pieces: Vec<Uint8Array>,
    bytes: usize,
}

enum Filled {
    Whole,
    TooLarge,
    NoRoom,
}

impl Pieces {
    async fn fill(&mut self, source: &mut Source, bytes_max: usize, held: &HeldBytes) -> HostResult<Filled> {
        while let Some(piece) = source.next().await? {
            let bytes = usize::try_from(piece.length()).unwrap_or(usize::MAX);
            self.pieces.push(piece);
            if !held.take(bytes) {
                return Ok(Filled::NoRoom);
            }
            self.bytes = self.bytes.saturating_add(bytes);
            if self.bytes > bytes_max {
                return Ok(Filled::TooLarge);
            }
        }
        Ok(Filled::Whole)
    }
}
