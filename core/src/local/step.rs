//! The steps of a local decision, as the host sees them: keys to read, keys to write if unchanged, the decision.

use super::table::Slot;
use super::work::{Change, Work};
use crate::algorithm::Decision;

/// What the host is to do next.
#[derive(Debug)]
pub enum LocalStep<'a> {
    /// Obey the decision.
    Done(LocalDecision),
    /// Read a key and resume.
    Read(Read<'a>),
    /// Write a key if it is unchanged, and resume.
    Write(Write<'a>),
}

/// A decision taken without the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDecision {
    /// As the store would decide.
    pub decision: Decision,
    /// Charges whose identity found no entry of its own and shared the limit's overflow entry.
    pub overflowed: u32,
    /// Writes that came too late because another worker had written.
    pub mismatches: u32,
    /// Denied, though every limit admits, because other workers were faster each time. Worth an immediate retry.
    pub contended: bool,
    /// Charges of this denied request that could not be given back.
    pub lost_refunds: u32,
}

/// Whether a write took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The key had another version and is unchanged.
    Mismatch,
    /// The key had the expected version and has the new bytes.
    Written,
}

/// A key to read.
#[derive(Debug)]
pub struct Read<'a> {
    pub(super) work: Work<'a>,
    pub(super) limit: usize,
    pub(super) slot: Slot,
}

impl<'a> Read<'a> {
    /// The host's key.
    pub fn key(&self) -> &str {
        &self.slot.key
    }

    /// Goes on with what the key holds and its version; nothing and `None` for a key that does not exist.
    pub fn resume(self, bytes: &[u8], version: Option<u32>) -> LocalStep<'a> {
        self.work.after_read(self.limit, self.slot, bytes, version)
    }
}

/// A key to write.
#[derive(Debug)]
pub struct Write<'a> {
    pub(super) work: Work<'a>,
    pub(super) limit: usize,
    pub(super) change: Change,
}

impl<'a> Write<'a> {
    /// The host's key.
    pub fn key(&self) -> &str {
        &self.change.slot.key
    }

    /// What the key is to hold.
    pub fn bytes(&self) -> &[u8] {
        &self.change.bytes
    }

    /// The version the key must still have; `None` if it must not exist.
    pub fn version(&self) -> Option<u32> {
        self.change.version
    }

    /// Goes on.
    pub fn resume(self, swap: Swap) -> LocalStep<'a> {
        match swap {
            Swap::Mismatch => self.work.after_mismatch(self.limit),
            Swap::Written => self.work.after_write(self.limit, self.change.verdict),
        }
    }
}
