//! `cargo xtask demo`: a real Envoy with the filter, a real Redis and an upstream that echoes, to try by hand; `--check` tries them by itself.

mod check;
mod guide;

use crate::{build, worker_demo};
use anyhow::{Result, bail};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, Upstream, paths, ports};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often the demo looks whether its servers still run.
const WATCH: Duration = Duration::from_millis(500);

/// How to run the demo.
#[derive(clap::Args)]
pub struct Options {
    /// The gateway to run the policy in: `envoy`, or `worker` for the Cloudflare Worker
    #[arg(value_enum, default_value_t = Gateway::Envoy)]
    gateway: Gateway,
    /// Send the requests of the guide, print expected and seen, and end
    #[arg(long)]
    check: bool,
}

/// What limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Gateway {
    Envoy,
    Worker,
}

/// The servers of one demo; they end with it.
pub struct Demo {
    envoy: Envoy,
    upstream: Upstream,
    /// Without it the filter limits by itself.
    redis: Option<Redis>,
}

/// Runs the demo until Ctrl-C, or its check.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.gateway == Gateway::Worker {
        return worker_demo::run(options.check);
    }
    build::filter()?;
    // From here on, Ctrl-C ends the children in order; before, it ends cargo.
    let (interrupt, interrupted) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = interrupt.send(());
    })?;
    let mut demo = Demo::start()?;
    if options.check {
        return check::run(&mut demo);
    }
    guide::print(&demo);
    while interrupted.recv_timeout(WATCH) == Err(RecvTimeoutError::Timeout) {
        if let Some(status) = demo.envoy.exited() {
            bail!("Envoy ended with {status}:\n{}", demo.envoy.process().log_tail());
        }
    }
    eprintln!("demo: stopping");
    Ok(ExitCode::SUCCESS)
}

impl Demo {
    fn start() -> Result<Self> {
        let redis =
            Redis::start().inspect_err(|error| eprintln!("demo: no Redis ({error:#}); Envoy limits by itself")).ok();
        let upstream = Upstream::start()?;
        let store = redis.as_ref().map_or_else(ports::free, Redis::address);
        let config = EnvoyConfig::shipped_with(&paths::wasm_file("lockkeeper_filter.wasm")).concurrency(2);
        eprintln!("demo: starting Envoy");
        let envoy = Envoy::start(&config.redis(store).upstream(upstream.address()))?;
        Ok(Self { envoy, upstream, redis })
    }
}
