//! The instance's own table of claims: for policies whose claims this instance protects by itself while the store fails.
//!
//! Such a policy's claims stand in the table whether or not the store is well. While it is, the table *mirrors* what the
//! store grants to this instance; while it is not, the table grants by itself. So no request of one instance runs beside
//! another with the same key, whichever of the two let it pass:
//!
//! * The store grants: [`ClaimTable::adopt`] notes it, unless another request holds the key by the table's word alone.
//! * The store fails: [`ClaimTable::take`] grants, unless the table knows the key.
//! * What a request does with what it holds, [`ClaimTable::tell`] does in the table.
//! * What the table alone knows to be done, [`ClaimTable::sweep`] finds when the store is back: it is told, and keeps it
//!   where it knows nothing of the key.
//!
//! Memory is bounded as for the [local limiter](crate::local): a fixed number of host keys, each a *set* of up to 8
//! claims and 64 KiB; 256 sets by default, so 2,048 claims and 16 MiB. Of a response up to 16 KiB are kept, of a larger
//! one that there was one. A new claim throws out the oldest of its set that is done; never one that runs, nor one whose
//! outcome is unknown and must not run again. A set full of those takes no other claim.
//!
//! The states are those of [the store's records](crate::claim::record), and so is the code; time is the host's monotonic
//! clock. Fences of the table are times of that clock, compared here and never shown to anybody.

mod act;
mod bytes;
mod call;
mod entry;
mod set;
mod step;
mod table;
#[cfg(test)]
mod tests;
mod work;

pub use act::Known;
pub use call::LocalClaimCall;
pub use set::{CLAIMS_OF_SET, RESPONSE_BYTES_MAX, SET_BYTES_MAX};
pub use step::{ClaimRead, ClaimStep, ClaimWrite};
pub use table::{ClaimTable, Swept, Taken};
