//! The load of these tests, and what must hold for every answer whatever the store does.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::load::{self, Sample, Until};
use lockkeeper_tests::stalls::{Stalls, Watch};
use lockkeeper_tests::{Envoy, EnvoyConfig, poll};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The shipped deadline of 50 ms, and what the design allows on top. Nearly all requests are held to it, since the load
/// shares a machine with everything else; the rest to [`HANGING`].
const BOUND: Duration = Duration::from_millis(100);
const HANGING: Duration = Duration::from_secs(2);
/// Limits are global again this soon after the store's return.
const RECOVERY: Duration = Duration::from_secs(2);
/// So many decisions of the store in a row mean that all workers have recovered.
const RECOVERED: usize = 50;
/// So few calls may still wait for a store that is known to fail.
const CALLS_MAX: u64 = 20;

const HEALTHY: Duration = Duration::from_millis(300);
const BROKEN: Duration = Duration::from_millis(1_400);
/// The load goes on for so long after the recovery.
const RECOVERED_FOR: Duration = Duration::from_millis(300);
/// After this much of a fault the breakers have noticed.
const NOTICED: Duration = Duration::from_millis(500);
/// Whoever waits this long has waited for the store.
const WAITED: Duration = Duration::from_millis(20);

const CONNECTIONS_PER_MODE: usize = 4;
const PACE: Duration = Duration::from_millis(8);

/// What a policy does while the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Allow,
    Deny,
    Local,
}

/// Who made a decision, as far as the answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    Store,
    FailureMode,
    /// Local decisions look like those of the store.
    StoreOrLocal,
}

pub const MODES: [Mode; 3] = [Mode::Allow, Mode::Deny, Mode::Local];

/// One load while the store breaks and is mended.
pub struct Observed {
    samples: Vec<(Mode, Sample)>,
    broken: Duration,
    /// The store may be back from here on …
    mending: Duration,
    /// … and is from here on.
    mended: Duration,
    /// Calls that waited for the store between [`NOTICED`] and the end of the fault.
    calls: u64,
}

impl Mode {
    pub fn path(self) -> &'static str {
        match self {
            Mode::Allow => "/allow",
            Mode::Deny => "/deny",
            Mode::Local => "/local",
        }
    }

    /// Who decided. Panics when the answer is none that this policy gives.
    pub fn decider(self, response: &Response) -> Decider {
        let has_quota = response.header("ratelimit").is_some();
        match (self, response.status, has_quota) {
            (Mode::Local, 200, true) => Decider::StoreOrLocal,
            (Mode::Allow | Mode::Deny, 200, true) => Decider::Store,
            (Mode::Allow, 200, false) => Decider::FailureMode,
            (Mode::Deny, 503, false) if is_our_outage(response) => Decider::FailureMode,
            _ => panic!("{self:?} answered {response:?}"),
        }
    }
}

fn is_our_outage(response: &Response) -> bool {
    let is_problem = response.header("content-type") == Some("application/problem+json");
    is_problem && response.header("retry-after") == Some("1")
}

/// How the pipe reaches Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It ends there.
    Direct,
    /// Through Envoy's own client.
    RedisProxy,
}

impl Way {
    /// Both.
    pub const ALL: [Way; 2] = [Way::Direct, Way::RedisProxy];

    /// The configuration of the tests, reaching Redis this way.
    pub fn config(self) -> EnvoyConfig {
        protected(match self {
            Way::Direct => EnvoyConfig::shipped(),
            Way::RedisProxy => EnvoyConfig::redis_proxy(),
        })
    }
}

/// The shipped config with one policy for each mode, and limits that nothing here reaches.
pub fn config() -> EnvoyConfig {
    Way::Direct.config()
}

fn protected(shipped: EnvoyConfig) -> EnvoyConfig {
    let limit = json!([{ "name": "all", "algorithm": "fixed_window", "limit": 1_000_000, "window": "1d", "key": ["client_address"] }]);
    let policy = |mode: &str| json!({ "limits": limit, "limits_on_store_failure": mode });
    let route = |mode: Mode, name: &str| json!({ "match": { "path": mode.path() }, "policy": name });
    shipped.concurrency(2).direct_response().without_access_log().policy(json!({
        "version": 1,
        "policies": { "allow": policy("allow"), "deny": policy("deny"), "local": policy("local") },
        "routes": [route(Mode::Allow, "allow"), route(Mode::Deny, "deny"), route(Mode::Local, "local")]
    }))
}

