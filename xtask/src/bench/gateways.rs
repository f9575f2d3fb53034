//! The Envoys that are compared, each with one worker, and rounds in which each of them runs once.

use super::wrk::{self, Measured};
use anyhow::{Context, Result};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, ports};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Long: with many connections on a busy machine requests queue for longer than the shipped deadline, and what is
/// measured is the throughput of decisions made in Redis.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// How many exchanges the median Redis round trip is of.
const ROUND_TRIPS: usize = 2_000;

/// One Envoy of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// No filter; Envoy answers by itself.
    Bare,
    /// No filter, and an upstream behind it.
    BareProxied,
    /// The filter without a store: every decision is made by Envoy.
    Local,
    /// The filter: every decision is made in Redis.
    Strict,
    /// The same, and an upstream behind it.
    StrictProxied,
    /// As strict, with Envoy's own Redis client between the filter and Redis.
    StrictByRedisProxy,
}

/// All subjects and what they need.
pub struct Gateways {
    envoys: BTreeMap<Subject, Envoy>,
    redis: SocketAddr,
    /// Serves the proxied ones: an Envoy too, since it must be fast.
    _upstream: Envoy,
}

/// What each subject did in one round.
pub struct Round {
    measured: BTreeMap<Subject, Measured>,
    cpu_us: BTreeMap<Subject, f64>,
    redis_round_trip_us: f64,
    /// Decisions counted by Redis ÷ requests answered.
    decided_by_redis: BTreeMap<Subject, f64>,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Bare, Self::BareProxied, Self::Local, Self::Strict, Self::StrictProxied, Self::StrictByRedisProxy];
    /// The name of a figure, its subject, and what it is divided by.
    pub const PAIRS: [(&str, Self, Self); 4] = [
        ("strict", Self::Strict, Self::Bare),
        ("strict_proxied", Self::StrictProxied, Self::BareProxied),
        ("strict_by_redis_proxy", Self::StrictByRedisProxy, Self::Bare),
        ("local", Self::Local, Self::Bare),
    ];

    fn is_decided_by_redis(self) -> bool {
        matches!(self, Self::Strict | Self::StrictProxied | Self::StrictByRedisProxy)
    }

    fn config(self, redis: SocketAddr, upstream: SocketAddr) -> EnvoyConfig {
        let shipped = match self {
            Self::StrictByRedisProxy => EnvoyConfig::redis_proxy(),
            _ => EnvoyConfig::shipped(),
        };
        // Without the access log on either side: a log costs both the same and would flatter the ratio. Without it nobody
        // reads what the filter would write for it.
        let config =
            shipped.without_access_log().host(json!({ "filter_state": false })).policy(policy()).deadline(DEADLINE);
        match self {
            Self::Bare => config.without_filter().direct_response(),
            Self::BareProxied => config.without_filter().upstream(upstream),
            Self::Local => config.redis(ports::free()).direct_response(),
            Self::Strict | Self::StrictByRedisProxy => config.redis(redis).direct_response(),
            Self::StrictProxied => config.redis(redis).upstream(upstream),
        }
    }
}

impl Gateways {
    /// Starts all and sends each a first second of requests.
    pub fn start(redis: &Redis) -> Result<Self> {
        let config = Subject::Bare.config(redis.address(), redis.address());
        let upstream = Envoy::start(&config)?;
        let start =
            |subject: Subject| Ok((subject, Envoy::start(&subject.config(redis.address(), upstream.address()))?));
        let envoys: BTreeMap<_, _> = Subject::ALL.into_iter().map(start).collect::<Result<_>>()?;
        for envoy in envoys.values() {
            wrk::run(envoy.address(), 1, Duration::from_secs(1))?;
        }
        Ok(Self { envoys, redis: redis.address(), _upstream: upstream })
    }

    /// Runs each once, beginning with another one in each round, so that none always runs after the same.
    pub fn round(&self, connections: u32, round: usize, time: Duration) -> Result<Round> {
        let mut order = Subject::ALL;
        order.rotate_left(round % Subject::ALL.len());
        let (mut measured, mut cpu_us, mut decided_by_redis) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for subject in order {
            let envoy = &self.envoys[&subject];
            let (calls_before, cpu_before) = (script_calls(self.redis)?, envoy.process().cpu_time());
            let run = wrk::run(envoy.address(), connections, time).with_context(|| format!("{subject:?}"))?;
            let cpu = envoy.process().cpu_time() - cpu_before;
            cpu_us.insert(subject, cpu.as_secs_f64() * 1e6 / run.requests);
            if subject.is_decided_by_redis() {
                decided_by_redis.insert(subject, (script_calls(self.redis)? - calls_before) / run.requests);
            }
            measured.insert(subject, run);
        }
        Ok(Round { measured, cpu_us, redis_round_trip_us: round_trip_us(self.redis)?, decided_by_redis })
    }
}

impl Round {
    /// Requests each second.
    pub fn throughput(&self, subject: Subject) -> f64 {
        self.measured[&subject].per_second
    }

    /// Processor time of Envoy for each request, in µs: other work on the machine hardly changes it.
    pub fn cpu_us(&self, subject: Subject) -> f64 {
        self.cpu_us[&subject]
    }

    /// Decisions counted by Redis ÷ requests answered, for a subject that Redis is to decide.
    pub fn decided_by_redis(&self, subject: Subject) -> Option<f64> {
        self.decided_by_redis.get(&subject).copied()
    }

    /// The latency that a decision adds, in Redis round trips.
    pub fn added_latency(&self) -> f64 {
        (self.measured[&Subject::Strict].median_us - self.measured[&Subject::Bare].median_us) / self.redis_round_trip_us
    }
}

/// One limit that admits everything.
pub fn policy() -> Value {
    let limit = json!({ "name": "per-client", "algorithm": "token_bucket", "capacity": 1_000_000, "refill": "1000000/s", "key": ["client_address"] });
    json!({ "version": 1, "namespace": "bench", "policies": { "all": { "limits": [limit] } }, "default_policy": "all" })
}

/// How many scripts Redis has run.
pub fn script_calls(redis: SocketAddr) -> Result<f64> {
    let mut connection = redis::Client::open(format!("redis://{redis}/"))?.get_connection()?;
    let info: String = redis::cmd("INFO").arg("commandstats").query(&mut connection)?;
    let calls = info
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_eval:").or_else(|| line.strip_prefix("cmdstat_evalsha:")));
    let calls = calls.filter_map(|line| line.strip_prefix("calls=")?.split(',').next()?.parse::<f64>().ok());
    Ok(calls.sum())
}

/// The median time of an exchange with Redis over a plain connection, in µs.
fn round_trip_us(redis: SocketAddr) -> Result<f64> {
    let mut stream = TcpStream::connect(redis)?;
    stream.set_nodelay(true)?;
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    let mut reply = [0; 7];
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        stream.read_exact(&mut reply)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(super::row::median(times))
}
