//! What happened in a simulation, to see that it did what it is for.

#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub requests: u64,
    pub decided_by_store: u64,
    pub denied_by_store: u64,
    pub decided_locally: u64,
    pub failure_mode: u64,
    pub script_sent_whole: u64,
    pub upload_spared: u64,
    pub late_replies: u64,
    pub desyncs: u64,
    pub reconnects: u64,
    pub breaker_openings: u64,
}

impl Summary {
    fn counts(&mut self) -> [&mut u64; 11] {
        [
            &mut self.requests,
            &mut self.decided_by_store,
            &mut self.denied_by_store,
            &mut self.decided_locally,
            &mut self.failure_mode,
            &mut self.script_sent_whole,
            &mut self.upload_spared,
            &mut self.late_replies,
            &mut self.desyncs,
            &mut self.reconnects,
            &mut self.breaker_openings,
        ]
    }

    pub fn add(&mut self, mut other: Summary) {
        self.counts().into_iter().zip(other.counts()).for_each(|(sum, count)| *sum += *count);
    }

    /// A simulation in which nothing goes wrong proves nothing: all of it happened once a seed, on average.
    pub fn assert_everything_happened(mut self, seeds: u64) {
        assert!(self.counts().into_iter().all(|count| *count >= seeds), "{self:#?}");
    }
}
