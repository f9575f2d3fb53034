//! The JSON of a store behind HTTP: commands as arrays of strings, a result or an error for each.

use lockkeeper_core::resp::{Decoder, Reply};
use lockkeeper_core::store::{Refusal, StoreFailure};
use serde_json::Value;

/// The pipeline of one command, from its form on the wire; `None` when an argument is no text.
pub fn pipeline(command: &[u8]) -> Option<String> {
    let mut decoder = Decoder::default();
    decoder.extend(command);
    let Ok(Some(Reply::Array(arguments))) = decoder.next_reply() else { return None };
    let arguments: Option<Vec<Value>> = arguments.into_iter().map(text).collect();
    Some(Value::Array(vec![Value::Array(arguments?)]).to_string())
}

fn text(argument: Reply) -> Option<Value> {
    match argument {
        Reply::BulkString(bytes) => String::from_utf8(bytes).ok().map(Value::String),
        _ => None,
    }
}

/// The reply to the only command of a pipeline, from the HTTP status and the body.
///
/// # Errors
/// What the answer says about whether the command ran.
pub fn reply(status: u16, body: &str) -> Result<Reply, StoreFailure> {
    match status {
        401 | 403 => return Err(StoreFailure::Refused(Refusal::Access)),
        500.. => return Err(StoreFailure::Unknown),
        _ => {}
    }
    let value: Value = serde_json::from_str(body).map_err(|_| StoreFailure::Unknown)?;
    let answer = value.get(0).unwrap_or(&value);
    if let Some(text) = answer.get("error").and_then(Value::as_str) {
        return Err(StoreFailure::of_error(text));
    }
    answer.get("result").and_then(|result| resp(result, DEPTH_MAX)).ok_or(StoreFailure::Unknown)
}

const DEPTH_MAX: usize = 4;

fn resp(value: &Value, depth: usize) -> Option<Reply> {
    match value {
        Value::Array(elements) => {
            let depth = depth.checked_sub(1)?;
            elements.iter().map(|element| resp(element, depth)).collect::<Option<_>>().map(Reply::Array)
        }
        Value::Null => Some(Reply::Null),
        Value::Number(number) => number.as_i64().map(Reply::Integer),
        Value::String(text) => Some(Reply::BulkString(text.clone().into_bytes())),
        Value::Bool(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_becomes_a_pipeline_of_one() {
        let command = b"*3\r\n$4\r\nEVAL\r\n$4\r\n\"\\\r\n\r\n$0\r\n\r\n";
        assert_eq!(pipeline(command).unwrap(), r#"[["EVAL","\"\\\r\n",""]]"#);
        assert_eq!(pipeline(b"*1\r\n$1\r\n\xff\r\n"), None);
        assert_eq!(pipeline(b"*1\r\n$1\r\n"), None);
    }

    #[test]
    fn answers_are_told_apart() {
        let refused = |refusal| Err(StoreFailure::Refused(refusal));
        let admitted = Reply::Array(vec![Reply::BulkString(b"t".to_vec()), Reply::Integer(1)]);
        let rows = [
            (200, r#"[{"result":["t",1]}]"#, Ok(admitted)),
            (200, r#"[{"error":"NOSCRIPT No matching script."}]"#, refused(Refusal::NoScript)),
            (400, r#"{"error":"ERR empty pipeline request"}"#, refused(Refusal::Other)),
            (401, r#"{"error":"Unauthorized"}"#, refused(Refusal::Access)),
            (502, "<html>", Err(StoreFailure::Unknown)),
            (200, "<html>", Err(StoreFailure::Unknown)),
            (200, "[]", Err(StoreFailure::Unknown)),
            (200, r#"[{"result":[[[[[]]]]]}]"#, Err(StoreFailure::Unknown)),
            (200, r#"[{"result":{"a":1}}]"#, Err(StoreFailure::Unknown)),
            (200, r#"[{"result":1.5}]"#, Err(StoreFailure::Unknown)),
        ];
        for (status, body, expected) in rows {
            assert_eq!(reply(status, body), expected, "{status} {body}");
        }
    }
}
