//! What it costs to run a request once, to answer it from its record, and to hold its response until that is stored.

use super::gateways::DEADLINE;
use super::row::{self, Budget, Row};
use super::{Effort, wrk};
use anyhow::{Context, Result, ensure};
use lockkeeper_tests::http::{Client, Request};
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, SlowLink, Upstream, paths, poll};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const CONNECTIONS: u32 = 64;
/// Responses that are held at the same time, and the bytes of each.
const HELD: usize = 100;
const HELD_BYTES: usize = 256 * 1024;
/// What an echo adds to the body that it repeats, at most.
const ECHO_BYTES: usize = 2 * 1024;
/// How far away the store is while responses are held: each waits for it twice.
const DISTANCE: Duration = Duration::from_millis(300);

/// Rows for a claim with its completion, for a replay, and for held responses.
pub fn measure(redis: &Redis, effort: Effort) -> Result<Vec<Row>> {
    let [bare, claiming, answering] = envoys(redis)?;
    let directory = tempfile::tempdir()?;
    let fresh = script(directory.path(), "fresh.lua", "tostring(count) .. '-' .. tostring(start)")?;
    let same = script(directory.path(), "same.lua", "'same'")?;
    let run = |envoy: &Envoy, script: &Path| wrk::run_script(envoy.address(), CONNECTIONS, effort.run, script);
    let first = Request::new("POST", "/").header("authorization", "Bearer bench").header("idempotency-key", "same");
    let first = claiming.client().send(&first.header("content-type", "application/json").body("{\"amount\":1}"))?;
    ensure!(first.status == 200, "the request that is replayed passes, not {}", first.status);
    eprintln!("bench: {} runs of {:?} with idempotency keys", 4 * effort.rounds, effort.run);
    let (mut claims, mut replays) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        let per_second = |envoy: &Envoy, script: &Path| run(envoy, script).map(|measured| measured.per_second);
        claims.push(per_second(&claiming, &fresh)? / per_second(&bare, &fresh)?);
        replays.push(per_second(&claiming, &same)? / per_second(&answering, &same)?);
    }
    Ok(vec![
        ratio("claim_and_complete", claims, "requests/s with a fresh key each ÷ bare Envoy with the same upstream"),
        ratio("replay", replays, "requests/s answered from one record ÷ a bare Envoy that answers by itself"),
        held(redis)?,
    ])
}

fn ratio(name: &str, ratios: Vec<f64>, detail: &str) -> Row {
    Row {
        name: name.into(),
        connections: Some(CONNECTIONS),
        value: row::median(ratios),
        budget: Budget::NONE,
        detail: detail.into(),
        fault: None,
    }
}

/// A bare Envoy and one that claims, before the same upstream, which comes third: a bare Envoy that answers by itself.
fn envoys(redis: &Redis) -> Result<[Envoy; 3]> {
    let upstream = Envoy::start(&config(redis.address()).without_filter().direct_response())?;
    let start = |config: EnvoyConfig| Envoy::start(&config.upstream(upstream.address()));
    Ok([start(config(redis.address()).without_filter())?, start(config(redis.address()))?, upstream])
}

fn config(redis: SocketAddr) -> EnvoyConfig {
    let config = EnvoyConfig::shipped_with(&paths::wasm_file("lockkeeper_filter.wasm")).without_access_log();
    config.reads_bodies().redis(redis).policy(policy()).deadline(DEADLINE)
}

fn policy() -> Value {
    let rules = json!({
        "scope": ["header:authorization"],
        "on_unknown": "reject",
        "replay_limit": false,
        "fingerprint": { "max_body_bytes": 2 * HELD_BYTES, "hold_limit": false },
        "response": { "max_body_bytes": HELD_BYTES }
    });
    json!({ "version": 1, "namespace": "bench-claims", "policies": { "all": { "idempotency": rules } }, "default_policy": "all" })
}

/// Requests whose key is an expression of `count` and `start`.
fn script(directory: &Path, name: &str, key: &str) -> Result<std::path::PathBuf> {
    let text = format!(
        "local count, start = 0, os.time()\n\
         request = function()\n  count = count + 1\n  local headers = {{ ['authorization'] = 'Bearer bench', ['content-type'] = 'application/json', ['idempotency-key'] = {key} }}\n  \
         return wrk.format('POST', '/', headers, '{{\"amount\":1}}')\nend\n"
    );
    let path = directory.join(name);
    std::fs::write(&path, text)?;
    Ok(path)
}

/// What Envoy grows by for each response that waits for its record, in times of the response.
fn held(redis: &Redis) -> Result<Row> {
    let (upstream, link) = (Upstream::start()?, SlowLink::start(redis.address(), DISTANCE)?);
    let envoy = Envoy::start(&config(link.address()).upstream(upstream.address()))?;
    let client = envoy.client();
    let body = "x".repeat(HELD_BYTES - ECHO_BYTES);
    let send = |client: &Client, key: String| {
        let request = Request::new("POST", "/").header("authorization", "Bearer held").header("idempotency-key", key);
        client.send(&request.body(body.clone()))
    };
    ensure!(send(&client, "first".into())?.status == 200, "the first request passes");
    let before = resident_kib(envoy.process().pid())?;
    let mut most = before;
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..HELD)
            .map(|number| {
                let client = client.clone();
                scope.spawn(move || send(&client, format!("held-{number}")))
            })
            .collect();
        poll::until("all responses", Duration::from_secs(20), || {
            most = most.max(resident_kib(envoy.process().pid()).unwrap_or(most));
            threads.iter().all(|thread| thread.is_finished()).then_some(())
        })?;
        for thread in threads {
            let answer = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
            ensure!(answer.status == 200, "a held response is sent on, not {}", answer.status);
        }
        Ok(())
    })?;
    let grown = most.saturating_sub(before) as f64;
    let detail = format!("memory of Envoy for {HELD} responses of {} KiB held: {grown:.0} KiB more", HELD_BYTES / 1024);
    let value = grown / (HELD * HELD_BYTES / 1024) as f64;
    Ok(Row { name: "held_response_memory".into(), connections: None, value, budget: Budget::NONE, detail, fault: None })
}

fn resident_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a line VmRSS")?;
    Ok(line.split_whitespace().next().context("a number")?.parse()?)
}
