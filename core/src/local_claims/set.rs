//! One set of the table: a version byte, then up to 8 claims, oldest first.

use super::entry::Entry;
use crate::claim::record::{Place, Stored};
use crate::claim::{Completion, Kept};
use crate::idempotency::kept_headers::{self, SEALED};
use crate::idempotency::outcome::SealReason;
use crate::idempotency::stored;

/// The most claims of a set.
pub const CLAIMS_OF_SET: usize = 8;
/// The most bytes of a set, but for claims that run.
pub const SET_BYTES_MAX: usize = 64 * 1024;
/// The largest response that is kept, headers and body; of a larger one only that there was one.
pub const RESPONSE_BYTES_MAX: usize = 16 * 1024;
const VERSION: u8 = 1;

/// A set as it was read, without what has expired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    entries: Vec<Entry>,
}

impl Set {
    /// Reads a set; `None` for what no table of ours wrote, which is never taken for empty.
    pub fn read(mut bytes: &[u8], now_us: u64) -> Option<Set> {
        let mut entries = Vec::new();
        if bytes.is_empty() {
            return Some(Set::default());
        }
        let (VERSION, rest) = bytes.split_first().map(|(version, rest)| (*version, rest))? else { return None };
        bytes = rest;
        while !bytes.is_empty() {
            entries.push(Entry::take(&mut bytes)?);
        }
        entries.retain(|entry| entry.expires_us > now_us);
        Some(Set { entries })
    }

    pub fn write(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        self.entries.iter().for_each(|entry| entry.write(&mut bytes));
        bytes
    }

    #[cfg(test)]
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    pub fn find(&self, record_key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.record_key == record_key)
    }

    pub fn remove(&mut self, record_key: &str) {
        self.entries.retain(|entry| entry.record_key != record_key);
    }

    /// What stands at a key, for the state machine. Nothing is remembered beside records here.
    pub fn place(&self, record_key: &str) -> Place {
        let record = self.find(record_key).map(|entry| entry.record.clone());
        Place { stored: record.map_or(Stored::Absent, Stored::Record), sibling: None }
    }

    /// Puts a claim in the place of its old state, or finds it one: false when there is none, and nothing has changed.
    pub fn put(&mut self, entry: Entry, now_us: u64) -> bool {
        if self.find(&entry.record_key).is_none() && self.entries.len() >= CLAIMS_OF_SET && !self.evict("", now_us) {
            return false;
        }
        self.remove(&entry.record_key);
        let record_key = entry.record_key.clone();
        self.entries.push(entry);
        while self.write().len() > SET_BYTES_MAX && self.evict(&record_key, now_us) {}
        true
    }

    /// Throws out one claim, but not this one; false when none may go.
    fn evict(&mut self, but: &str, now_us: u64) -> bool {
        let others = self.entries.iter().filter(|entry| entry.record_key != but);
        let expendable = others.filter_map(|entry| Some((entry.expendable(now_us)?, entry.record_key.clone()))).min();
        if let Some((_, record_key)) = &expendable {
            self.remove(record_key);
        }
        expendable.is_some()
    }
}

/// The completion with no more of the response than the table keeps.
pub(super) fn bounded(completion: &Completion) -> Completion {
    let Kept::Done { status, headers, body, .. } = &completion.kept else { return completion.clone() };
    if headers.len().saturating_add(body.len()) <= RESPONSE_BYTES_MAX {
        return completion.clone();
    }
    let lines = stored::decode_headers(headers).unwrap_or_default();
    let headers = stored::encode_headers(&kept_headers::kept(&lines, &SEALED)).into_bytes();
    let fits = headers.len() <= RESPONSE_BYTES_MAX;
    let headers = if fits { headers } else { Vec::new() };
    let kept = Kept::Sealed { status: *status, headers, reason: SealReason::TooLarge.word().to_owned() };
    Completion { kept, ..completion.clone() }
}
