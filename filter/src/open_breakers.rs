//! How many breakers are open in this Envoy. Each root writes down when it last saw its own open, in a list that all share,
//! and each counts what is recent there: a VM that has crashed cannot take its breaker out of a count.

use std::cell::Cell;

use crate::host::{self, Swap};

const KEY: &str = "lockkeeper/open_breakers";
/// How often each root looks, in microseconds.
const PERIOD_US: u64 = 1_000_000;
/// An entry that was not renewed for this long is of a root that is gone.
const RECENT_US: u64 = 3 * PERIOD_US;
const ATTEMPTS_MAX: usize = 4;

/// One root's part in the list.
pub struct OpenBreakers {
    id: u64,
    looked_us: Cell<u64>,
    was_open: Cell<bool>,
}

/// One open breaker: the root's number, and when it was seen last.
struct Entry {
    id: u64,
    seen_us: u64,
}

impl OpenBreakers {
    /// The part of a root with a breaker that is closed. Its number is random.
    pub fn new() -> OpenBreakers {
        let id = host::random_bytes().map_or_else(|_| host::monotonic_us(), u64::from_le_bytes);
        OpenBreakers { id, looked_us: Cell::new(0), was_open: Cell::new(false) }
    }

    /// Writes down what this root's breaker is. Gives how many are open, once a second and when this one changes.
    pub fn report(&self, is_open: bool, now_us: u64) -> Option<u64> {
        let is_due = now_us.saturating_sub(self.looked_us.get()) >= PERIOD_US;
        if self.was_open.replace(is_open) == is_open && !is_due {
            return None;
        }
        self.looked_us.set(now_us);
        (0..ATTEMPTS_MAX).find_map(|_| self.renew(is_open, now_us))
    }

    /// `None` when another root was faster.
    fn renew(&self, is_open: bool, now_us: u64) -> Option<u64> {
        let shared = host::shared_data(KEY).ok()?;
        let (bytes, version) = shared.map_or((Vec::new(), None), |(bytes, version)| (bytes, Some(version)));
        let mut entries: Vec<Entry> = entries(&bytes).filter(|entry| entry.is_recent(now_us)).collect();
        entries.retain(|entry| entry.id != self.id);
        if is_open {
            entries.push(Entry { id: self.id, seen_us: now_us });
        }
        let renewed: Vec<u8> = entries.iter().flat_map(Entry::bytes).collect();
        let is_written = renewed == bytes || host::swap_shared_data(KEY, &renewed, version) == Ok(Swap::Written);
        is_written.then(|| u64::try_from(entries.len()).unwrap_or(u64::MAX))
    }
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry> {
    bytes.chunks_exact(16).filter_map(|entry| {
        let (id, seen_us) = entry.split_first_chunk()?;
        Some(Entry { id: u64::from_le_bytes(*id), seen_us: u64::from_le_bytes(seen_us.try_into().ok()?) })
    })
}

impl Entry {
    fn is_recent(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.seen_us) < RECENT_US
    }

    fn bytes(&self) -> Vec<u8> {
        [self.id, self.seen_us].map(u64::to_le_bytes).concat()
    }
}
