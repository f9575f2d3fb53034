//! Envoy metrics. Labels are parts of the name (`.policy.login.limit.per-ip…`) that stats tags split off; their values
//! come from the configuration, never from requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lockkeeper_core::decision::{DecidedBy, Outcome, Report};
use lockkeeper_core::lease::{Act, Word};
use lockkeeper_core::pipe::{PipeCounts, Refusals};
use lockkeeper_core::policy::{Policy, PolicySet};
use lockkeeper_core::store::{Refusal, StoreFailure};
use proxy_wasm::types::MetricType;

use crate::host;
use crate::open_breakers::OpenBreakers;

/// The log says a thing at most once in this time.
const LOG_PAUSE_US: u64 = 1_000_000;

/// A counter. It gathers in this VM and is told to the host on the next tick, since each call to the host costs about
/// as much as the counting itself.
#[derive(Clone)]
struct Metric {
    /// `None` when it could not be defined: it counts nothing.
    id: Option<u32>,
    pending: Rc<Cell<i64>>,
    changed: Rc<RefCell<Vec<Metric>>>,
}

impl Metric {
    fn add(&self, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if count == 0 {
            return;
        }
        let before = self.pending.replace(self.pending.get().saturating_add(count));
        if before == 0 {
            self.changed.borrow_mut().push(self.clone());
        }
    }

    fn flush(&self) {
        if let (Some(id), count @ 1..) = (self.id, self.pending.take()) {
            host::increment_metric(id, count);
        }
    }
}

/// Defines counters that tell the host together.
#[derive(Clone, Default)]
struct Counters {
    changed: Rc<RefCell<Vec<Metric>>>,
}

impl Counters {
    fn define(&self, name: &str) -> Metric {
        let id = host::define_metric(MetricType::Counter, name).ok();
        Metric { id, pending: Rc::default(), changed: Rc::clone(&self.changed) }
    }

    fn decision(&self, policy: &str, limit: &str, outcome: &str, decided_by: &str) -> Metric {
        self.define(&format!(
            "lockkeeper_decisions.policy.{policy}.limit.{limit}.outcome.{outcome}.decided_by.{decided_by}"
        ))
    }

    fn flush(&self) {
        self.changed.take().iter().for_each(Metric::flush);
    }
}

/// Metrics of one configuration on one worker.
pub struct Metrics {
    counters: Counters,
    policies: Vec<PolicyMetrics>,
    /// Of requests without a policy: by outcome.
    without_policy: Vec<(Outcome, Metric)>,
    unknown_policies: Metric,
    answers: Metric,
    latency_us: Option<u32>,
    /// By word, each with the time when it was last told in the log.
    failures: Vec<(&'static str, Metric, Cell<u64>)>,
    breakers_open: Option<u32>,
    open_breakers: OpenBreakers,
    logged_as_open: Cell<bool>,
    retired: Cell<bool>,
    counts: Cell<PipeCounts>,
    pipe: [Metric; 5],
    local_overflows: Metric,
    local_contentions: Metric,
    claims_without_room: Metric,
    claims_pushed: Metric,
    /// By act and word of the store.
    lease_words: Vec<((Act, Word), Metric)>,
    lease_lost: Metric,
    lease_given_up: Metric,
    lease_left_us: Option<u32>,
    last_log_us: Cell<u64>,
    last_policy_log_us: Cell<u64>,
    last_refusal_log_us: Cell<u64>,
}

struct PolicyMetrics {
    /// By outcome and decider, for decisions that no single limit made.
    whole: Vec<Option<Metric>>,
    /// By limit: its denials by the store and by the local limiter, its rejections, its shadow denials.
    limits: Vec<LimitMetrics>,
}

struct LimitMetrics {
    denied_by_store: Metric,
    denied_by_local: Metric,
    rejected: Metric,
    shadow_denied: Metric,
}

const FAILURE_WORDS: [&str; 12] = [
    "not_sent",
    "unknown",
    "access",
    "busy",
    "cluster_down",
    "loading",
    "no_script",
    "out_of_memory",
    "writes_disabled",
    "read_only",
    "topology",
    "other",
];

impl Metrics {
    /// Defines all metrics of the policies.
    pub fn define(policies: &PolicySet) -> Metrics {
        let counters = Counters::default();
        let store_call = |word: &str| counters.define(&format!("lockkeeper_store_calls.outcome.{word}"));
        Metrics {
            policies: policies.policies.iter().map(|policy| define_policy(policy, policies, &counters)).collect(),
            without_policy: define_without_policy(policies, &counters),
            unknown_policies: counters.define("lockkeeper_route_events.event.unknown_policy"),
            answers: store_call("answered"),
            latency_us: host::define_metric(MetricType::Histogram, "lockkeeper_store_latency_us").ok(),
            failures: FAILURE_WORDS.iter().map(|word| (*word, store_call(word), Cell::new(0))).collect(),
            breakers_open: host::define_metric(MetricType::Gauge, "lockkeeper_breakers_open").ok(),
            open_breakers: OpenBreakers::new(),
            logged_as_open: Cell::new(false),
            retired: Cell::new(false),
            counts: Cell::new(PipeCounts::default()),
            pipe: ["opened", "closed", "desync", "late_reply", "refused"]
                .map(|event| counters.define(&format!("lockkeeper_pipe_events.event.{event}"))),
            local_overflows: counters.define("lockkeeper_local_events.event.overflow"),
            local_contentions: counters.define("lockkeeper_local_events.event.contention"),
            claims_without_room: counters.define("lockkeeper_local_events.event.claim_no_room"),
            claims_pushed: counters.define("lockkeeper_local_events.event.claim_pushed"),
            lease_words: define_lease_words(&counters),
            lease_lost: counters.define("lockkeeper_lease_events.event.lost"),
            lease_given_up: counters.define("lockkeeper_lease_events.event.given_up"),
            lease_left_us: host::define_metric(MetricType::Histogram, "lockkeeper_lease_left_us").ok(),
            last_log_us: Cell::new(0),
            last_policy_log_us: Cell::new(0),
            last_refusal_log_us: Cell::new(0),
            counters,
        }
    }

