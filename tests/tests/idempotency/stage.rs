//! One Envoy, one Redis behind a link that may be slow, and an upstream whose answers are written by the test.

use crate::world;
use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, ScriptedUpstream, SlowLink};
use serde_json::Value;
use std::time::Duration;

/// The servers of one test.
pub struct Stage {
    pub redis: Redis,
    pub link: SlowLink,
    pub envoy: Envoy,
    pub upstream: ScriptedUpstream,
}

impl Stage {
    /// Payments of the header `authorization`, by these further members of `idempotency`.
    pub fn start(more: Value) -> Stage {
        Stage::start_with(world::policy(world::idempotency(more)), |config| config)
    }

    /// By a whole policy file, and a changed configuration.
    pub fn start_with(policy: Value, change: impl Fn(EnvoyConfig) -> EnvoyConfig) -> Stage {
        let redis = Redis::start().expect("Redis starts");
        let link = SlowLink::start(redis.address(), Duration::ZERO).expect("a loopback port is free");
        let upstream = ScriptedUpstream::start().expect("a loopback port is free");
        let change = |config: EnvoyConfig| change(config.deadline(Duration::from_secs(2)));
        let envoy = world::envoy(&policy, link.address(), upstream.address(), change);
        Stage { redis, link, envoy, upstream }
    }

    /// The answer to a request.
    pub fn send(&self, request: &Request) -> Response {
        self.envoy.client().send(request).expect("an answer")
    }

    /// Opens the pipe and loads the scripts, then makes each exchange with the store take so much longer.
    pub fn slow_store(&self, round_trip: Duration) {
        self.send(&world::payment("warm-up", "1"));
        self.link.set_round_trip(round_trip);
    }
}
