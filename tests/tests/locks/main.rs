//! Locks and limits on requests at once through real Envoys that share a Redis: who holds what, and until when.

mod concurrency;
mod ends;
mod exclusion;
mod fence;
mod lapses;
mod together;
mod waiting;
mod world;
