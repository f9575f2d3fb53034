//! `cargo xtask demo worker`: a real workerd with the Worker, a real Redis and an origin that echoes, to try by hand;
//! `--check` tries them by itself.

use crate::worker;
use anyhow::{Context, Result, bail};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Redis, Upstream, Workerd, WorkerdConfig, paths, poll};
use std::fs;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How often the demo looks whether workerd still runs.
const WATCH: Duration = Duration::from_millis(500);
/// How soon limits are shared again once Redis is back.
const RECOVERY: Duration = Duration::from_secs(5);
/// Above what a machine under load takes for a decision: this shows limits, no latencies.
const DEADLINE: Duration = Duration::from_secs(1);
const DEGRADED: &str = "x-degraded";

struct Demo {
    workerd: Workerd,
    upstream: Upstream,
    redis: Redis,
    policy: String,
}

/// Runs the demo until Ctrl-C, or its check.
pub fn run(check: bool) -> Result<ExitCode> {
    worker::worker()?;
    let (interrupt, interrupted) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = interrupt.send(());
    })?;
    let mut demo = Demo::start()?;
    if check {
        return demo.check();
    }
    demo.guide();
    while interrupted.recv_timeout(WATCH) == Err(RecvTimeoutError::Timeout) {
        if demo.workerd.has_ended() {
            bail!("workerd ended:\n{}", demo.workerd.process().log_tail());
        }
    }
    eprintln!("demo: stopping");
    Ok(ExitCode::SUCCESS)
}

impl Demo {
    fn start() -> Result<Demo> {
        let (redis, upstream) = (Redis::start()?, Upstream::start()?);
        // The same policy as Envoy's demo.
        let policy = fs::read_to_string(paths::workspace().join("envoy/policy.json"))?;
        let config = WorkerdConfig::built_in(paths::worker()).store(Transport::DurableObject, redis.address());
        let config = config.origin(upstream.address()).variable("POLICY", &policy).deadline(DEADLINE);
        eprintln!("demo: starting workerd");
        let workerd = Workerd::start(&config.variable("DEGRADED_HEADER", DEGRADED))?;
        Ok(Demo { workerd, upstream, redis, policy })
    }

    fn guide(&self) {
        let base = format!("http://{}", self.workerd.address());
        let client = "-H 'cf-connecting-ip: 192.0.2.7'";
        println!("\npolicy (envoy/policy.json)\n{}", self.policy);
        println!("Worker     {base}    (on Cloudflare the platform sets cf-connecting-ip; here you do)");
        println!("origin     http://{}", self.upstream.address());
        println!("Redis      {} (pid {})", self.redis.address(), self.redis.pid());
        println!("\ntry");
        println!("  # policy api: five at once, then one a second; the sixth is a 429");
        println!("  curl -i {client} {base}/hello");
        println!("  # policy login: three a minute for each user");
        println!("  curl -i -X POST {client} -H 'x-user: ada' {base}/v1/login");
        println!("  # Redis hangs, and goes on: {DEGRADED} tells who decided meanwhile");
        println!("  kill -STOP {0}; kill -CONT {0}", self.redis.pid());
        println!("\nCtrl-C ends everything.");
    }

    fn check(&mut self) -> Result<ExitCode> {
        let mut failed = 0;
        let mut expect = |what: &str, expected: (u16, Option<&str>), seen: (u16, Option<String>)| {
            let holds = (expected.0, expected.1) == (seen.0, seen.1.as_deref());
            failed += u32::from(!holds);
            println!("{}  {what:<40} expected {expected:?} seen {seen:?}", if holds { "ok    " } else { "FAILED" });
        };
        for number in 1..=5 {
            expect(&format!("GET /hello, {number} of 5"), (200, None), self.get("192.0.2.7")?);
        }
        expect("GET /hello once more", (429, None), self.get("192.0.2.7")?);
        expect("GET /hello as another client", (200, None), self.get("192.0.2.8")?);
        self.redis.kill();
        expect("GET /hello without Redis", (200, Some("local")), self.get("192.0.2.9")?);
        expect("POST /v1/login without Redis", (503, Some("failure_mode")), self.login()?);
        self.redis.restart()?;
        let back =
            poll::until("the store decides again", RECOVERY, || self.login().ok().filter(|(status, _)| *status == 200));
        expect("POST /v1/login with Redis again", (200, None), back.context("Redis is back")?);
        println!("{}", if failed == 0 { "all as expected".to_owned() } else { format!("{failed} not as expected") });
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn get(&self, client: &str) -> Result<(u16, Option<String>)> {
        self.send(Request::get("/hello").header("cf-connecting-ip", client))
    }

    fn login(&self) -> Result<(u16, Option<String>)> {
        self.send(Request::new("POST", "/v1/login").header("cf-connecting-ip", "192.0.2.7"))
    }

    /// The status, and who decided when the store did not.
    fn send(&self, request: Request) -> Result<(u16, Option<String>)> {
        let answer = self.workerd.client().send(&request)?;
        Ok((answer.status, answer.header(DEGRADED).map(str::to_owned)))
    }
}
