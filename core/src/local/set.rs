//! One set of the table: a version byte, then up to 8 entries of different limits and identities.

use super::compact::{read_number, write_number};

/// Entries in a set.
pub(super) const ENTRIES: usize = 8;
/// Room for a set as it mostly is.
const BYTES: usize = 256;
/// Anything written by another version is an empty set.
const VERSION: u8 = 1;

/// A set as the host stores it.
#[derive(Clone, Debug)]
pub(super) struct Set<'a> {
    /// Whole entries, at most [`ENTRIES`].
    entries: &'a [u8],
}

/// One limit's state for one identity.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    tag: u64,
    /// Time from which the entry equals a fresh one and may be thrown out.
    fresh_at_us: u64,
    state: &'a [u8],
}

impl<'a> Set<'a> {
    /// Reads a set; corrupt bytes are an empty one.
    pub fn read(bytes: &'a [u8]) -> Self {
        let entries = match bytes.split_first() {
            Some((&VERSION, entries)) if are_entries(entries) => entries,
            _ => &[],
        };
        Self { entries }
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut rest = self.entries;
        std::iter::from_fn(move || Entry::take(&mut rest))
    }

    /// The state under a tag.
    pub fn find(&self, tag: u64) -> Option<&'a [u8]> {
        self.entries().find(|entry| entry.tag == tag).map(|entry| entry.state)
    }

    /// Whether a tag that is not in the set can have an entry of its own.
    pub fn has_room(&self, now_us: u64) -> bool {
        self.entries().filter(|entry| entry.fresh_at_us > now_us).count() < ENTRIES
    }

    /// The set's bytes with `state` under `tag`, and without entries that equal fresh ones.
    pub fn with(&self, tag: u64, fresh_at_us: u64, state: &[u8], now_us: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        let mut keep = |entry: Entry<'_>| {
            if entry.fresh_at_us > now_us {
                entry.write(&mut bytes);
            }
        };
        self.entries().filter(|entry| entry.tag != tag).for_each(&mut keep);
        keep(Entry { tag, fresh_at_us, state });
        bytes
    }
}

impl<'a> Entry<'a> {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.tag.to_le_bytes());
        write_number(bytes, self.fresh_at_us);
        write_number(bytes, self.state.len().try_into().unwrap_or(u64::MAX));
        bytes.extend(self.state);
    }

    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        let fresh_at_us = read_number(bytes)?;
        let length = usize::try_from(read_number(bytes)?).ok()?;
        let (state, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        Some(Self { tag: u64::from_le_bytes(*tag), fresh_at_us, state })
    }
}

fn are_entries(mut bytes: &[u8]) -> bool {
    (0..ENTRIES).all(|_| bytes.is_empty() || Entry::take(&mut bytes).is_some()) && bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Vec<u8> {
        let tags_and_times = (0..8).zip(100..);
        tags_and_times
            .fold(Vec::new(), |bytes, (tag, fresh_at_us)| Set::read(&bytes).with(tag, fresh_at_us, &[9, 9], 0))
    }

    #[test]
    fn a_full_set_has_room_once_an_entry_is_as_good_as_fresh() {
        let bytes = filled();
        let set = Set::read(&bytes);
        assert_eq!((set.has_room(99), set.has_room(100)), (false, true));
        let bytes = set.with(77, 200, &[7], 100);
        let set = Set::read(&bytes);
        assert_eq!((set.find(0), set.find(1), set.find(77)), (None, Some(&[9, 9][..]), Some(&[7][..])));
    }

    #[test]
    fn an_entry_that_became_fresh_is_left_out() {
        let bytes = filled();
        assert_eq!(Set::read(&Set::read(&bytes).with(3, 50, &[9], 50)).find(3), None);
    }

    #[test]
    fn corrupt_bytes_are_an_empty_set() {
        let bytes = filled();
        for cut in 1..bytes.len() {
            let shorter = Set::read(&bytes[..cut]);
            assert!(shorter.entries().count() < 8, "cut at {cut}");
        }
        let mut newer = bytes.clone();
        newer[0] = 2;
        let longer = [&bytes[..], &bytes[1..]].concat();
        for corrupt in [&[][..], &[2], &newer, &longer] {
            assert!(Set::read(corrupt).entries.is_empty());
        }
    }
}
