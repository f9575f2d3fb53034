//! The response of a request that holds a claim, on its way to the client: what is kept of it, and what its end means
//! for the claim.

use crate::idempotency::kept_headers::{self, Line};
use crate::idempotency::outcome::{self, Dispatched, EndRules, Ending, Exchange, SealReason};
use crate::idempotency::stored::Stored;
use crate::policy::{Idempotency, Respond};

/// A response's head, as the upstream sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status.
    pub status: u16,
    /// All header lines, in order.
    pub lines: Vec<Line>,
    /// Whether it is the whole response.
    pub ends: bool,
}

/// How the host passes the response on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It is held until its record is stored.
    Held,
    /// It goes on as it comes.
    Followed,
}

/// What the end of a request means for what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// What becomes of its record.
    pub record: RecordEnd,
    /// Whether the upstream has certainly stopped working on it, so that locks may go.
    pub is_over: bool,
}

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// The response is kept for replays.
    Keep(Stored),
    /// The operation is done, and its response is not kept.
    Seal(Stored, SealReason),
    /// The claim is given back.
    Release {
        /// Whether the attempt counts as none.
        uncount: bool,
    },
    /// It is no longer renewed.
    LeaveUnknown,
}

impl End {
    /// The upstream has answered, and nothing is kept of it.
    pub const RELEASED: End = End { record: RecordEnd::Release { uncount: false }, is_over: true };

    /// The upstream did not answer, or not to the end.
    pub fn cut(dispatched: Dispatched) -> End {
        match dispatched {
            Dispatched::Never => End { record: RecordEnd::Release { uncount: true }, is_over: true },
            Dispatched::Maybe => End { record: RecordEnd::LeaveUnknown, is_over: false },
        }
    }
}

/// A response whose head has come.
#[derive(Debug)]
pub struct Capture {
    exchange: Exchange,
    rules: EndRules,
    lines: Vec<Line>,
    body: Vec<u8>,
    bytes_max: usize,
    pass: Pass,
}

impl Capture {
    /// Begins with the head.
    pub fn start(rules: &Idempotency, head: &ResponseHead) -> Capture {
        let has = |wanted: &str| head.lines.iter().any(|(name, _)| name == wanted);
        let length = content_length(head);
        let bytes_max = rules.stored.max_body_bytes;
        let exchange = Exchange {
            dispatched: Dispatched::Maybe,
            is_complete: true,
            status: head.status,
            is_upgrade: head.status == 101,
            has_trailers: false,
            is_stream: is_stream(head),
            is_too_large: length.is_some_and(|length| length > bytes_max as u64),
            sets_cookie: has("set-cookie"),
        };
        let end_rules = EndRules { on_unknown: rules.on_unknown, seal_set_cookie: rules.stored.seal_set_cookie };
        // A key that is given back is held, too: a client that tries again at once must not meet its own claim.
        let is_told = matches!(
            outcome::ending(&exchange, end_rules),
            Ending::Keep | Ending::Seal(SealReason::SetCookie) | Ending::Release { .. }
        );
        let fits = length.is_some_and(|length| length <= bytes_max as u64) && !exchange.is_upgrade;
        let is_held = rules.respond == Respond::AfterStore && fits && is_told;
        Capture {
            lines: kept_headers::kept(&head.lines, &rules.stored.headers),
            body: Vec::new(),
            bytes_max,
            pass: if is_held { Pass::Held } else { Pass::Followed },
            exchange,
            rules: end_rules,
        }
    }

    /// How the host passes the response on.
    pub fn pass(&self) -> Pass {
        self.pass
    }

    /// Whether the next bytes may be kept.
    pub fn wants_more(&self) -> bool {
        matches!(outcome::ending(&self.exchange, self.rules), Ending::Keep)
    }

    /// Takes the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.body.len().saturating_add(bytes.len()) > self.bytes_max {
            self.exchange.is_too_large = true;
            self.body = Vec::new();
        } else if self.wants_more() {
            self.body.extend_from_slice(bytes);
        }
    }

    /// The response ends with trailers.
    pub fn has_trailers(&mut self) {
        self.exchange.has_trailers = true;
    }

    /// The whole response has come.
    pub fn end(self) -> End {
        let status = self.exchange.status;
        let record = match outcome::ending(&self.exchange, self.rules) {
            Ending::Keep => RecordEnd::Keep(Stored { status, headers: self.lines, body: self.body }),
            Ending::Seal(reason) => {
                let headers = kept_headers::kept(&self.lines, &kept_headers::SEALED);
                RecordEnd::Seal(Stored { status, headers, body: Vec::new() }, reason)
            }
            Ending::Release { uncount } => RecordEnd::Release { uncount },
            Ending::LeaveUnknown => RecordEnd::LeaveUnknown,
        };
        End { record, is_over: true }
    }
}

/// The length that the head declares, when there is nothing but that to come.
fn content_length(head: &ResponseHead) -> Option<u64> {
    if head.ends {
        return Some(0);
    }
    let mut lengths = head.lines.iter().filter(|(name, _)| name == "content-length");
    let (_, value) = lengths.next()?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Whether the content is events without end, or gRPC messages.
fn is_stream(head: &ResponseHead) -> bool {
    let content_type = head.lines.iter().find(|(name, _)| name == "content-type");
    let content_type =
        content_type.map_or(String::new(), |(_, value)| String::from_utf8_lossy(value).to_ascii_lowercase());
    content_type.starts_with("text/event-stream") || content_type.starts_with("application/grpc")
}
