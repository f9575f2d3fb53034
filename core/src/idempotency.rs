//! Idempotency without a store: what a key is, what makes two requests the same, what is kept of a response, and what a
//! retry gets of it. All of it is plain data in and out.

mod canonical_json;
pub mod content_digest;
pub mod fingerprint;
mod gzip;
pub mod kept_headers;
pub mod key;
pub mod outcome;
pub mod replay;
pub mod stored;
