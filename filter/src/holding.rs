//! What a request holds while it runs, on this worker: its lease, kept alive by the tick until the request ends.

use lockkeeper_core::capture::End;
use lockkeeper_core::lease::{Lease, LeaseCall, Word};

/// A renewal that did not come through is sent again after this long, while the lease lasts.
const RETRY_PAUSE_US: u64 = 100_000;

/// The lease of one request.
pub struct Holding {
    lease: Lease,
    context_id: u32,
    /// When the command that the store confirmed last was sent: the lease runs from there.
    kept_us: u64,
    /// When the next renewal is due; `None` while one is on its way.
    renew_at_us: Option<u64>,
    renew_until_us: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Kept alive.
    Held,
    /// Somebody else may have it.
    Lost,
    /// The request has ended.
    Ended,
}

impl Holding {
    /// What a request was granted by a command that was sent at `sent_us`.
    pub fn new(lease: Lease, context_id: u32, sent_us: u64) -> Holding {
        Holding {
            context_id,
            kept_us: sent_us,
            renew_at_us: Some(sent_us.saturating_add(lease.renew_every_us())),
            renew_until_us: sent_us.saturating_add(lease.renewed_for_us()),
            state: State::Held,
            lease,
        }
    }

    /// The lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The lease, to be changed.
    pub fn lease_mut(&mut self) -> &mut Lease {
        &mut self.lease
    }

    /// Its stream, to be reset when the policy says so.
    pub fn context_id(&self) -> u32 {
        self.context_id
    }

    /// What is left of the lease by this instance's own clock, in microseconds.
    pub fn left_us(&self, now_us: u64) -> u64 {
        self.lapses_at_us().saturating_sub(now_us)
    }

    fn lapses_at_us(&self) -> u64 {
        self.kept_us.saturating_add(self.lease.shortest_us())
    }

    /// Ends it: the commands that tell the store, none the second time. The store compares the owner, so what is lost
    /// stays as it is.
    pub fn end(&mut self, end: &End) -> Vec<LeaseCall> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Ended => Vec::new(),
            State::Held | State::Lost => self.lease.end(end),
        }
    }

    /// Whether the request has ended.
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// The renewal that is due, if one is.
    pub fn renewal(&mut self, now_us: u64) -> Option<LeaseCall> {
        if self.next_renewal_us()? > now_us {
            return None;
        }
        self.renew_at_us = None;
        Some(self.lease.renew())
    }

    /// When the tick must look at it again.
    pub fn next_event_us(&self) -> Option<u64> {
        let lapses_us = (self.state == State::Held).then(|| self.lapses_at_us());
        self.next_renewal_us().into_iter().chain(lapses_us).min()
    }

    fn next_renewal_us(&self) -> Option<u64> {
        self.renew_at_us.filter(|at_us| !self.is_ended() && *at_us < self.renew_until_us)
    }

    /// Takes the words for a renewal that was sent at `sent_us`; true when the lease is lost by them. What is left of it
    /// is renewed further: the store does nothing for whoever is not the owner.
    pub fn renewed(&mut self, words: &[Word], sent_us: u64) -> bool {
        let is_left = words.contains(&Word::Ok);
        self.renew_at_us = is_left.then(|| sent_us.saturating_add(self.lease.renew_every_us()));
        if self.lease.is_lost_by(words) {
            return self.lose();
        }
        self.kept_us = sent_us;
        false
    }

    /// The renewal did not come through.
    pub fn renewal_failed(&mut self, now_us: u64) {
        self.renew_at_us = Some(now_us.saturating_add(RETRY_PAUSE_US));
    }

    /// Whether it has lapsed by now, told once.
    pub fn lapsed(&mut self, now_us: u64) -> bool {
        self.lapses_at_us() <= now_us && self.lose()
    }

    fn lose(&mut self) -> bool {
        let is_news = self.state == State::Held;
        if is_news {
            self.state = State::Lost;
        }
        is_news
    }
}
