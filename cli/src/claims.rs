//! The claims of a request as they stand in the store: what an operator may know of them. What was kept of a response is
//! never read, and an owner, which lets its bearer act for it, is shown by its first digits.

use std::fmt::Write;

use anyhow::{Context, Result};
use lockkeeper_core::claim::record::{Record, Sibling};
use lockkeeper_core::claim::{Ask, ClaimKind, HeldClaim, Kept};
use redis::{Connection, Value};
use serde::Serialize;

use crate::style::{self, paint, seconds};

/// Everything of a record but the content of a response.
const FIELDS: [&str; 14] = ["v", "s", "o", "f", "d", "l", "p", "q", "pv", "n", "t", "c", "e", "x"];
/// How much of an owner is shown.
pub const OWNER_DIGITS: usize = 8;

/// One claim.
#[derive(Debug, Serialize)]
pub struct Claim {
    /// `idempotency` or `lock`.
    pub kind: &'static str,
    /// The key of its record.
    pub store_key: String,
    /// What stands there.
    pub state: State,
    /// The first digits of its owner.
    pub owner: Option<String>,
    /// The last fencing token that was given.
    pub fence: Option<u64>,
    /// The last attempt that counts.
    pub attempt: Option<u64>,
    /// Microseconds since it was claimed.
    pub age_us: Option<u64>,
    /// Microseconds until its lease ends; below zero when it has ended.
    pub lease_left_us: Option<i64>,
    /// The status of the response that was kept, or was not.
    pub status: Option<u16>,
    /// Why the response was not kept.
    pub reason: Option<String>,
    /// Milliseconds until the record expires.
    pub ttl_ms: Option<u64>,
    /// What the store compares when it is given back.
    #[serde(skip)]
    pub held: HeldClaim,
    /// Who holds it.
    #[serde(skip)]
    pub record: Option<Record>,
}

/// What a claim's record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There is none.
    Free,
    /// Its holder is alive, as far as the store knows.
    Running,
    /// Its lease has ended, and nobody has said what came of it.
    Unknown,
    /// Done: the response is kept.
    Done,
    /// Done: the response is not kept.
    Sealed,
    /// Something else wrote this key.
    Corrupt,
}

/// Reads a claim. Never writes.
///
/// # Errors
/// When the store fails.
pub fn read(ask: &Ask, now_us: u64, connection: &mut Connection) -> Result<Claim> {
    let key = &ask.record_key;
    let kind = type_of(key, connection)?;
    let record = read_record(key, connection)?;
    let ttl_ms: i64 = redis::cmd("PTTL").arg(key).query(connection).context("PTTL")?;
    let remembered = remembered(&ask.fence_key, connection)?;
    let state = match &record {
        None if kind == "none" => State::Free,
        None => State::Corrupt,
        Some(record) => state(record, now_us),
    };
    let found = record.as_ref();
    let (status, reason) = found.and_then(|record| record.kept.as_ref()).map_or((None, None), outcome);
    Ok(Claim {
        kind: match ask.kind {
            ClaimKind::Idempotency => "idempotency",
            ClaimKind::Lock => "lock",
        },
        store_key: key.clone(),
        state,
        owner: found.map(|record| record.owner.to_string().chars().take(OWNER_DIGITS).collect()),
        fence: found.map(|record| record.fence).or(remembered.map(|last| last.fence)),
        attempt: found.map(|record| record.attempt).or(remembered.map(|last| last.attempt)),
        age_us: found.map(|record| now_us.saturating_sub(record.started_us)),
        lease_left_us: found.filter(|record| record.kept.is_none()).map(|record| left_us(record, now_us)),
        status,
        reason,
        ttl_ms: u64::try_from(ttl_ms).ok(),
        held: HeldClaim {
            record_key: key.clone(),
            fence_key: ask.fence_key.clone(),
            fence: found.map(|record| record.fence),
            lease_us: ask.lease_us,
            ttl_ms: ask.ttl_ms,
        },
        record,
    })
}

/// The record at a key, without its content; `None` when there is none, or none of ours.
pub fn read_record(key: &str, connection: &mut Connection) -> Result<Option<Record>> {
    if type_of(key, connection)? != "hash" {
        return Ok(None);
    }
    let found: Vec<Value> = redis::cmd("HMGET").arg(key).arg(&FIELDS).query(connection).context("HMGET")?;
    let has_content: bool = redis::cmd("HEXISTS").arg(key).arg("b").query(connection).context("HEXISTS")?;
    let field = |wanted: &str| {
        if matches!(wanted, "b" | "h") {
            return has_content.then_some(&b""[..]);
        }
        let place = FIELDS.iter().position(|name| *name == wanted)?;
        match found.get(place)? {
            Value::BulkString(bytes) => Some(bytes.as_slice()),
            _ => None,
        }
    };
    Ok(Record::parse(field))
}

fn type_of(key: &str, connection: &mut Connection) -> Result<String> {
    redis::cmd("TYPE").arg(key).query(connection).context("TYPE")
}

fn remembered(key: &str, connection: &mut Connection) -> Result<Option<Sibling>> {
    if type_of(key, connection)? != "string" {
        return Ok(None);
    }
    let text: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(connection).context("GET")?;
    Ok(text.and_then(|text| Sibling::parse(&text)))
}

fn state(record: &Record, now_us: u64) -> State {
    match &record.kept {
        Some(Kept::Done { .. }) => State::Done,
        Some(Kept::Sealed { .. }) => State::Sealed,
        None if left_us(record, now_us) > 0 => State::Running,
        None => State::Unknown,
    }
}

/// A deadline further ahead than the lease is one of a clock that has stepped back since.
fn left_us(record: &Record, now_us: u64) -> i64 {
    let deadline_us = record.deadline_us.min(now_us.saturating_add(record.lease_us));
    let signed = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
    signed(deadline_us).saturating_sub(signed(now_us))
}

fn outcome(kept: &Kept) -> (Option<u16>, Option<String>) {
    match kept {
        Kept::Done { status, .. } => (Some(*status), None),
        Kept::Sealed { status, reason, .. } => (Some(*status), Some(reason.clone())),
    }
}

/// The claim as text.
pub fn described(claim: &Claim) -> String {
    let mut text = format!("{} {}\n", paint(style::STRONG, claim.kind), claim.store_key);
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "  {} {value}", paint(style::FAINT, format!("{name:<10}")));
        }
    };
    row("state", Some(state_text(claim.state).into()));
    row("owner", claim.owner.as_ref().map(|digits| format!("{digits}…")));
    row("fence", claim.fence.map(|fence| format!("{fence:016}")));
    row("attempt", claim.attempt.map(|attempt| attempt.to_string()));
    row("claimed", claim.age_us.map(|us| format!("{} ago", seconds(us))));
    row("lease", claim.lease_left_us.map(lease_text));
    row("status", claim.status.map(|status| status.to_string()));
    row("reason", claim.reason.clone());
    row("expires", claim.ttl_ms.map(|ms| format!("in {}", seconds(ms.saturating_mul(1_000)))));
    text
}

fn state_text(state: State) -> &'static str {
    match state {
        State::Free => "free",
        State::Running => "running",
        State::Unknown => "unknown: its holder has not said what came of it",
        State::Done => "done",
        State::Sealed => "done, and its response was not kept",
        State::Corrupt => "corrupt: something else wrote this key, and requests are refused while it stands",
    }
}

fn lease_text(left_us: i64) -> String {
    match left_us {
        1.. => format!("ends in {}", seconds(left_us.unsigned_abs())),
        _ => format!("ended {} ago", seconds(left_us.unsigned_abs())),
    }
}