/// One load at a time: the figures are latencies.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the store decides.
pub fn wait_for_the_store(envoy: &Envoy) {
    let client = envoy.client();
    poll::until("the store decides", Duration::from_secs(10), || {
        (Mode::Deny.decider(&client.get(Mode::Deny.path())) == Decider::Store).then_some(())
    })
    .expect("limits are global at the start");
}

/// Waits until the store decides for all workers.
pub fn wait_for_recovery(envoy: &Envoy) {
    poll_recovery(envoy).expect("limits are global again");
}

fn poll_recovery(envoy: &Envoy) -> anyhow::Result<()> {
    poll::until("the store decides for all workers", Duration::from_secs(10), || {
        // So many connections never go to one worker alone.
        let samples = load::run(envoy.address(), 32, Until::Requests(128), |_| Request::get(Mode::Deny.path()));
        samples.iter().all(|sample| decider(Mode::Deny, sample) == Decider::Store).then_some(())
    })
}

/// Loads a gateway that is well, breaks its store in the middle, then mends it.
pub fn observe(envoy: &Envoy, break_it: impl FnOnce(), mend_it: impl FnOnce()) -> Observed {
    wait_for_the_store(envoy);
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (watch, start) = (Watch::start(), Instant::now());
        let loads = MODES.map(|mode| scope.spawn(move || load_mode(envoy, mode, Until::Told(over))));
        std::thread::sleep(HEALTHY);
        let broken = start.elapsed();
        break_it();
        std::thread::sleep(NOTICED);
        let calls = calls(envoy);
        std::thread::sleep(BROKEN.saturating_sub(NOTICED));
        let calls = self::calls(envoy) - calls;
        let mending = start.elapsed();
        mend_it();
        let mended = start.elapsed();
        let recovered = poll_recovery(envoy);
        std::thread::sleep(RECOVERED_FOR);
        over.store(true, Ordering::Relaxed);
        recovered.expect("limits are global again");
        let samples = loads.into_iter().flat_map(|load| load.join().expect("the load does not panic"));
        let samples = without_stalls(samples, &watch.stop());
        assert_each_request_was_counted_once(envoy);
        Observed { samples, broken, mending, mended, calls }
    })
}

/// What the machine gave to others is no time that a request waited.
fn without_stalls(samples: impl Iterator<Item = (Mode, Sample)>, stalls: &Stalls) -> Vec<(Mode, Sample)> {
    println!("the machine stood still for {:?}", stalls.total());
    let shorter = |sample: Sample| Sample { elapsed: stalls.without(sample.sent, sample.elapsed), ..sample };
    samples.map(|(mode, sample)| (mode, shorter(sample))).collect()
}

/// Loads a gateway that cannot reach any store: every answer is its policy's failure mode, and almost nobody waits.
pub fn assert_degraded(envoy: &Envoy, name: &str) {
    let observed = std::thread::scope(|scope| {
        let watch = Watch::start();
        let loads = MODES.map(|mode| scope.spawn(move || load_mode(envoy, mode, Until::Elapsed(BROKEN))));
        std::thread::sleep(NOTICED);
        let calls = calls(envoy);
        let samples = loads.into_iter().flat_map(|load| load.join().expect("the load does not panic"));
        let samples = without_stalls(samples, &watch.stop());
        Observed { samples, broken: Duration::ZERO, mending: BROKEN, mended: BROKEN, calls: self::calls(envoy) - calls }
    });
    observed.assert_answered(name);
    observed.assert_nobody_waits(name);
}

/// Whatever became of a request, there is one decision for it.
fn assert_each_request_was_counted_once(envoy: &Envoy) {
    let counts = || {
        let stats = envoy.admin().stats();
        let decisions = stats.iter().filter(|(name, _)| name.starts_with("wasmcustom.lockkeeper_decisions"));
        let decisions: u64 = decisions.map(|(_, count)| count).sum();
        (decisions, stats["http.ingress.downstream_rq_total"])
    };
    let equal = || Some(counts()).filter(|(decisions, requests)| decisions == requests);
    let equal = poll::until("each request is counted", Duration::from_secs(5), equal);
    equal.unwrap_or_else(|error| panic!("{error:#}: decisions and requests are {:?}", counts()));
}

/// Calls that were sent, whatever came of them.
fn calls(envoy: &Envoy) -> u64 {
    let is_call = |name: &str| name.starts_with("wasmcustom.lockkeeper_store_calls") && !name.ends_with("not_sent");
    envoy.admin().stats().iter().filter(|(name, _)| is_call(name)).map(|(_, count)| count).sum()
}

