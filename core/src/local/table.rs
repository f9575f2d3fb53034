//! Where an identity's entry lies: which set, under which tag. Both come from a hash that is seeded for each process, so
//! that no client can choose its neighbours.

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use super::step::LocalStep;
use super::work::Work;
use crate::algorithm::Charge;

/// A table of fixed size in the host's shared map.
#[derive(Clone, Debug)]
pub struct Table {
    sets: u32,
    seed: [u8; 16],
}

/// What one request asks of one limit, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct LocalCharge<'a> {
    /// The limit, unique within the host: namespace, policy and name.
    pub limit_id: &'a str,
    /// Whose allowance it is, as bytes that no other identity of this limit has.
    pub identity: &'a [u8],
    /// What is asked.
    pub charge: Charge<'a>,
}

/// A host key and the tag of the entry under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub key: String,
    pub tag: u64,
}

impl Table {
    /// The default number of sets: 32,768 entries.
    pub const SETS: u32 = 4096;

    /// A table of `sets` sets, at least 1. All workers of a process must use the same `seed`, which should be random.
    pub fn new(sets: u32, seed: [u8; 16]) -> Self {
        Self { sets: sets.max(1), seed }
    }

    /// Begins to decide one request at `now_us` of the monotonic clock.
    pub fn start<'a>(&'a self, charges: &'a [LocalCharge<'a>], now_us: u64) -> LocalStep<'a> {
        Work::begin(self, charges, now_us)
    }

    /// The entry of one identity.
    pub(super) fn slot(&self, charge: &LocalCharge<'_>) -> Slot {
        let (place, tag) = self.hash(charge.limit_id, charge.identity);
        let sets = u64::from(self.sets);
        let index = place.checked_rem(sets).unwrap_or(0);
        let mut key = String::with_capacity(32);
        key.push_str("lockkeeper/");
        key.push_str(itoa::Buffer::new().format(sets));
        key.push('/');
        key.push_str(itoa::Buffer::new().format(index));
        Slot { key, tag }
    }

    /// The entry that all identities of a limit share when their sets are full.
    pub(super) fn overflow_slot(&self, charge: &LocalCharge<'_>) -> Slot {
        let (_, tag) = self.hash(charge.limit_id, &[]);
        Slot { key: format!("lockkeeper/overflow/{}", charge.limit_id), tag }
    }

    fn hash(&self, limit_id: &str, identity: &[u8]) -> (u64, u64) {
        let mut hasher = SipHasher24::new_with_key(&self.seed);
        hasher.write(&u64::try_from(limit_id.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.write(limit_id.as_bytes());
        hasher.write(identity);
        hasher.finish128().as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::FixedWindow;

    #[test]
    fn entries_are_apart_by_limit_identity_and_seed() {
        let algorithm = FixedWindow::new(1, 1_000_000).unwrap().into();
        let charge = Charge { algorithm: &algorithm, cost: 1, enforce: true };
        let table = Table::new(Table::SETS, [1; 16]);
        let slot = |limit_id, identity| table.slot(&LocalCharge { limit_id, identity, charge });
        let slots = [slot("a", b"bc"), slot("ab", b"c"), slot("a", b"b"), slot("a", b"")];
        for (index, one) in slots.iter().enumerate() {
            assert!(slots[index + 1..].iter().all(|other| other.tag != one.tag));
        }
        let other = Table::new(Table::SETS, [2; 16]);
        assert_ne!(other.slot(&LocalCharge { limit_id: "a", identity: b"bc", charge }), slots[0]);
    }

    #[test]
    fn no_more_keys_than_sets_are_used() {
        let algorithm = FixedWindow::new(1, 1_000_000).unwrap().into();
        let charge = Charge { algorithm: &algorithm, cost: 1, enforce: true };
        let table = Table::new(16, [1; 16]);
        let keys: std::collections::BTreeSet<String> = (0..10_000_u32)
            .map(|client| table.slot(&LocalCharge { limit_id: "a", identity: &client.to_le_bytes(), charge }).key)
            .collect();
        assert_eq!(keys.len(), 16);
    }
}
