//! A store behind HTTP: one request for each command.

use lockkeeper_core::resp::{REPLY_BYTES_MAX, Reply};
use lockkeeper_core::store::StoreFailure;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use worker::web_sys::{AbortController, Headers, Request, RequestInit, Response, WorkerGlobalScope};

use super::rest_json;
use crate::host::HostResult;

/// The HTTP requests of one decision; they end with it.
#[derive(Default)]
pub struct RestSession {
    abort: Option<AbortController>,
}

impl RestSession {
    /// Sends a command and waits for its reply, for as long as the caller does. An HTTP request that fails may have
    /// arrived.
    pub async fn ask(&mut self, url: &str, token: &str, command: &[u8]) -> Result<Reply, StoreFailure> {
        let body = rest_json::pipeline(command).ok_or(StoreFailure::NotSent)?;
        let request = self.request(url, token, &body).map_err(|_| StoreFailure::NotSent)?;
        let (status, body) = exchange(&request).await.map_err(|_| StoreFailure::Unknown)?;
        if body.len() > REPLY_BYTES_MAX {
            return Err(StoreFailure::Unknown);
        }
        rest_json::reply(status, &body)
    }

    fn request(&mut self, url: &str, token: &str, body: &str) -> HostResult<Request> {
        let headers = Headers::new()?;
        headers.set("authorization", &format!("Bearer {token}"))?;
        headers.set("content-type", "application/json")?;
        let init = RequestInit::new();
        init.set_method("POST");
        init.set_headers_headers(&headers);
        init.set_body(&JsValue::from_str(body));
        let abort = self.abort.insert(AbortController::new()?);
        init.set_signal(Some(&abort.signal()));
        Request::new_with_str_and_init(&format!("{url}/pipeline"), &init)
    }

    /// Ends a request that nobody waits for.
    pub fn close(&mut self) {
        if let Some(abort) = self.abort.take() {
            abort.abort();
        }
    }
}

async fn exchange(request: &Request) -> HostResult<(u16, String)> {
    let global: WorkerGlobalScope = js_sys::global().unchecked_into();
    let response: Response = JsFuture::from(global.fetch_with_request(request)).await?.unchecked_into();
    let body = JsFuture::from(response.text()?).await?;
    Ok((response.status(), body.as_string().unwrap_or_default()))
}
