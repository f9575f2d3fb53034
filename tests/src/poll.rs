//! Bounded waiting for something another process does; there is no other kind of waiting in the harness.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(5);

/// Asks every 5 ms until `ready` has an answer; an error that names `what` after `deadline`.
pub fn until<T>(what: &str, deadline: Duration, mut ready: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ready() {
            return Ok(answer);
        }
        if start.elapsed() > deadline {
            bail!("{what}: not within {deadline:?}");
        }
        std::thread::sleep(STEP);
    }
}
