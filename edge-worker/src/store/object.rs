//! Asking a Durable Object that holds a connection to the store, by a call of its method.

use js_sys::{Object, Reflect, Uint8Array};
use lockkeeper_core::resp::Reply;
use lockkeeper_core::store::StoreFailure;
use wasm_bindgen::prelude::*;

use super::wire;
use crate::host::{HostResult, member};

/// The binding of the objects' namespace.
const BINDING: &str = "STORE_CONNECTION";

#[wasm_bindgen]
extern "C" {
    type Namespace;
    #[wasm_bindgen(method, js_name = getByName, catch)]
    fn by_name(this: &Namespace, name: &str, options: &JsValue) -> HostResult<Stub>;

    type Stub;
    #[wasm_bindgen(method, catch)]
    async fn ask(
        this: &Stub,
        tag: &str,
        command: Uint8Array,
        wait_ms: f64,
        probe_key: &str,
        is_bulky: bool,
    ) -> HostResult<JsValue>;
}

/// What an object is asked.
pub struct Question<'q> {
    /// The command's mark.
    pub tag: &'q str,
    /// The command.
    pub command: &'q [u8],
    /// How long its reply is waited for.
    pub wait_us: u64,
    /// What the object may write when it looks whether the store is back.
    pub probe_key: &'q str,
    /// Whether the commands of others go first.
    pub gives_way: bool,
}

/// The object's answer. A call that fails may have reached the store.
///
/// # Errors
/// [`Unanswered`] when it was not the object that answered.
pub async fn ask(
    environment: &JsValue,
    (object, location): (u32, Option<&str>),
    question: Question<'_>,
) -> Result<Result<Reply, StoreFailure>, Unanswered> {
    let stub = stub(environment, object, location).map_err(|_| Unanswered(StoreFailure::NotSent))?;
    let Question { tag, command, wait_us, probe_key, gives_way } = question;
    let wait_ms = wait_us.div_ceil(1_000) as f64;
    let answer = stub.ask(tag, Uint8Array::from(command), wait_ms, probe_key, gives_way).await;
    let bytes = answer.map_err(|_| Unanswered(StoreFailure::Unknown))?;
    Ok(wire::decode(&bytes.unchecked_into::<Uint8Array>().to_vec()))
}

/// No answer of the object, and what that means for the command.
pub struct Unanswered(pub StoreFailure);

fn stub(environment: &JsValue, object: u32, location: Option<&str>) -> HostResult<Stub> {
    let namespace: Namespace = member(environment, BINDING).ok_or(JsValue::NULL)?.unchecked_into();
    let options = match location {
        Some(location) => {
            let options = Object::new();
            Reflect::set(&options, &"locationHint".into(), &location.into())?;
            options.into()
        }
        None => JsValue::UNDEFINED,
    };
    namespace.by_name(&format!("store-{object}"), &options)
}
