//! The load of these tests, and what must hold for every answer whatever the store does.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::load::{self, Sample, Until};
use lockkeeper_tests::{Envoy, EnvoyConfig, poll};
use serde_json::json;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The shipped deadline.
const DEADLINE: Duration = Duration::from_millis(50);
/// What the design allows on top. Asserted with [`MACHINE`] more, since the load shares two cores with everything else.
const SLACK: Duration = Duration::from_millis(50);
const MACHINE: Duration = Duration::from_millis(400);
/// Limits are global again this soon after the store's return.
const RECOVERY: Duration = Duration::from_secs(2);

const HEALTHY: Duration = Duration::from_millis(400);
const BROKEN: Duration = Duration::from_millis(1_400);
const MENDED: Duration = Duration::from_millis(2_800);
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
    mended: Duration,
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

/// The shipped config with one policy for each mode, and limits that nothing here reaches.
pub fn config() -> EnvoyConfig {
    let limit = json!([{ "name": "all", "algorithm": "fixed_window", "limit": 1_000_000, "window": "1d", "key": ["client_address"] }]);
    let policy = |mode: &str| json!({ "limits": limit, "limits_on_store_failure": mode });
    let route = |mode: Mode, name: &str| json!({ "match": { "path": mode.path() }, "policy": name });
    EnvoyConfig::shipped().concurrency(2).direct_response().without_access_log().policy(json!({
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

/// Loads a gateway that is well, breaks its store in the middle, then mends it.
pub fn observe(envoy: &Envoy, break_it: impl FnOnce(), mend_it: impl FnOnce()) -> Observed {
    wait_for_the_store(envoy);
    std::thread::scope(|scope| {
        let start = Instant::now();
        let until = Until::Elapsed(HEALTHY + BROKEN + MENDED);
        let loads = MODES.map(|mode| scope.spawn(move || load_mode(envoy, mode, until)));
        std::thread::sleep(HEALTHY);
        let broken = start.elapsed();
        break_it();
        std::thread::sleep(BROKEN);
        mend_it();
        let mended = start.elapsed();
        let samples = loads.into_iter().flat_map(|load| load.join().expect("the load does not panic")).collect();
        Observed { samples, broken, mended }
    })
}

/// Loads a gateway that cannot reach any store: every answer is its policy's failure mode, and almost nobody waits.
pub fn assert_degraded(envoy: &Envoy, name: &str) {
    let samples: Vec<_> = std::thread::scope(|scope| {
        let loads = MODES.map(|mode| scope.spawn(move || load_mode(envoy, mode, Until::Elapsed(BROKEN))));
        loads.into_iter().flat_map(|load| load.join().expect("the load does not panic")).collect()
    });
    let observed = Observed { samples, broken: Duration::ZERO, mended: BROKEN };
    observed.assert_answered(name);
    observed.assert_nobody_waits(name);
}

fn load_mode(envoy: &Envoy, mode: Mode, until: Until) -> Vec<(Mode, Sample)> {
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

    /// Once the breakers have noticed, no answer comes from the store and almost nobody waits for it.
    fn assert_nobody_waits(&self, name: &str) {
        let outage = self.sent_within(self.broken + NOTICED, self.mended);
        assert!(outage.len() > 100, "{name}: only {} requests during the outage", outage.len());
        let by_store = outage.iter().filter(|(mode, sample)| decider(*mode, sample) == Decider::Store).count();
        assert_eq!(by_store, 0, "{name}: of {} requests during the outage, decided by the store", outage.len());
        let waited = outage.iter().filter(|(_, sample)| sample.elapsed >= WAITED).count();
        println!("{name}: {waited} of {} requests waited once the fault was noticed", outage.len());
        let few = outage.len() / 20;
        assert!(waited <= few, "{name}: {waited} of {} requests waited for a store known to fail", outage.len());
    }

    /// The store decides again, for good, within two seconds.
    fn assert_recovery(&self, name: &str) {
        let degraded = self.samples.iter().filter(|(mode, sample)| decider(*mode, sample) == Decider::FailureMode);
        let last = degraded.map(|(_, sample)| sample.sent).max().unwrap_or_default();
        let recovery = last.saturating_sub(self.mended);
        println!("{name}: global again {recovery:?} after the store's return");
        assert!(recovery < RECOVERY, "{name}: the last degraded answer came {recovery:?} after the store's return");
        let after = self.samples.iter().filter(|(_, sample)| sample.sent > self.mended + recovery).count();
        assert!(after > 50, "{name}: only {after} requests after the recovery");
    }

    /// The store is used all the time, though it is not well.
    pub fn assert_no_outage(&self, name: &str) {
        self.assert_answered(name);
        let degraded = self.samples.iter().filter(|(mode, sample)| decider(*mode, sample) == Decider::FailureMode).count();
        println!("{name}: {degraded} of {} requests degraded", self.samples.len());
        assert!(degraded * 50 <= self.samples.len(), "{name}: {degraded} of {} requests degraded", self.samples.len());
    }

    /// Every request was answered by its policy, in time.
    fn assert_answered(&self, name: &str) {
        let longest = self.samples.iter().map(|(_, sample)| sample.elapsed).max().unwrap_or_default();
        let broken = self.sent_within(self.broken, self.mended);
        let waited = broken.iter().filter(|(_, sample)| sample.elapsed >= WAITED).count();
        println!("{name}: {} requests, the longest {longest:?}; {waited} of {} in the fault waited", self.samples.len(), broken.len());
        for (mode, sample) in &self.samples {
            decider(*mode, sample);
        }
        assert!(longest < DEADLINE + SLACK + MACHINE, "{name}: a request took {longest:?}");
    }

    fn sent_within(&self, from: Duration, to: Duration) -> Vec<&(Mode, Sample)> {
        self.samples.iter().filter(|(_, sample)| (from..to).contains(&sample.sent)).collect()
    }
}

fn decider(mode: Mode, sample: &Sample) -> Decider {
    match &sample.answer {
        Ok(response) => mode.decider(response),
        Err(error) => panic!("{mode:?} sent at {:?} got no answer: {error}", sample.sent),
    }
}
