//! How near the store is.

/// The shortest round trip of the last one to two seconds: load lengthens round trips, distance does not shorten them.
#[derive(Debug)]
pub(super) struct ShortestRoundTrip {
    current_us: u64,
    previous_us: u64,
    since_us: u64,
}

impl Default for ShortestRoundTrip {
    fn default() -> ShortestRoundTrip {
        ShortestRoundTrip { current_us: u64::MAX, previous_us: u64::MAX, since_us: 0 }
    }
}

impl ShortestRoundTrip {
    const PERIOD_US: u64 = 1_000_000;

    /// Takes one more round trip.
    pub(super) fn measured(&mut self, elapsed_us: u64, now_us: u64) {
        if now_us.saturating_sub(self.since_us) > Self::PERIOD_US {
            *self = ShortestRoundTrip { current_us: u64::MAX, previous_us: self.current_us, since_us: now_us };
        }
        self.current_us = self.current_us.min(elapsed_us);
    }

    /// The shortest one; the largest number before the first is measured.
    pub(super) fn shortest_us(&self) -> u64 {
        self.current_us.min(self.previous_us)
    }
}
