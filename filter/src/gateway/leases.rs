//! The leases of this worker's requests: renewed by the tick, ended with their requests, told to the store until it
//! confirms.

use std::cell::RefCell;
use std::rc::Rc;

use lockkeeper_core::capture::End;
use lockkeeper_core::lease::{Act, Keeper, Lease, LeaseCall, LeaseStep, Word};
use lockkeeper_core::local_claims::Known;
use lockkeeper_core::resp::Reply;
use lockkeeper_core::store::StoreFailure;

use super::{Gateway, Progress};
use crate::holding::Holding;
use crate::host;
use crate::metrics::{LeaseEvent, LocalClaimEvent};
use crate::parked::{Parked, Purpose, Told, Waiter};
use crate::request::RequestState;

/// What the store had in its queue may run long after we gave up on it: it is given back once more after this long.
const RELEASED_AGAIN_AFTER_US: u64 = 1_000_000;
/// How long a release is worth repeating when nothing is known of its lease.
const RELEASE_LASTS_US: u64 = 30_000_000;
/// How long an outcome is sent again before the table is looked through once more.
const PUSH_LASTS_US: u64 = 4_000_000;

impl Gateway {
    /// Keeps alive what a request was granted by a command that was sent at `sent_us`.
    pub fn hold(&self, lease: Lease, context_id: u32, sent_us: u64) -> Rc<RefCell<Holding>> {
        let seen = lease.claims().iter().filter_map(|claim| claim.held.fence).max().unwrap_or(0);
        self.fence_floor.set(self.fence_floor.get().max(seen));
        let holding = Rc::new(RefCell::new(Holding::new(lease, context_id, sent_us)));
        self.holdings.borrow_mut().push(Rc::downgrade(&holding));
        self.look_in_time(&holding.borrow());
        self.tick_sooner();
        holding
    }

    /// Ends a holding. With `response` its stream waits for the record; true when it has to.
    pub fn end(&self, holding: &Rc<RefCell<Holding>>, end: &End, response: Option<Waiter>) -> bool {
        let now_us = host::monotonic_us();
        let (calls, expires_us) = {
            let mut holding = holding.borrow_mut();
            self.metrics.lease_left(holding.left_us(now_us));
            (holding.end(end), now_us.saturating_add(holding.left_us(now_us)))
        };
        let mut waits = false;
        // An outcome, or the release of its key.
        let awaited = calls.first().map_or(Act::Complete, LeaseCall::act);
        for call in calls {
            let purpose = match &response {
                Some(waiter) if call.act() == awaited => Purpose::Response { waiter: waiter.clone(), expires_us },
                _ => Purpose::Record { expires_us },
            };
            let is_awaited = matches!(purpose, Purpose::Response { .. });
            waits |= self.tell(Told { call, purpose }, now_us) && is_awaited;
        }
        self.flush_soon();
        waits
    }

