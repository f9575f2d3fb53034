//! Bodies as streams of the platform: read piece by piece, and passed on.

use std::collections::VecDeque;

use js_sys::Uint8Array;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use worker::web_sys::{ReadableStream, ReadableStreamDefaultReader, TransformStream, WritableStreamDefaultWriter};

use crate::host::{self, HostResult};

#[wasm_bindgen]
extern "C" {
    /// Passes bytes on as they come.
    #[wasm_bindgen(extends = TransformStream)]
    type IdentityTransformStream;
    #[wasm_bindgen(constructor, catch)]
    fn new() -> HostResult<IdentityTransformStream>;

    /// The same, for a message that declares its length.
    #[wasm_bindgen(extends = TransformStream)]
    type FixedLengthStream;
    #[wasm_bindgen(constructor, catch)]
    fn new(bytes: f64) -> HostResult<FixedLengthStream>;

    /// The bytes of a buffer.
    #[wasm_bindgen(extends = Uint8Array, js_name = Uint8Array)]
    type Bytes;
    #[wasm_bindgen(constructor, js_class = "Uint8Array", catch)]
    fn new(buffer: &JsValue, offset: usize, length: usize) -> HostResult<Bytes>;
}

/// A body that is read.
pub struct Source {
    ahead: VecDeque<Uint8Array>,
    reader: Option<HostResult<ReadableStreamDefaultReader>>,
}

impl Source {
    /// Of a message; one without a body has ended. One that somebody else reads breaks off.
    pub fn of(stream: Option<&ReadableStream>) -> Source {
        Source { ahead: VecDeque::new(), reader: stream.map(host::reader) }
    }

    /// Puts pieces back that were read; they come again before the rest.
    pub fn put_back(&mut self, pieces: Vec<Uint8Array>) {
        self.ahead.extend(pieces);
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The sender broke off, or sent what is not bytes.
    pub async fn next(&mut self) -> HostResult<Option<Uint8Array>> {
        if let Some(piece) = self.ahead.pop_front() {
            return Ok(Some(piece));
        }
        let Some(reader) = &self.reader else { return Ok(None) };
        let read = JsFuture::from(reader.as_ref().map_err(Clone::clone)?.read()).await?;
        host::member(&read, "value").map(bytes).transpose()
    }
}

/// A piece of a stream: those that a Worker makes may be of any kind.
fn bytes(piece: JsValue) -> HostResult<Uint8Array> {
    let piece = match piece.dyn_into() {
        Ok(bytes) => return Ok(bytes),
        Err(piece) => piece,
    };
    let size = |name: &str| host::member(&piece, name)?.as_f64().map(|size| size as usize);
    let length = size("byteLength").ok_or_else(|| JsValue::from_str("a piece of a body is not bytes"))?;
    let buffer = host::member(&piece, "buffer").unwrap_or_else(|| piece.clone());
    Ok(Bytes::new(&buffer, size("byteOffset").unwrap_or(0), length)?.unchecked_into())
}

/// A body that is passed on. A receiver that has gone does not matter.
pub struct Sink {
    writer: WritableStreamDefaultWriter,
    /// Bytes that are written without waiting for the receiver.
    ahead_bytes: usize,
    is_gone: bool,
}

impl Sink {
    /// Opens one for a message of that length, if that is known; with the stream for the receiver. The sender goes at
    /// most `ahead_bytes` ahead.
    ///
    /// # Errors
    /// The platform refuses the length.
    pub fn open(length: Option<u64>, ahead_bytes: usize) -> HostResult<(Sink, ReadableStream)> {
        let stream: TransformStream = match length {
            Some(bytes) => FixedLengthStream::new(bytes as f64)?.unchecked_into(),
            None => IdentityTransformStream::new()?.unchecked_into(),
        };
        let writer = stream.writable().get_writer()?;
        Ok((Sink { writer, ahead_bytes, is_gone: false }, stream.readable()))
    }

    /// Passes a piece on.
    pub async fn write(&mut self, piece: &Uint8Array) {
        let bytes = usize::try_from(piece.length()).unwrap_or(usize::MAX);
        let written = self.writer.write_with_chunk(piece);
        match self.ahead_bytes.checked_sub(bytes) {
            Some(left) => {
                self.ahead_bytes = left;
                host::ignore(&written);
            }
            None if self.is_gone => host::ignore(&written),
            None => self.is_gone = JsFuture::from(written).await.is_err(),
        }
    }

    /// The message is complete.
    pub fn close(&self) {
        host::ignore(&self.writer.close());
    }

    /// The message breaks off, and the receiver sees that.
    pub fn abort(&self) {
        host::ignore(&self.writer.abort_with_reason(&JsValue::from_str("the sender broke off")));
    }
}
