//! What a decision costs in a Worker, over each transport: against a Worker that only forwards, and against one that
//! limits with `@upstash/ratelimit` by the same Redis. Each runs in a workerd of its own, before the same origin.

use super::gateways::script_calls;
use super::row::{self, Budget, Row};
use super::wrk::{self, Measured};
use super::{DECIDED_BY_REDIS_MIN, Effort};
use anyhow::{Context, Result, ensure};
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, RestFront, Workerd, WorkerdConfig, paths, tools};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const CONNECTIONS: [u32; 3] = [1, 16, 64];
/// Long: what is measured are decisions made in Redis.
const DEADLINE: Duration = Duration::from_secs(5);

/// One Worker of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    DurableObject,
    Forwarding,
    Rest,
    Tcp,
    Upstash,
}

/// What each subject did in one round: its requests, and the processor time of its workerd for each, in µs.
type Round = BTreeMap<Subject, (Measured, f64)>;

struct Workers {
    workers: BTreeMap<Subject, Workerd>,
    store: SocketAddr,
    _front: RestFront,
    _origin: Envoy,
    _scripts: TempDir,
}

/// Rows for each transport against both, and for the time to start.
pub fn measure(redis: &Redis, effort: Effort) -> Result<Vec<Row>> {
    eprintln!("bench: starting workerds");
    let workers = Workers::start(redis)?;
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        eprintln!("bench: {} runs of {:?} with {connections} connections", 5 * effort.rounds, effort.run);
        let rounds: Vec<Round> =
            (0..effort.rounds).map(|round| workers.round(connections, round, effort.run)).collect::<Result<_>>()?;
        for subject in Subject::OURS {
            for baseline in [Subject::Forwarding, Subject::Upstash] {
                rows.extend(compared(subject, baseline, connections, &rounds));
            }
        }
    }
    rows.push(start_time(effort.rounds)?);
    Ok(rows)
}

impl Subject {
    const ALL: [Self; 5] = [Self::DurableObject, Self::Forwarding, Self::Rest, Self::Tcp, Self::Upstash];
    const OURS: [Self; 3] = [Self::DurableObject, Self::Rest, Self::Tcp];

    fn word(self) -> &'static str {
        match self {
            Self::DurableObject => "durable_object",
            Self::Forwarding => "forwarding",
            Self::Rest => "rest",
            Self::Tcp => "tcp",
            Self::Upstash => "upstash",
        }
    }

    fn transport(self) -> Option<Transport> {
        match self {
            Self::DurableObject => Some(Transport::DurableObject),
            Self::Rest => Some(Transport::Rest),
            Self::Tcp => Some(Transport::Tcp),
            Self::Forwarding | Self::Upstash => None,
        }
    }

    fn config(self, scripts: &Path, store: SocketAddr, front: SocketAddr, origin: SocketAddr) -> WorkerdConfig {
        let config = match self.transport() {
            Some(transport) => {
                let address = if transport == Transport::Rest { front } else { store };
                let config = WorkerdConfig::built_in(paths::worker()).store(transport, address);
                config.policy(&policy()).deadline(DEADLINE)
            }
            None => WorkerdConfig::script(scripts.join(self.word())).store(Transport::Rest, front),
        };
        config.origin(origin)
    }
}

impl Workers {
    /// Starts all and sends each a first second of requests.
    fn start(redis: &Redis) -> Result<Self> {
        let (front, scripts) = (RestFront::start(redis.address())?, tempfile::tempdir()?);
        for subject in [Subject::Forwarding, Subject::Upstash] {
            bundle(subject.word(), scripts.path())?;
        }
        let config = EnvoyConfig::shipped_with(&paths::wasm_file("lockkeeper_filter.wasm"));
        let origin = Envoy::start(&config.without_access_log().without_filter().direct_response())?;
        let mut workers = BTreeMap::new();
        for subject in Subject::ALL {
            let config = subject.config(scripts.path(), redis.address(), front.address(), origin.address());
            let worker = Workerd::start(&config)?;
            let warm = wrk::run(worker.address(), 1, Duration::from_secs(1));
            warm.with_context(|| format!("{subject:?}:\n{}", worker.process().log_tail()))?;
            workers.insert(subject, worker);
        }
        Ok(Self { workers, store: redis.address(), _front: front, _origin: origin, _scripts: scripts })
    }

