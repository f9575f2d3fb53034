//! The steps of work on the table, as the host sees them: keys to read, keys to write if unchanged, what came of it.

use super::act::Said;
use super::set::Set;
use super::work::{Next, Work};
use crate::local::Swap;

/// What the host is to do next.
#[derive(Debug)]
pub enum ClaimStep<'a, T> {
    /// That was all.
    Done(T),
    /// Read a key and resume.
    Read(ClaimRead<'a, T>),
    /// Write a key if it is unchanged, and resume.
    Write(ClaimWrite<'a, T>),
}

impl<'a, T> ClaimStep<'a, T> {
    pub(super) fn of(next: Next<'a>, finish: fn(Vec<Said>) -> T) -> ClaimStep<'a, T> {
        match next {
            Next::Done(said) => ClaimStep::Done(finish(said)),
            Next::Read(work, key) => ClaimStep::Read(ClaimRead { work, key, finish }),
            Next::Write(work, write) => ClaimStep::Write(ClaimWrite { work, write, finish }),
        }
    }
}

/// A key to read.
#[derive(Debug)]
pub struct ClaimRead<'a, T> {
    work: Work<'a>,
    key: String,
    finish: fn(Vec<Said>) -> T,
}

impl<'a, T> ClaimRead<'a, T> {
    /// The host's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Goes on with what the key holds and its version; nothing and `None` for a key that does not exist.
    pub fn resume(self, bytes: &[u8], version: Option<u32>) -> ClaimStep<'a, T> {
        let set = Set::read(bytes, self.work.now_us());
        ClaimStep::of(self.work.after_read(self.key, bytes, set, version), self.finish)
    }
}

/// A key to write.
#[derive(Debug)]
pub struct ClaimWrite<'a, T> {
    work: Work<'a>,
    write: Write,
    finish: fn(Vec<Said>) -> T,
}

/// What a key is to hold, if it has still this version, and what was said then.
#[derive(Debug)]
pub(super) struct Write {
    pub key: String,
    pub bytes: Vec<u8>,
    pub version: Option<u32>,
    pub said: Said,
}

impl<'a, T> ClaimWrite<'a, T> {
    /// The host's key.
    pub fn key(&self) -> &str {
        &self.write.key
    }

    /// What the key is to hold.
    pub fn bytes(&self) -> &[u8] {
        &self.write.bytes
    }

    /// The version the key must still have; `None` if it must not exist.
    pub fn version(&self) -> Option<u32> {
        self.write.version
    }

    /// Goes on.
    pub fn resume(self, swap: Swap) -> ClaimStep<'a, T> {
        let next = match swap {
            Swap::Mismatch => self.work.after_mismatch(),
            Swap::Written => self.work.after_act(self.write.said),
        };
        ClaimStep::of(next, self.finish)
    }
}
