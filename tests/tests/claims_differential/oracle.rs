//! What the scripts must say and leave behind: the core's state machine, with the limits around it.

use std::collections::HashMap;

use lockkeeper_core::algorithm::Verdict;
use lockkeeper_core::claim::record::{self, Look, Place};
use lockkeeper_core::claim::{Admission, Ask, ClaimKind, Command, HeldClaim, Holdings, Owner, Word};

use crate::limits::{Counts, Limit};

/// One request as it begins.
#[derive(Clone, Debug)]
pub struct Request {
    pub owner: Owner,
    pub limits: Vec<Limit>,
    pub replay: Option<Limit>,
    pub asks: Vec<Ask>,
}

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// By the record's key.
    pub places: HashMap<String, Place>,
    pub counts: Counts,
}

impl Oracle {
    /// What the admitting script says, and the limits it decides.
    pub fn admit(&mut self, request: &Request, now_us: u64) -> (Admission, Vec<Verdict>) {
        let mut places: Vec<Place> = request.asks.iter().map(|ask| self.place(&ask.record_key)).collect();
        let look = record::look(&mut places, &request.asks, request.owner, now_us);
        let said = match look {
            Look::Answered(admission) => self.answer(admission, request, now_us),
            Look::Again => {
                let claims = record::take(&mut places, &request.asks, request.owner, now_us);
                (Admission::Granted { claims, is_again: true }, Vec::new())
            }
            Look::Free => {
                let (allowed, verdicts) = self.counts.decide(&request.limits, request.owner, now_us);
                if !allowed {
                    return (Admission::Denied, verdicts);
                }
                let claims = record::take(&mut places, &request.asks, request.owner, now_us);
                (Admission::Granted { claims, is_again: false }, verdicts)
            }
        };
        for (ask, place) in request.asks.iter().zip(places) {
            self.places.insert(ask.record_key.clone(), place);
        }
        said
    }

    /// An answer from an idempotency record is charged to the limit on replays.
    fn answer(&mut self, admission: Admission, request: &Request, now_us: u64) -> (Admission, Vec<Verdict>) {
        let is_charged = match &admission {
            Admission::Busy { claim, .. } => request.asks[*claim].kind == ClaimKind::Idempotency,
            Admission::Corrupt { .. } => false,
            _ => true,
        };
        let Some(replay) = request.replay.as_ref().filter(|_| is_charged) else { return (admission, Vec::new()) };
        let (allowed, verdicts) = self.counts.decide(std::slice::from_ref(replay), request.owner, now_us);
        (if allowed { admission } else { Admission::Limited }, verdicts)
    }

    /// What the other scripts say.
    pub fn tell(&mut self, command: &Command, now_us: u64) -> Vec<Word> {
        match command {
            Command::Complete(completion) => {
                vec![self.places.entry(completion.record_key.clone()).or_default().complete(completion, now_us)]
            }
            Command::Release { holdings, is_uncounted } => self.each(
                holdings,
                |place, claim| place.release(holdings.owner, claim.fence, *is_uncounted, now_us),
                |slots, _| slots.remove(&holdings.owner).is_some(),
            ),
            Command::Renew(holdings) => self.each(
                holdings,
                |place, claim| place.renew(holdings.owner, claim.fence, claim.lease_us, now_us),
                |slots, lease_us| slots.get_mut(&holdings.owner).map(|it| *it = now_us + lease_us).is_some(),
            ),
        }
    }

    fn each(
        &mut self,
        holdings: &Holdings,
        mut claimed: impl FnMut(&mut Place, &HeldClaim) -> Word,
        mut held: impl FnMut(&mut crate::limits::Slots, u64) -> bool,
    ) -> Vec<Word> {
        let mut words = Vec::new();
        for claim in &holdings.claims {
            words.push(claimed(self.places.entry(claim.record_key.clone()).or_default(), claim));
        }
        for slot in &holdings.slots {
            let is_there = self.counts.slots.get_mut(&slot.key).is_some_and(|slots| held(slots, slot.lease_us));
            words.push(if is_there { Word::Ok } else { Word::Gone });
        }
        self.counts.slots.retain(|_, slots| !slots.is_empty());
        words
    }

    pub fn place(&self, record_key: &str) -> Place {
        self.places.get(record_key).cloned().unwrap_or_default()
    }
}
