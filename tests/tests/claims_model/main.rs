//! The protocol of claims, checked exhaustively in small worlds: two or three requests, one key, and every order in which
//! their commands arrive late, twice or never, leases lapse, gateways die, clocks step and the store fails over. What the
//! store does is the core's own state machine.
//!
//! What must hold ([`protocol`] has the exact words):
//!
//! 1. *one at a time*: at most one request believes that it holds the claim;
//! 2. *stale is powerless*: who was overtaken changes nothing in the store;
//! 3. *finished stays*: no command changes a finished record;
//! 4. *fences rise*: each grant's fence is above all before it, so a resource that checks fences accepts none that is
//!    below one it has seen, and never refuses the holder;
//! 5. *at most once*: with `on_unknown: reject` at most one request reaches the upstream.
//!
//! What may break what, so that the worlds of the first two tests exclude it:
//!
//! * A failover that loses a grant breaks 1 and 5, and 2 in that the store itself no longer knows who was overtaken: it is
//!   judged by the history that survived. It cannot break 3 for a record that survived, nor 4 while the new clock is ahead
//!   of the fences before or the gateway knows them.
//! * A clock of the store that steps forward ends leases early: it breaks 1, and neither 2, 3, 4 nor 5.
//! * A record that is evicted is a lost grant; `noeviction` is required.

mod protocol;
mod state;
mod store;
mod tests;