    /// Gives back what may be held without anybody's wanting it.
    pub(super) fn tell_all<'c>(&self, releases: impl IntoIterator<Item = &'c LeaseCall>, now_us: u64) {
        for call in releases {
            if call.keeper() == Keeper::Instance {
                self.local_claims.tell(call, Known::Not, now_us);
                continue;
            }
            let expires_us = now_us.saturating_add(RELEASE_LASTS_US);
            let again_us = now_us.saturating_add(RELEASED_AGAIN_AFTER_US);
            self.outbox.borrow_mut().push(call.clone(), again_us, expires_us);
            self.tell(Told { call: call.clone(), purpose: Purpose::Record { expires_us } }, now_us);
        }
    }

    /// Sends a command; false when it cannot be sent now and is kept for later, or need not be.
    fn tell(&self, told: Told, now_us: u64) -> bool {
        if told.call.keeper() == Keeper::Instance {
            self.done_locally(&told.call, &told.purpose, now_us);
            return false;
        }
        let deadline_us = now_us.saturating_add(self.config.deadline_us);
        match self.submit(Parked::Lease(Box::new(told)), now_us, deadline_us) {
            Ok(()) => true,
            Err(Parked::Lease(told)) => {
                let Told { call, purpose } = *told;
                self.metrics.store_failure(&StoreFailure::NotSent);
                self.note(&call, None, now_us);
                self.keep(call, &purpose, now_us);
                false
            }
            Err(Parked::Decision(_)) => false,
        }
    }

    /// Goes on with the store's answer; true when a response goes on with it.
    pub(super) fn told(&self, told: Told, result: Result<Reply, StoreFailure>, now_us: u64) -> bool {
        let Told { call, purpose } = told;
        let act = call.act();
        let noted = (call.keeper() == Keeper::Both).then(|| call.clone());
        match call.resume(result) {
            LeaseStep::Call(call) => {
                self.tell(Told { call, purpose }, now_us);
                false
            }
            LeaseStep::Done(words) => {
                noted.iter().for_each(|call| self.note(call, words.first(), now_us));
                self.confirmed(act, &words, purpose)
            }
            LeaseStep::Failed(call, _) => {
                self.note(&call, None, now_us);
                self.not_told(call, purpose, now_us)
            }
        }
    }

    /// Notes in the instance's own table what the store was told, and what it said to that, if anything. Renewals are
    /// noted when they are due.
    fn note(&self, call: &LeaseCall, word: Option<&Word>, now_us: u64) {
        if call.keeper() != Keeper::Both || call.act() == Act::Renew {
            return;
        }
        let known = Known::after(word.copied());
        self.local_claims.tell(call, known, now_us);
        if known == Known::Not {
            self.local_claims.sweep_soon(now_us);
        }
    }

    /// Does what a command says where only this instance's own table knows of the lease.
    fn done_locally(&self, call: &LeaseCall, purpose: &Purpose, now_us: u64) {
        let words = self.local_claims.tell(call, Known::Not, now_us);
        match purpose {
            Purpose::Renewal { holding, sent_us } => {
                self.renewed(holding, &words, *sent_us);
            }
            Purpose::Response { .. } | Purpose::Record { .. } => self.local_claims.sweep_soon(now_us),
        }
    }

    /// Tells the store the outcomes that this instance alone knows, some at a time.
    pub(super) fn push_outcomes(&self, now_us: u64) {
        if !self.pipe.borrow().breaker_is_closed() {
            return;
        }
        let due = self.local_claims.sweep(now_us);
        self.metrics.local_claim_event(LocalClaimEvent::Pushed, due.len() as u64);
        for call in due {
            let expires_us = now_us.saturating_add(PUSH_LASTS_US);
            self.tell(Told { call, purpose: Purpose::Record { expires_us } }, now_us);
        }
    }

    fn confirmed(&self, act: Act, words: &[Word], purpose: Purpose) -> bool {
        self.metrics.lease_words(act, words);
        match purpose {
            Purpose::Renewal { holding, sent_us } => self.renewed(&holding, words, sent_us),
            Purpose::Response { waiter, .. } => RequestState::respond_later(&waiter),
            Purpose::Record { .. } => false,
        }
    }

    /// Takes the words for a renewal; true when the lease is lost by them.
    fn renewed(&self, holding: &Rc<RefCell<Holding>>, words: &[Word], sent_us: u64) -> bool {
        let is_lost = holding.borrow_mut().renewed(words, sent_us);
        self.look_in_time(&holding.borrow());
        if is_lost {
            self.lost(holding);
        }
        is_lost
    }

    /// Lets the tick come when this lease is to be looked at.
    fn look_in_time(&self, holding: &Holding) {
        self.holdings_at_us.set(holding.next_event_us().into_iter().chain(self.holdings_at_us.get()).min());
    }

    /// The command may not have been carried out: it is kept, and nobody waits for it any longer. True when a response
    /// goes on.
    fn not_told(&self, call: LeaseCall, purpose: Purpose, now_us: u64) -> bool {
        self.keep(call, &purpose, now_us);
        match purpose {
            Purpose::Response { waiter, .. } => RequestState::respond_later(&waiter),
            Purpose::Renewal { .. } | Purpose::Record { .. } => false,
        }
    }

    fn keep(&self, call: LeaseCall, purpose: &Purpose, now_us: u64) {
        let expires_us = match purpose {
            // The next renewal says the same.
            Purpose::Renewal { holding, .. } => {
                holding.borrow_mut().renewal_failed(now_us);
                return self.look_in_time(&holding.borrow());
            }
            Purpose::Response { expires_us, .. } | Purpose::Record { expires_us } => *expires_us,
        };
        if !self.outbox.borrow_mut().retry(call, now_us, expires_us) {
            self.metrics.lease_event(LeaseEvent::GivenUp, 1);
        }
    }

    fn lost(&self, holding: &Rc<RefCell<Holding>>) {
        self.metrics.lease_event(LeaseEvent::Lost, 1);
        let holding = holding.borrow();
        if holding.lease().cancels_when_lost() && host::set_effective_context(holding.context_id()).is_ok() {
            let _ = host::reset_stream();
            let _ = host::set_effective_context(self.context_id);
        }
    }

    /// Renews what is due, notes what has lapsed, and sends again what was not confirmed.
    pub(super) fn keep_leases(&self, now_us: u64) {
        self.holdings.borrow_mut().retain(|one| one.upgrade().is_some_and(|holding| !holding.borrow().is_ended()));
        let holdings: Vec<_> = self.holdings.borrow().iter().filter_map(std::rc::Weak::upgrade).collect();
        // What happens to them below is looked at in time by itself.
        self.holdings_at_us.set(None);
        for holding in &holdings {
            let renewal = holding.borrow_mut().renewal(now_us);
            if let Some(call) = renewal {
                if call.keeper() == Keeper::Both {
                    self.local_claims.tell(&call, Known::Not, now_us);
                }
                let purpose = Purpose::Renewal { holding: Rc::clone(holding), sent_us: now_us };
                self.tell(Told { call, purpose }, now_us);
            }
            let has_lapsed = holding.borrow_mut().lapsed(now_us);
            if has_lapsed {
                self.lost(holding);
            }
            self.look_in_time(&holding.borrow());
        }
        let (due, given_up) = self.outbox.borrow_mut().due(now_us);
        self.metrics.lease_event(LeaseEvent::GivenUp, given_up as u64);
        for (call, expires_us) in due {
            self.tell(Told { call, purpose: Purpose::Record { expires_us } }, now_us);
        }
    }

    /// Goes on with the requests whose time has come.
    pub(super) fn wake(&self, now_us: u64) {
        let over = self.timers.borrow_mut().waits_over(now_us);
        for (wait, waiter) in over {
            if !waiter.request.borrow().is_waiting() {
                self.tell_all(&wait.abandon(), now_us);
                continue;
            }
            let deadline_us = now_us.saturating_add(self.config.deadline_us);
            if let Progress::Decided(decision, sent_us) = self.advance(wait.resume(), now_us, deadline_us, &waiter) {
                RequestState::decide_later(&waiter, decision, self, sent_us);
            }
        }
        let late = self.timers.borrow_mut().bodies_late(now_us);
        for waiter in late {
            RequestState::body_late(&waiter, self);
        }
        let _ = host::set_effective_context(self.context_id);
    }

    /// When the tick must come for leases, waits and bodies.
    pub(super) fn next_event_us(&self) -> Option<u64> {
        let pushes_us = self.local_claims.next_us().filter(|_| self.pipe.borrow().breaker_is_closed());
        let all =
            [self.holdings_at_us.get(), self.timers.borrow().next_us(), self.outbox.borrow().next_us(), pushes_us];
        all.into_iter().flatten().min()
    }

    /// How many requests hold something.
    pub(super) fn live_holdings(&self) -> usize {
        self.holdings.borrow().iter().filter(|one| one.strong_count() > 0).count()
    }
}
