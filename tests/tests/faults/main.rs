//! A store that fails, under load: no request waits past its deadline, every answer is the policy's, and limits are global again soon after.

mod observe;
mod redis;
mod stub;
mod wiring;