    /// Runs each once, beginning with another one in each round.
    fn round(&self, connections: u32, round: usize, time: Duration) -> Result<Round> {
        let mut order = Subject::ALL;
        order.rotate_left(round % Subject::ALL.len());
        let mut measured = Round::new();
        for subject in order {
            let worker = &self.workers[&subject];
            let (calls_before, cpu_before) = (script_calls(self.store)?, worker.process().cpu_time());
            let run = wrk::run(worker.address(), connections, time).with_context(|| format!("{subject:?}"))?;
            let cpu = worker.process().cpu_time() - cpu_before;
            let decided = (script_calls(self.store)? - calls_before) / run.requests;
            let is_decided = subject == Subject::Forwarding || decided >= DECIDED_BY_REDIS_MIN;
            ensure!(is_decided, "Redis decided only {:.0} % of a run of {subject:?}", decided * 100.0);
            measured.insert(subject, (run, cpu.as_secs_f64() * 1e6 / run.requests));
        }
        Ok(measured)
    }
}

/// One limit that admits everything, for all clients together.
fn policy() -> serde_json::Value {
    let limit = json!({ "name": "all", "algorithm": "token_bucket", "capacity": 1_000_000, "refill": "1000000/s", "key": ["constant:all"] });
    let policies = json!({ "all": { "limits": [limit], "limits_on_store_failure": "deny" } });
    json!({ "version": 1, "namespace": "bench-worker", "policies": policies, "default_policy": "all" })
}

fn bundle(name: &str, scripts: &Path) -> Result<()> {
    let source = paths::workspace().join(format!("edge-worker/bench/{name}.js"));
    let mut node = Command::new("node");
    node.arg(tools::esbuild()?).arg(&source).args([
        "--bundle",
        "--format=esm",
        "--log-level=error",
        "--conditions=worker",
    ]);
    node.arg(format!("--outfile={}", scripts.join(name).join("worker.js").display()));
    node.env("NODE_PATH", tools::worker_packages()?);
    ensure!(node.status()?.success(), "{} cannot be bundled", source.display());
    Ok(())
}

/// Requests each second and the median latency of a subject, each ÷ that of another.
fn compared(subject: Subject, baseline: Subject, connections: u32, rounds: &[Round]) -> [Row; 2] {
    let median = |figure: &dyn Fn(&Round) -> f64| row::median(rounds.iter().map(figure).collect());
    let figures = |one: Subject| {
        let per_second = median(&|round| round[&one].0.per_second);
        (per_second, median(&|round| round[&one].0.median_us), median(&|round| round[&one].1))
    };
    let (here, there) = (figures(subject), figures(baseline));
    let name = format!("worker_{}_by_{}", subject.word(), baseline.word());
    let must_win = subject == Subject::DurableObject && baseline == Subject::Upstash && connections > 1;
    let throughput = Row {
        name: name.clone(),
        connections: Some(connections),
        value: median(&|round| round[&subject].0.per_second / round[&baseline].0.per_second),
        budget: if must_win { row::AHEAD } else { Budget::NONE },
        detail: format!(
            "{:.0} of {:.0} requests/s; {:.0} and {:.0} µs of workerd's processor each",
            here.0, there.0, here.2, there.2
        ),
        fault: None,
    };
    let latency = Row {
        name: format!("{name}_p50"),
        connections: Some(connections),
        value: median(&|round| round[&subject].0.median_us / round[&baseline].0.median_us),
        budget: Budget::NONE,
        detail: format!("median latency {:.0} µs of {:.0} µs", here.1, there.1),
        fault: None,
    };
    [throughput, latency]
}

/// The processor time that workerd takes until it listens, above that with a Worker of a few lines.
fn start_time(rounds: usize) -> Result<Row> {
    let empty = tempfile::tempdir()?;
    std::fs::write(empty.path().join("worker.js"), "export default { fetch: () => new Response() };")?;
    let started = |config: &WorkerdConfig| -> Result<f64> {
        Ok(Workerd::start(config)?.process().cpu_time().as_secs_f64() * 1e3)
    };
    let own = WorkerdConfig::built_in(paths::worker());
    let plain = WorkerdConfig::script(empty.path().to_owned());
    let differences = (0..rounds).map(|_| Ok(started(&own)? - started(&plain)?)).collect::<Result<_>>()?;
    Ok(Row {
        name: "worker_start_ms".into(),
        connections: None,
        value: row::median(differences),
        budget: row::WORKER_START,
        detail: "ms of workerd's processor until it listens, above a Worker of one line".into(),
        fault: None,
    })
}