    /// Tells the host what has gathered.
    pub fn flush(&self) {
        self.counters.flush();
    }

    /// Counts one decision.
    pub fn decision(&self, report: &Report) {
        let Some(policy) = report.policy.and_then(|index| self.policies.get(index)) else {
            let metric = self.without_policy.iter().find(|(outcome, _)| *outcome == report.outcome);
            metric.into_iter().for_each(|(_, metric)| metric.add(1));
            return;
        };
        for id in &report.shadow_denials {
            let limit = self.policies.get(id.policy).and_then(|policy| policy.limits.get(id.limit));
            limit.into_iter().for_each(|limit| limit.shadow_denied.add(1));
        }
        let limit = report.limit.and_then(|index| policy.limits.get(index));
        match (limit, report.outcome, report.decided_by) {
            (Some(limit), Outcome::Denied, DecidedBy::Local) => limit.denied_by_local.add(1),
            (Some(limit), Outcome::Denied, _) => limit.denied_by_store.add(1),
            (Some(limit), Outcome::Rejected, _) => limit.rejected.add(1),
            (_, outcome, decided_by) => whole(policy, outcome, decided_by).into_iter().for_each(|metric| metric.add(1)),
        }
    }

    /// Counts a request whose Envoy route names a policy that the file does not have, and says so in the log, at most
    /// once a second.
    pub fn unknown_policy(&self, name: &str) {
        self.unknown_policies.add(1);
        if Metrics::may_log(&self.last_policy_log_us, host::monotonic_us(), LOG_PAUSE_US) {
            log::warn!("lockkeeper: a route's metadata names the policy {name:?}, which the policy file does not have");
        }
    }

    /// Counts answers of the store that came together, and how long the first of them took.
    pub fn store_answers(&self, count: u64, elapsed_us: u64) {
        self.answers.add(count);
        if let Some(id) = self.latency_us {
            host::record_metric(id, elapsed_us);
        }
    }

    /// Counts a call that brought no decision.
    pub fn store_failure(&self, failure: &StoreFailure) {
        let word = failure.word();
        let Some((_, metric, last_log_us)) = self.failures.iter().find(|(known, ..)| *known == word) else { return };
        metric.add(1);
        let reason = failure.refusal().and_then(Refusal::reason);
        reason.into_iter().for_each(|reason| Metrics::log_refused(last_log_us, reason));
    }

    /// Counts what was refused of what no request waited for, and says so in the log.
    pub fn refusals(&self, refusals: Refusals) {
        refusals.probe.into_iter().for_each(|refusal| self.store_failure(&StoreFailure::Refused(refusal)));
        let reason = match refusals.greeting {
            Some(Refusal::Access | Refusal::Other) => {
                Some("the credentials or the database of this gateway are wrong, or it takes no more clients")
            }
            refusal => refusal.and_then(Refusal::reason),
        };
        reason.into_iter().for_each(|reason| Metrics::log_refused(&self.last_refusal_log_us, reason));
    }

