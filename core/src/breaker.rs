//! Stops asking a store that does not answer: after a few failures in a row nobody waits for it, and single probes
//! with growing, jittered pauses look whether it is back.

/// How the breaker reacts.
#[derive(Clone, Copy, Debug)]
pub struct BreakerConfig {
    /// Failures in a row that open it.
    pub failures_max: u32,
    /// Failures closer together than this, in microseconds, have one cause and count as one: a moment's stall fails
    /// everything in flight, and must not stop the calls after it.
    pub failure_spacing_us: u64,
    /// The first pause before a probe, in microseconds.
    pub pause_min_us: u64,
    /// The longest pause, in microseconds.
    pub pause_max_us: u64,
}

impl Default for BreakerConfig {
    fn default() -> BreakerConfig {
        BreakerConfig { failures_max: 5, failure_spacing_us: 10_000, pause_min_us: 100_000, pause_max_us: 500_000 }
    }
}

/// Closed: calls go out. Open: none does, but for one probe at a time.
#[derive(Clone, Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: State,
    jitter: Jitter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32, failed_at_us: u64 },
    Open { pause_us: u64, probe_at_us: u64, probing: bool },
}

const CLOSED: State = State::Closed { failures: 0, failed_at_us: 0 };

impl Breaker {
    /// A closed breaker. `seed` spreads the probes of many gateways.
    pub fn new(config: BreakerConfig, seed: u64) -> Breaker {
        Breaker { config, state: CLOSED, jitter: Jitter(seed | 1) }
    }

    /// Whether calls may go out.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// Whether a probe is due now; if so it counts as sent.
    pub fn take_probe(&mut self, now_us: u64) -> bool {
        match &mut self.state {
            State::Open { probe_at_us, probing, .. } if !*probing && *probe_at_us <= now_us => {
                *probing = true;
                true
            }
            _ => false,
        }
    }

    /// A call, or the probe, was answered as it should.
    pub fn success(&mut self) {
        self.state = CLOSED;
    }

    /// A call failed.
    pub fn failure(&mut self, now_us: u64) {
        let State::Closed { failures, failed_at_us } = self.state else { return };
        if failures > 0 && now_us < failed_at_us.saturating_add(self.config.failure_spacing_us) {
            return;
        }
        let failures = failures.saturating_add(1);
        self.state = match failures >= self.config.failures_max {
            true => self.open(now_us, self.config.pause_min_us),
            false => State::Closed { failures, failed_at_us: now_us },
        };
    }

    /// A probe failed: of an open breaker, wait longer before the next one.
    pub fn probe_failure(&mut self, now_us: u64) {
        match self.state {
            State::Closed { .. } => self.failure(now_us),
            State::Open { pause_us, .. } => {
                let longer = pause_us.saturating_mul(2).min(self.config.pause_max_us);
                self.state = self.open(now_us, longer);
            }
        }
    }

    /// Opens a closed breaker at once: asking more is of no use.
    pub fn trip(&mut self, now_us: u64) {
        if self.is_closed() {
            self.state = self.open(now_us, self.config.pause_min_us);
        }
    }

    fn open(&mut self, now_us: u64, pause_us: u64) -> State {
        // Between half a pause and a whole one, so that many gateways do not probe together.
        let half = pause_us / 2;
        let wait = half.saturating_add(self.jitter.below(half.saturating_add(1)));
        State::Open { pause_us, probe_at_us: now_us.saturating_add(wait), probing: false }
    }
}

/// Xorshift (Marsaglia 2003): spreads pauses, protects nothing.
#[derive(Clone, Debug)]
struct Jitter(u64);

impl Jitter {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0.wrapping_shl(13);
        self.0 ^= self.0.wrapping_shr(7);
        self.0 ^= self.0.wrapping_shl(17);
        self.0.checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_probes_one_at_a_time() {
        let mut breaker = Breaker::new(BreakerConfig::default(), 7);
        let fail = |breaker: &mut Breaker, count: u64| (0..count).for_each(|step| breaker.failure(step * 10_000));
        fail(&mut breaker, 4);
        breaker.success();
        fail(&mut breaker, 4);
        assert!(breaker.is_closed());
        breaker.failure(100_000);
        assert!(!breaker.is_closed());
        assert!(!breaker.take_probe(149_999));
        assert!(breaker.take_probe(200_000));
        assert!(!breaker.take_probe(300_000), "one probe at a time");
        breaker.success();
        assert!(breaker.is_closed());
    }

    #[test]
    fn a_stall_that_fails_many_calls_at_once_is_one_failure() {
        let mut breaker = Breaker::new(BreakerConfig::default(), 7);
        (0..1_000).for_each(|call| breaker.failure(50_000 + call * 9));
        assert!(breaker.is_closed());
        (1..5).for_each(|stall| breaker.failure(50_000 + stall * 10_000));
        assert!(!breaker.is_closed());
    }

    #[test]
    fn pauses_grow_to_the_cap_and_no_further() {
        let mut breaker = Breaker::new(BreakerConfig::default(), 99);
        (0..5).for_each(|step| breaker.failure(step * 10_000));
        assert!(!breaker.is_closed());
        let mut now_us = 40_000;
        let mut pauses = Vec::new();
        for _ in 0..20 {
            let start = now_us;
            while !breaker.take_probe(now_us) {
                now_us += 1_000;
            }
            pauses.push(now_us - start);
            breaker.probe_failure(now_us);
        }
        assert!(pauses.iter().all(|pause| *pause <= 501_000), "{pauses:?}");
        assert!(pauses.iter().skip(5).all(|pause| *pause >= 250_000), "{pauses:?}");
    }
}