fn load_mode(envoy: &Envoy, mode: Mode, until: Until<'_>) -> Vec<(Mode, Sample)> {
    let paced = |_| {
        std::thread::sleep(PACE);
        Request::get(mode.path())
    };
    let samples = load::run(envoy.address(), CONNECTIONS_PER_MODE, until, paced);
    samples.into_iter().map(|sample| (mode, sample)).collect()
}

impl Observed {
    /// The outage is seen, and nobody waits long for it; then limits are global again. Prints the figures.
    pub fn assert_bounded_outage(&self, name: &str) {
        self.assert_answered(name);
        self.assert_nobody_waits(name);
        self.assert_recovery(name);
    }

    /// The store is used all the time, though it is not well.
    pub fn assert_no_outage(&self, name: &str) {
        let longest = self.samples.iter().map(|(_, sample)| sample.elapsed).max().unwrap_or_default();
        println!("{name}: {} requests, the longest {longest:?}", self.samples.len());
        let degraded =
            self.samples.iter().filter(|(mode, sample)| decider(*mode, sample) == Decider::FailureMode).count();
        println!("{name}: {degraded} of {} requests degraded", self.samples.len());
        assert!(degraded * 50 <= self.samples.len(), "{name}: {degraded} of {} requests degraded", self.samples.len());
    }

    /// Every request was answered by its policy, in time.
    fn assert_answered(&self, name: &str) {
        for (mode, sample) in &self.samples {
            decider(*mode, sample);
        }
        let longest = self.samples.iter().map(|(_, sample)| sample.elapsed).max().unwrap_or_default();
        let late = self.samples.iter().filter(|(_, sample)| sample.elapsed > BOUND).count();
        println!("{name}: {} requests, the longest {longest:?}, {late} above {BOUND:?}", self.samples.len());
        assert!(longest < HANGING, "{name}: a request took {longest:?}");
        assert!(
            late * 100 <= self.samples.len(),
            "{name}: {late} of {} requests took longer than {BOUND:?}",
            self.samples.len()
        );
    }

    /// Once the breakers have noticed, no answer comes from the store and almost nobody waits for it.
    fn assert_nobody_waits(&self, name: &str) {
        let in_fault = self.samples.iter().filter(|(_, sample)| (self.broken..self.mending).contains(&sample.sent));
        let (early, outage): (Vec<_>, Vec<_>) = in_fault.partition(|(_, sample)| sample.sent < self.broken + NOTICED);
        let waited =
            |samples: &[&(Mode, Sample)]| samples.iter().filter(|(_, sample)| sample.elapsed >= WAITED).count();
        let waits = [waited(&early), waited(&outage)];
        println!(
            "{name}: {} of {} requests waited at first, {} of {} later",
            waits[0],
            early.len(),
            waits[1],
            outage.len()
        );
        println!("{name}: {} calls waited for a store known to fail", self.calls);
        assert!(outage.len() > 100, "{name}: only {} requests during the outage", outage.len());
        let by_store = outage.iter().filter(|(mode, sample)| decider(*mode, sample) == Decider::Store).count();
        assert_eq!(by_store, 0, "{name}: of {} requests during the outage, decided by the store", outage.len());
        assert!(self.calls <= CALLS_MAX, "{name}: {} calls waited for a store known to fail", self.calls);
        assert!(waits[1] * 10 <= outage.len(), "{name}: {} of {} requests waited", waits[1], outage.len());
    }

    /// The store decides again within two seconds.
    fn assert_recovery(&self, name: &str) {
        let mut after: Vec<_> = self.samples.iter().filter(|(_, sample)| sample.sent > self.mended).collect();
        after.sort_by_key(|(_, sample)| sample.sent);
        let deciders: Vec<_> = after
            .iter()
            .map(|(mode, sample)| (decider(*mode, sample), sample.sent.saturating_sub(self.mended)))
            .filter(|(decider, _)| *decider != Decider::StoreOrLocal)
            .collect();
        let recovered =
            deciders.windows(RECOVERED).find(|row| row.iter().all(|(decider, _)| *decider == Decider::Store));
        let recovery = recovered.map(|row| row[0].1);
        println!("{name}: global again after {recovery:?}");
        assert!(recovery.is_some_and(|time| time < RECOVERY), "{name}: global again after {recovery:?}");
    }
}

fn decider(mode: Mode, sample: &Sample) -> Decider {
    match &sample.answer {
        Ok(response) => mode.decider(response),
        Err(error) => panic!("{mode:?} sent at {:?} got no answer: {error}", sample.sent),
    }
}