    /// Counts what happened to the pipe since the last time, and says so in the log, at most once a second.
    pub fn pipe(&self, counts: PipeCounts, breaker_is_closed: bool, now_us: u64) {
        let before = self.counts.replace(counts);
        let news = [
            counts.opened.saturating_sub(before.opened),
            counts.closed.saturating_sub(before.closed),
            counts.desyncs.saturating_sub(before.desyncs),
            counts.late.saturating_sub(before.late),
            counts.refused.saturating_sub(before.refused),
        ];
        self.pipe.iter().zip(news).for_each(|(metric, new)| metric.add(new));
        if !self.retired.get() {
            self.report_breaker(breaker_is_closed, now_us);
        }
    }

    fn report_breaker(&self, is_closed: bool, now_us: u64) {
        self.count_breaker(!is_closed, now_us);
        self.log_breaker(is_closed, now_us);
    }

    fn count_breaker(&self, is_open: bool, now_us: u64) {
        if let (Some(id), Some(open)) = (self.breakers_open, self.open_breakers.report(is_open, now_us)) {
            host::record_metric(id, open);
        }
    }

    /// Only people can put it right, and they need not be told each second.
    fn log_refused(last_us: &Cell<u64>, reason: &str) {
        const PAUSE_US: u64 = 10_000_000;
        if Metrics::may_log(last_us, host::monotonic_us(), PAUSE_US) {
            log::error!("lockkeeper: the store refuses what this gateway asks: {reason}");
        }
    }

    /// What the log says last is what is so: a change that comes too soon after another is told later, if it lasts.
    fn log_breaker(&self, is_closed: bool, now_us: u64) {
        if self.logged_as_open.get() != is_closed || !Metrics::may_log(&self.last_log_us, now_us, LOG_PAUSE_US) {
            return;
        }
        self.logged_as_open.set(!is_closed);
        match is_closed {
            true => log::warn!("lockkeeper: the store answers again; limits are global"),
            false => log::warn!("lockkeeper: the store does not answer; policies follow their failure mode"),
        }
    }

    /// Whether a line may be logged: one of each kind in `pause_us`.
    fn may_log(last_us: &Cell<u64>, now_us: u64, pause_us: u64) -> bool {
        let may = now_us.saturating_sub(last_us.get()) >= pause_us;
        if may {
            last_us.set(now_us);
        }
        may
    }

    /// Counts requests that shared an overflow entry.
    pub fn local_overflow(&self, count: u64) {
        self.local_overflows.add(count);
    }

    /// Counts swaps that had to be tried again.
    pub fn local_contention(&self, count: u64) {
        self.local_contentions.add(count);
    }

    /// Counts what happened in the table of claims.
    pub fn local_claim_event(&self, event: LocalClaimEvent, count: u64) {
        match event {
            LocalClaimEvent::NoRoom => self.claims_without_room.add(count),
            LocalClaimEvent::Pushed => self.claims_pushed.add(count),
        }
    }

    /// Counts what the store said of leases.
    pub fn lease_words(&self, act: Act, words: &[Word]) {
        // Whether another's claim still runs does not matter to whoever lost it.
        let counted = words.iter().map(|word| if *word == Word::Busy { Word::Lost } else { *word });
        for word in counted {
            let metric = self.lease_words.iter().find(|(known, _)| *known == (act, word));
            metric.into_iter().for_each(|(_, metric)| metric.add(1));
        }
    }

    /// Counts what happened to leases without the store's word.
    pub fn lease_event(&self, event: LeaseEvent, count: u64) {
        match event {
            LeaseEvent::Lost => self.lease_lost.add(count),
            LeaseEvent::GivenUp => self.lease_given_up.add(count),
        }
    }

    /// What was left of a lease when its request ended.
    pub fn lease_left(&self, left_us: u64) {
        if let Some(id) = self.lease_left_us {
            host::record_metric(id, left_us);
        }
    }

    /// The configuration goes: its breaker counts no more, and nobody will say of it that it has closed.
    pub fn retire(&self) {
        if !self.retired.replace(true) {
            self.count_breaker(false, host::monotonic_us());
            if self.logged_as_open.get() {
                log::warn!("lockkeeper: the configuration that found no store is replaced; the new one asks anew");
            }
        }
        self.flush();
    }
}

/// What happens to leases without the store's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// Somebody else may hold it, while its request runs.
    Lost,
    /// The store was not told of its end in time: the lease lapses.
    GivenUp,
}

