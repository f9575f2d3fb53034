//! One claim of the table: its record, and what the store knows of it.

use super::bytes::{take_byte, take_bytes, take_numbers, take_text, write_bytes, write_numbers};
use crate::claim::record::Record;
use crate::claim::{Ask, ClaimKind, Completion, Encoding, Fingerprint, Kept, Owner};
use crate::policy::OnUnknown;

/// A claim as the table holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub record_key: String,
    pub fence_key: String,
    /// How long the store keeps it when it is told, in ms.
    pub ttl_ms: u64,
    /// When the table forgets it.
    pub expires_us: u64,
    pub standing: Standing,
    /// Whether it must not run again when its outcome is unknown.
    pub is_strict: bool,
    /// Whether the store granted it, so that its fence is one of the store's.
    pub is_granted_by_store: bool,
    pub record: Record,
}

/// What the store knows of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing; once done, it is told from then on.
    Ours { push_at_us: u64 },
    /// It was told, and would not have it.
    Refused,
    /// As much as the table.
    Stored,
}

impl Entry {
    pub fn running(ask: &Ask, record: Record, standing: Standing) -> Entry {
        let lasts_us = ask.ttl_ms.saturating_mul(1_000).max(ask.lease_us.saturating_add(MARGIN_US));
        Entry {
            record_key: ask.record_key.clone(),
            fence_key: ask.fence_key.clone(),
            ttl_ms: ask.ttl_ms,
            expires_us: record.started_us.saturating_add(lasts_us),
            standing,
            is_granted_by_store: standing == Standing::Stored,
            is_strict: ask.kind == ClaimKind::Idempotency && ask.on_unknown == OnUnknown::Reject,
            record,
        }
    }

    pub fn finished(completion: &Completion, record: Record, standing: Standing, now_us: u64) -> Entry {
        Entry {
            record_key: completion.record_key.clone(),
            fence_key: completion.fence_key.clone(),
            ttl_ms: completion.ttl_ms,
            expires_us: now_us.saturating_add(completion.ttl_ms.saturating_mul(1_000)),
            standing,
            is_strict: true,
            is_granted_by_store: false,
            record,
        }
    }

    /// What the store is to be told of it, if it is done; under `fence` where the store gave none.
    pub fn completion(&self, fence: u64) -> Option<Completion> {
        Some(Completion {
            owner: self.record.owner,
            record_key: self.record_key.clone(),
            fence_key: self.fence_key.clone(),
            fence: if self.is_granted_by_store { self.record.fence } else { fence },
            attempt: self.record.attempt,
            ttl_ms: self.ttl_ms,
            fingerprint: self.record.fingerprint.clone(),
            kept: self.record.kept.clone()?,
        })
    }

    /// How early it is thrown out for another, lowest first; `None` for never.
    pub fn expendable(&self, now_us: u64) -> Option<(u8, u64)> {
        let has_lapsed = self.record.deadline_us <= now_us;
        let rank = match (&self.record.kept, self.standing) {
            (Some(_), Standing::Stored) => 0,
            (Some(_), Standing::Ours { .. } | Standing::Refused) => 1,
            (None, _) if has_lapsed && !self.is_strict => 0,
            (None, _) => return None,
        };
        Some((rank, self.record.started_us))
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let (standing, push_at_us) = match self.standing {
            Standing::Ours { push_at_us } => (OURS, push_at_us),
            Standing::Refused => (REFUSED, 0),
            Standing::Stored => (STORED, 0),
        };
        let record = &self.record;
        out.extend([standing, self.is_strict.into(), self.is_granted_by_store.into()]);
        write_bytes(out, self.record_key.as_bytes());
        write_bytes(out, self.fence_key.as_bytes());
        write_numbers(out, &[self.ttl_ms, self.expires_us, push_at_us, record.fence, record.attempt]);
        write_numbers(out, &[record.started_us, record.deadline_us, record.lease_us]);
        write_bytes(out, record.owner.as_bytes());
        write_bytes(out, record.fingerprint.head.as_bytes());
        write_bytes(out, record.fingerprint.body.as_bytes());
        write_bytes(out, record.fingerprint.recipe.as_bytes());
        write_kept(out, record.kept.as_ref());
    }

    /// Takes one off the front.
    pub fn take(bytes: &mut &[u8]) -> Option<Entry> {
        let standing = take_byte(bytes)?;
        let (is_strict, is_granted_by_store) = (take_byte(bytes)? != 0, take_byte(bytes)? != 0);
        let (record_key, fence_key) = (take_text(bytes)?, take_text(bytes)?);
        let [ttl_ms, expires_us, push_at_us, fence, attempt] = take_numbers(bytes)?;
        let [started_us, deadline_us, lease_us] = take_numbers(bytes)?;
        let owner = Owner::parse(take_bytes(bytes)?)?;
        let fingerprint = Fingerprint { head: take_text(bytes)?, body: take_text(bytes)?, recipe: take_text(bytes)? };
        let standing = match standing {
            OURS => Standing::Ours { push_at_us },
            REFUSED => Standing::Refused,
            STORED => Standing::Stored,
            _ => return None,
        };
        let kept = take_kept(bytes)?;
        let record = Record { owner, fence, attempt, started_us, deadline_us, lease_us, fingerprint, kept };
        Some(Entry { record_key, fence_key, ttl_ms, expires_us, standing, is_strict, is_granted_by_store, record })
    }
}

/// A running record outlives its lease by this much, as in the store.
const MARGIN_US: u64 = 1_000_000;

const OURS: u8 = 0;
const REFUSED: u8 = 1;
const STORED: u8 = 2;

const RUNNING: u8 = 0;
const SEALED: u8 = 1;
const DONE: u8 = 2;
const DONE_BASE64: u8 = 3;

fn write_kept(out: &mut Vec<u8>, kept: Option<&Kept>) {
    match kept {
        None => out.push(RUNNING),
        Some(Kept::Sealed { status, headers, reason }) => {
            out.push(SEALED);
            write_numbers(out, &[u64::from(*status)]);
            write_bytes(out, headers);
            write_bytes(out, reason.as_bytes());
        }
        Some(Kept::Done { status, headers, body, encoding }) => {
            out.push(if *encoding == Encoding::Base64 { DONE_BASE64 } else { DONE });
            write_numbers(out, &[u64::from(*status)]);
            write_bytes(out, headers);
            write_bytes(out, body);
        }
    }
}

fn take_kept(bytes: &mut &[u8]) -> Option<Option<Kept>> {
    let kind = take_byte(bytes)?;
    if kind == RUNNING {
        return Some(None);
    }
    let [status] = take_numbers(bytes)?;
    let (status, headers) = (u16::try_from(status).ok()?, take_bytes(bytes)?.to_vec());
    Some(Some(match kind {
        SEALED => Kept::Sealed { status, headers, reason: take_text(bytes)? },
        DONE => Kept::Done { status, headers, body: take_bytes(bytes)?.to_vec(), encoding: Encoding::Plain },
        DONE_BASE64 => Kept::Done { status, headers, body: take_bytes(bytes)?.to_vec(), encoding: Encoding::Base64 },
        _ => return None,
    }))
}
