//! Drives the whole core as a host would, as a wasm module of its own: `cargo xtask tidy` checks that it imports nothing.

use lockkeeper_core::breaker::BreakerConfig;
use lockkeeper_core::call::Call;
use lockkeeper_core::decision::Action;
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::greeting::Greeting;
use lockkeeper_core::host_config::PluginConfig;
use lockkeeper_core::local::{LocalDecision, LocalStep, Swap, Table};
use lockkeeper_core::local_call::LocalCall;
use lockkeeper_core::pipe::{Moment, Pipe, PipeConfig, Submission};
use lockkeeper_core::resp::Reply;
use lockkeeper_core::store::StoreFailure;

const NOW_US: u64 = 1_000_000;
const DEADLINE_US: u64 = 1_050_000;

/// Loads a configuration, decides one request of 192.0.2.1 with what the store sends, and says with which status: 200
/// when the request passes, 0 when nothing decides it.
///
/// # Safety
/// Both pointers must be valid for reads of their lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn status(config: *const u8, config_bytes: usize, sent: *const u8, sent_bytes: usize) -> u32 {
    // SAFETY: the caller's promise.
    let (config, sent) =
        unsafe { (std::slice::from_raw_parts(config, config_bytes), std::slice::from_raw_parts(sent, sent_bytes)) };
    decided_status(config, sent).unwrap_or(0)
}

fn decided_status(config: &[u8], sent: &[u8]) -> Option<u32> {
    let engine = Engine::new(PluginConfig::from_json(config).ok()?.policies);
    let selection = engine.select("GET", "example.com", "/");
    let values = vec![Some(b"192.0.2.1".to_vec()); engine.attributes(&selection).len()];
    let mut step = engine.begin(&selection, &values);
    loop {
        step = match step {
            Step::Call(call) => {
                let result = exchange(&call, sent);
                call.resume(result)
            }
            Step::Local(local) => {
                let decision = decide_locally(&local);
                local.resume(&decision)
            }
            Step::Decide(decision) => {
                return Some(match decision.action {
                    Action::Answer(answer) => u32::from(answer.status),
                    Action::Forward { .. } => 200,
                });
            }
            _ => return None,
        };
    }
}

fn exchange(call: &Call, sent: &[u8]) -> Result<Reply, StoreFailure> {
    let mut pipe = Pipe::new(pipe_config(), 1);
    pipe.opened(NOW_US);
    let write = |call: &&Call, tag: &str, out: &mut Vec<u8>| call.write(tag, out);
    pipe.submit(call, Submission::new(NOW_US, DEADLINE_US), write).map_err(|_| StoreFailure::NotSent)?;
    pipe.output(Moment::Flush);
    let mut settled = pipe.received(sent, NOW_US);
    settled.extend(pipe.expire(DEADLINE_US));
    settled.pop().map_or(Err(StoreFailure::Unknown), |settled| settled.result)
}

fn pipe_config() -> PipeConfig {
    PipeConfig {
        coalesce_above: 4,
        coalesce_round_trip_max_us: 500,
        in_flight_max: 16,
        probe_deadline_us: 50_000,
        stuck_after_us: 500_000,
        reconnect_pause_us: (25_000, 500_000),
        waits_to_reconnect: false,
        greeting: Greeting::default(),
        probe_key: "probe".into(),
        breaker: BreakerConfig::default(),
    }
}

/// With a table that is empty, and whose every write is accepted.
fn decide_locally(local: &LocalCall) -> LocalDecision {
    let table = Table::new(1, [7; 16]);
    let charges = local.charges();
    let mut step = table.start(&charges, NOW_US);
    loop {
        step = match step {
            LocalStep::Read(read) => read.resume(&[], None),
            LocalStep::Write(write) => write.resume(Swap::Written),
            LocalStep::Done(decision) => return decision,
        };
    }
}