/// What happens in the instance's table of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalClaimEvent {
    /// A set was full of claims that run.
    NoRoom,
    /// An outcome that the table alone knew was sent to the store.
    Pushed,
}

fn define_lease_words(counters: &Counters) -> Vec<((Act, Word), Metric)> {
    let acts = [(Act::Renew, "renew"), (Act::Complete, "complete"), (Act::Release, "release")];
    let words = [
        (Word::Ok, "ok"),
        (Word::Lost, "lost"),
        (Word::Gone, "gone"),
        (Word::Done, "done"),
        (Word::Corrupt, "corrupt"),
    ];
    let pairs = acts.iter().flat_map(|act| words.iter().map(move |word| (act, word)));
    pairs
        .map(|((act, act_name), (word, word_name))| {
            ((*act, *word), counters.define(&format!("lockkeeper_leases.event.{act_name}.outcome.{word_name}")))
        })
        .collect()
}

fn define_without_policy(policies: &PolicySet, counters: &Counters) -> Vec<(Outcome, Metric)> {
    let blocks = !policies.access.block.is_empty();
    let outcomes = [Outcome::Allowed, Outcome::Rejected, Outcome::Blocked, Outcome::ShadowBlocked];
    let possible = outcomes.into_iter().filter(|outcome| blocks || !is_block(*outcome));
    possible
        .map(|outcome| (outcome, counters.decision("none", "none", outcome.word(), DecidedBy::Policy.word())))
        .collect()
}

fn define_policy(policy: &Policy, policies: &PolicySet, counters: &Counters) -> PolicyMetrics {
    let blocks = !policy.access.block.is_empty() || !policies.access.block.is_empty();
    let possible = |outcome, by| possible(outcome, by, policy) && (blocks || !is_block(outcome));

    let metric = |limit: &str, outcome: &str, by: DecidedBy| counters.decision(&policy.name, limit, outcome, by.word());
    let pairs = Outcome::ALL.iter().flat_map(|outcome| DecidedBy::ALL.iter().map(move |by| (outcome, by)));
    let whole = pairs.map(|(outcome, by)| possible(*outcome, *by).then(|| metric("all", outcome.word(), *by)));
    let limits = policy.limits.iter().map(|limit| LimitMetrics {
        denied_by_store: metric(&limit.name, "denied", DecidedBy::Store),
        denied_by_local: metric(&limit.name, "denied", DecidedBy::Local),
        rejected: metric(&limit.name, "rejected", DecidedBy::Policy),
        shadow_denied: metric(&limit.name, "shadow_denied", DecidedBy::Store),
    });
    PolicyMetrics { whole: whole.collect(), limits: limits.collect() }
}

/// Denials and rejections have their limit; what remains is defined for the policy as a whole.
fn possible(outcome: Outcome, decided_by: DecidedBy, policy: &Policy) -> bool {
    let by_records = matches!(decided_by, DecidedBy::Store | DecidedBy::Local);
    match outcome {
        Outcome::Replayed
        | Outcome::InFlight
        | Outcome::Mismatch
        | Outcome::OutcomeUnknown
        | Outcome::NotRetained
        | Outcome::ReplayLimited => policy.idempotency.is_some() && by_records,
        Outcome::HoldLimited => policy.idempotency.is_some() && decided_by == DecidedBy::Policy,
        Outcome::KeyRejected => {
            (policy.idempotency.is_some() || policy.lock.is_some()) && decided_by == DecidedBy::Policy
        }
        Outcome::Locked => policy.lock.is_some() && by_records,
        Outcome::Allowed => true,
        Outcome::Unavailable => decided_by == DecidedBy::FailureMode,
        Outcome::Blocked | Outcome::Exempt | Outcome::ShadowBlocked => decided_by == DecidedBy::Policy,
        Outcome::Denied | Outcome::Rejected => false,
    }
}

fn is_block(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Blocked | Outcome::ShadowBlocked)
}

fn whole(policy: &PolicyMetrics, outcome: Outcome, decided_by: DecidedBy) -> Option<&Metric> {
    let position = (outcome as usize).saturating_mul(DecidedBy::ALL.len()).saturating_add(decided_by as usize);
    policy.whole.get(position)?.as_ref()
}
