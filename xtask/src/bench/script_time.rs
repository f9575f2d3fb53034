//! The time a decision takes inside Redis, by Redis' own statistics, against a script of `INCR` and `PEXPIRE`.

use super::row::{self, Row};
use anyhow::{Context, Result};
use lockkeeper_core::algorithm::{Algorithm, Charge, FixedWindow, SlidingWindow, SlidingWindowCounter, TokenBucket};
use lockkeeper_core::script;
use lockkeeper_tests::Redis;
use redis::{Connection, Pipeline};

const BASELINE: &str =
    "local count = redis.call('INCR', KEYS[1])\nredis.call('PEXPIRE', KEYS[1], ARGV[1])\nreturn count\n";
/// The calls of one measurement: few, so that most of them are over before the system takes the processor away.
const KEYS: usize = 100;
/// All are admitted: denials write nothing and would flatter.
const CALLS_PER_KEY: usize = 100;
const ALLOWANCE: u64 = 1_000;
const MINUTE_US: u64 = 60_000_000;

/// A row for each algorithm.
pub fn measure(redis: &Redis, rounds: usize) -> Result<Vec<Row>> {
    eprintln!("bench: time in Redis, {} decisions by each algorithm", KEYS * CALLS_PER_KEY * rounds);
    let mut connection = redis.connection();
    let mut rows = Vec::new();
    for (name, algorithm) in algorithms()? {
        let (mut ratios, mut times) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            for (baseline_us, decision_us) in round(&mut connection, &algorithm)? {
                ratios.push(decision_us / baseline_us);
                times.push(decision_us);
            }
        }
        let detail = format!("{:.1} µs a decision in Redis", row::median(times));
        let name = format!("script_{name}");
        let value = row::median(ratios);
        rows.push(Row { name, connections: None, value, budget: row::SCRIPT, detail, fault: None });
    }
    Ok(rows)
}

/// Mean times of a call, baseline and decision in turn, on an empty store that fills: a pair for each call of a key.
fn round(connection: &mut Connection, algorithm: &Algorithm) -> Result<Vec<(f64, f64)>> {
    redis::cmd("FLUSHALL").exec(connection)?;
    let mut load = |text: &str| redis::cmd("SCRIPT").arg("LOAD").arg(text).query::<String>(connection);
    let (baseline, decision) = (load(BASELINE)?, load(&script::DECIDE.text())?);
    let window = [MINUTE_US.to_string().into_bytes()];
    let charge = script::arguments(b"bench", &[Charge { algorithm, cost: 1, enforce: true }]);
    let pair = |_| {
        Ok((mean_us(connection, &baseline, "baseline", &window)?, mean_us(connection, &decision, "decision", &charge)?))
    };
    (0..CALLS_PER_KEY).map(pair).collect()
}

fn algorithms() -> Result<[(&'static str, Algorithm); 4]> {
    Ok([
        ("fixed_window", FixedWindow::new(ALLOWANCE, MINUTE_US)?.into()),
        ("sliding_window", SlidingWindow::new(ALLOWANCE, MINUTE_US)?.into()),
        ("sliding_window_counter", SlidingWindowCounter::new(ALLOWANCE, MINUTE_US)?.into()),
        ("token_bucket", TokenBucket::new(ALLOWANCE, ALLOWANCE, MINUTE_US)?.into()),
    ])
}

/// Calls a script once for each key; the mean time of a call in µs, by Redis' statistics.
fn mean_us(connection: &mut Connection, sha1: &str, prefix: &str, arguments: &[Vec<u8>]) -> Result<f64> {
    let mut calls = Pipeline::with_capacity(KEYS);
    for key in 0..KEYS {
        calls.cmd("EVALSHA").arg(sha1).arg(1).arg(format!("bench:{prefix}:{{{key}}}")).arg(arguments).ignore();
    }
    redis::cmd("CONFIG").arg("RESETSTAT").exec(connection)?;
    calls.exec(connection)?;
    let info: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).context("Redis counted no EVALSHA")?;
    let time = line.split(',').find_map(|field| field.strip_prefix("usec_per_call="));
    Ok(time.context("no time in Redis' statistics")?.parse()?)
}
