//! The local limiter: one limiter for all workers of an instance, for when the store cannot be asked.
//!
//! The host owns a map from keys to bytes with compare-and-swap, shared by its workers. It needs no deletion and no
//! lifetimes: a [`Table`] uses a fixed number of keys, each a *set* of up to 8 entries, one entry for each limit and
//! identity. Memory never grows beyond the table, whatever clients send:
//!
//! * An entry takes at most 42 bytes for a token bucket, 38 for a counter, 32 for a fixed window, 596 for a sliding
//!   window with a full log (about 20, and 4 more for each request, with a short one).
//! * A set of 8 token buckets takes at most 337 bytes, so the default table of 4,096 sets at most 1.4 MB, and 20 MB if
//!   every entry is a full log; to this come the host's own bytes for each key.
//! * Each limit adds one key of its own for overflow.
//!
//! An entry is thrown out only when it equals a fresh one, so a flood of other keys never frees anybody. A new key that
//! finds all 8 entries of its set in use shares its limit's overflow entry, which has that limit's numbers; the decision
//! says so. In the default table that happens to 1 in 1,000 of 10,000 identities in use at once, to 1 in 50 of 20,000. Time is the host's monotonic clock. The log of a sliding window is bounded to 64 entries: beyond that
//! neighbours are merged into the later one, which may deny early and never admits too much.
//!
//! The host obeys steps and is never called back:
//!
//! ```
//! use std::collections::HashMap;
//! use lockkeeper_core::algorithm::{Charge, FixedWindow};
//! use lockkeeper_core::local::{LocalCharge, LocalStep, Swap, Table};
//!
//! # fn main() -> Result<(), lockkeeper_core::algorithm::DomainError> {
//! let mut shared: HashMap<String, (Vec<u8>, u32)> = HashMap::new();
//! let table = Table::new(Table::SETS, [7; 16]);
//! let algorithm = FixedWindow::new(10, 60_000_000)?.into();
//! let charge = Charge { algorithm: &algorithm, cost: 1, enforce: true };
//! let charges = [LocalCharge { limit_id: "api/per-ip", identity: b"192.0.2.1", charge }];
//!
//! let mut step = table.start(&charges, 5_000_000);
//! let local = loop {
//!     step = match step {
//!         LocalStep::Read(read) => match shared.get(read.key()) {
//!             Some((bytes, version)) => read.resume(bytes, Some(*version)),
//!             None => read.resume(&[], None),
//!         },
//!         LocalStep::Write(write) => {
//!             let found = shared.get(write.key()).map(|(_, version)| *version);
//!             if found == write.version() {
//!                 let next = (write.bytes().to_vec(), found.unwrap_or(0) + 1);
//!                 shared.insert(write.key().to_string(), next);
//!                 write.resume(Swap::Written)
//!             } else {
//!                 write.resume(Swap::Mismatch)
//!             }
//!         }
//!         LocalStep::Done(local) => break local,
//!     };
//! };
//! assert!(local.decision.allowed);
//! assert_eq!(local.decision.verdicts[0].remaining, 9);
//! # Ok(())
//! # }
//! ```

mod compact;
mod set;
mod step;
mod table;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use compact::{read_number, write_number};
pub use step::{LocalDecision, LocalStep, Read, Swap, Write};
pub use table::{LocalCharge, Table};
