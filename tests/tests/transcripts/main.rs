//! The transcripts of tests/transcripts, played to each subject in virtual time: the core with the scripts in a real
//! Redis, the filter in a real Envoy, the Worker in a real workerd over each transport. All must say the same.

mod core;
mod gateways;
mod transcript;

use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Redis, RestFront, StepClock, Upstream, paths};
use serde_json::{Value, json};
use transcript::{Step, Transcript};

/// Midnight of the first of January 2030, in microseconds of Unix time: windows that follow the clock begin then.
const START_US: u64 = 1_893_456_000_000_000;

/// What answers requests by a policy.
trait Subject {
    fn answer(&self, request: &transcript::Request) -> transcript::Answer;
}

/// The servers that subjects need.
struct World {
    clock: StepClock,
    redis: Redis,
    front: RestFront,
    upstream: Upstream,
}

impl World {
    fn start() -> World {
        let clock = StepClock::build().expect("the clock builds");
        clock.stand_at(START_US);
        let redis = Redis::start_in(&[], &clock.environment()).expect("Redis starts");
        let front = RestFront::start(redis.address()).expect("a loopback port is free");
        World { clock, redis, front, upstream: Upstream::start().expect("a loopback port is free") }
    }

    /// Plays all transcripts, each to a subject of its own, and tells all that differs.
    fn play<S: Subject>(&self, subject: impl Fn(&World, &Value) -> S) {
        let transcripts = transcripts();
        let mut differences = Vec::new();
        for transcript in &transcripts {
            // Each sees the store as if it were empty.
            let mut policy = transcript.policy.clone();
            policy["namespace"] = json!(transcript.name);
            self.clock.stand_at(START_US);
            let subject = subject(self, &policy);
            let mut now_us = START_US;
            for step in &transcript.steps {
                match step {
                    Step::After(us) => {
                        now_us += us;
                        self.clock.stand_at(now_us);
                    }
                    Step::Request(request, expected) => {
                        let answer = subject.answer(request);
                        differences.extend(expected.differences(&answer).map(|difference| {
                            format!("tests/transcripts/{}.txt:{}: {difference}", transcript.name, expected.line)
                        }));
                    }
                }
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

fn transcripts() -> Vec<Transcript> {
    let directory = paths::workspace().join("tests/transcripts");
    let files = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    files.iter().map(|file| Transcript::read(file)).collect()
}

#[test]
fn the_core_with_the_scripts() {
    World::start().play(|world, policy| core::Core::new(policy, world.redis.address()));
}

#[test]
fn the_filter_in_envoy() {
    World::start().play(gateways::envoy);
}

#[test]
fn the_worker_by_durable_objects() {
    World::start().play(|world, policy| gateways::worker(world, policy, Transport::DurableObject));
}

#[test]
fn the_worker_by_http() {
    World::start().play(|world, policy| gateways::worker(world, policy, Transport::Rest));
}

#[test]
fn the_worker_by_sockets() {
    World::start().play(|world, policy| gateways::worker(world, policy, Transport::Tcp));
}
