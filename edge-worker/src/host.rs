//! What the platform offers beside the `worker` crate: time, randomness, timers, and sockets without its adapters.

use std::time::Duration;

use futures_util::future::{Either, select};
use js_sys::{Date, Promise, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use worker::web_sys::{AbortController, ReadableStream, ReadableStreamDefaultReader, WritableStreamDefaultWriter};
use worker::{Delay, worker_sys};

/// The platform's word on what failed.
pub type HostResult<T> = Result<T, JsValue>;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = crypto, js_name = getRandomValues, catch)]
    fn get_random_values(bytes: &mut [u8]) -> HostResult<JsValue>;
    #[wasm_bindgen(js_namespace = JSON, catch)]
    fn stringify(value: &JsValue) -> HostResult<JsValue>;

    // What throws must be caught here: an exception that passes through a future leaves its task borrowed for good.
    #[wasm_bindgen(extends = ReadableStream)]
    type Readable;
    #[wasm_bindgen(method, js_name = getReader, catch)]
    fn get_reader(this: &Readable) -> HostResult<ReadableStreamDefaultReader>;
    #[wasm_bindgen(extends = AbortController)]
    type Aborter;
    #[wasm_bindgen(method, catch)]
    fn abort(this: &Aborter) -> HostResult<()>;
}

/// The reader of a stream.
///
/// # Errors
/// Somebody else has it.
pub fn reader(stream: &ReadableStream) -> HostResult<ReadableStreamDefaultReader> {
    stream.unchecked_ref::<Readable>().get_reader()
}

/// Aborts; that a listener fails is not our concern.
pub fn abort(controller: &AbortController) {
    let _ = controller.unchecked_ref::<Aborter>().abort();
}

/// Microseconds of Unix time, in steps of a millisecond. It stands still while a request computes and moves on with its
/// I/O, so it serves for ages and never for waiting.
pub fn now_us() -> u64 {
    (Date::now() * 1_000.0) as u64
}

/// Random bytes from the platform's cryptographic generator; to be had within requests only.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // It fails for more than 65,536 bytes and outside requests, where nothing is decided.
    let _ = get_random_values(&mut bytes);
    bytes
}

/// The same, where a guess must not do: `None` when the platform has none.
pub fn secret<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    get_random_values(&mut bytes).ok().map(|_| bytes)
}

/// A random number of 64 bits.
pub fn random() -> u64 {
    u64::from_le_bytes(random_bytes())
}

/// The work's result, or `None` when the deadline passes first.
pub async fn within<T>(deadline_us: u64, work: impl Future<Output = T>) -> Option<T> {
    let left_us = deadline_us.saturating_sub(now_us());
    let timer = Delay::from(Duration::from_millis(left_us.div_ceil(1_000)));
    match select(std::pin::pin!(work), timer).await {
        Either::Left((result, _)) => Some(result),
        Either::Right(((), _)) => None,
    }
}

/// Waits until then.
pub async fn sleep_until(at_us: u64) {
    let left_us = at_us.saturating_sub(now_us());
    Delay::from(Duration::from_millis(left_us.div_ceil(1_000))).await;
}

/// A member of an object that is set.
pub fn member(object: &JsValue, name: &str) -> Option<JsValue> {
    Reflect::get(object, &JsValue::from_str(name)).ok().filter(|value| !value.is_undefined() && !value.is_null())
}

/// A variable or secret as text; one that holds JSON as its text.
pub fn variable(environment: &JsValue, name: &str) -> Option<String> {
    let value = member(environment, name)?;
    value.as_string().or_else(|| stringify(&value).ok()?.as_string())
}

/// An open socket of the request, or object, that opened it; of no use to others.
pub struct Socket {
    socket: worker_sys::Socket,
    reader: ReadableStreamDefaultReader,
    writer: WritableStreamDefaultWriter,
}

impl Socket {
    /// Connects; an error means that nothing was sent.
    ///
    /// # Errors
    /// What the platform says.
    pub async fn connect(host: &str, port: u16, tls: bool) -> HostResult<Socket> {
        let (address, options) = (js_sys::Object::new(), js_sys::Object::new());
        Reflect::set(&address, &"hostname".into(), &host.into())?;
        Reflect::set(&address, &"port".into(), &f64::from(port).into())?;
        Reflect::set(&options, &"secureTransport".into(), &(if tls { "on" } else { "off" }).into())?;
        let socket = worker_sys::connect(address.into(), options.into())?;
        let reader = reader(&socket.readable()?)?;
        let socket = Socket { reader, writer: socket.writable()?.get_writer()?, socket };
        ignore(&socket.socket.closed()?);
        match JsFuture::from(socket.socket.opened()?).await {
            Ok(_) => Ok(socket),
            Err(error) => {
                socket.close();
                Err(error)
            }
        }
    }

    /// Sends bytes after those sent before. A failure shows in what is read.
    pub fn write(&self, bytes: &[u8]) {
        ignore(&self.writer.write_with_chunk(&Uint8Array::from(bytes)));
    }

    /// The next bytes; `None` when there will be no more.
    pub async fn read(&self) -> Option<Vec<u8>> {
        let chunk = JsFuture::from(self.reader.read()).await.ok()?;
        let bytes = member(&chunk, "value")?;
        Some(bytes.unchecked_into::<Uint8Array>().to_vec())
    }

    /// Closes both directions.
    pub fn close(&self) {
        if let Ok(closed) = self.socket.close() {
            ignore(&closed);
        }
    }
}

thread_local! {
    static NOTHING: Closure<dyn FnMut(JsValue)> = Closure::new(|_| {});
}

/// Lets a promise end unobserved, however it ends, and if it never does.
pub fn ignore(promise: &Promise) {
    NOTHING.with(|nothing| {
        let _ = promise.catch(nothing);
    });
}
