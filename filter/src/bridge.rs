//! The other end of the pipe: an HTTP filter of the store's cluster, whose streams go on as raw TCP. It takes the gRPC
//! frames off what goes to the store and puts them around what comes back.

use std::cell::Cell;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, BufferType};

use crate::frame::{Unframer, frame};
use crate::host;

/// One pipe.
#[derive(Default)]
pub struct Bridge {
    unframer: Unframer,
}

thread_local! {
    static IS_IN_THIS_VM: Cell<bool> = const { Cell::new(false) };
}

impl Bridge {
    /// This VM is going to run bridges.
    pub fn settle_in_this_vm() {
        IS_IN_THIS_VM.set(true);
    }

    /// Whether this VM runs bridges. The host calls the bridge while the filter opens the pipe or sends, and the SDK panics
    /// on calls that nest in one VM: a filter must not use a pipe there.
    pub fn is_in_this_vm() -> bool {
        IS_IN_THIS_VM.get()
    }
}

impl Context for Bridge {}

impl HttpContext for Bridge {
    fn on_http_request_body(&mut self, size: usize, _end_of_stream: bool) -> Action {
        let body = host::buffer(BufferType::HttpRequestBody, 0, size).unwrap_or_default();
        match self.unframer.unframe(&body) {
            Ok(raw) => replace(BufferType::HttpRequestBody, size, &raw),
            Err(error) => {
                log::error!("lockkeeper: the bridge got a frame that is not ours ({error:?})");
                let _ = host::reset_stream();
                Action::Pause
            }
        }
    }

    /// Envoy says 200 as soon as it is connected; a gRPC client also wants the content type.
    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        if host::response_header(":status").ok().flatten().as_deref() == Some(b"200") {
            let _ = host::set_response_header("content-type", "application/grpc");
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if size == 0 {
            return Action::Continue;
        }
        if end_of_stream {
            // Last bytes that come together with the end are dropped. The other end answers a message by sending, and
            // sending on a stream that has just ended makes the host report its end inside that very callback: the
            // SDK panics on callbacks that nest.
            let _ = host::reset_stream();
            return Action::Pause;
        }
        let body = host::buffer(BufferType::HttpResponseBody, 0, size).unwrap_or_default();
        replace(BufferType::HttpResponseBody, size, &frame(&body))
    }
}

/// Bytes that cannot be replaced must not pass as they are: the reader would take frames for replies.
fn replace(kind: BufferType, size: usize, bytes: &[u8]) -> Action {
    if host::replace_buffer(kind, size, bytes).is_err() {
        let _ = host::reset_stream();
        return Action::Pause;
    }
    Action::Continue
}
