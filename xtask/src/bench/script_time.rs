//! The time a decision takes inside Redis, by Redis' own statistics, against a script of `INCR` and `PEXPIRE`.

use super::row::{self, Row};
use anyhow::{Context, Result};
use lockkeeper_core::algorithm::{Algorithm, Charge, FixedWindow, SlidingWindow, SlidingWindowCounter, TokenBucket};
use lockkeeper_core::script;
use lockkeeper_tests::Redis;
use redis::{Connection, Pipeline};

const BASELINE: &str =
    "local count = redis.call('INCR', KEYS[1])\nredis.call('PEXPIRE', KEYS[1], ARGV[1])\nreturn count\n";
/// Each key is charged a few times, all admitted: denials write nothing and would flatter.
const KEYS: usize = 1_000;
const CALLS_PER_KEY: usize = 20;
const ALLOWANCE: u64 = 100;
const MINUTE_US: u64 = 60_000_000;

/// A row for each algorithm.
pub fn measure(redis: &Redis, rounds: usize) -> Result<Vec<Row>> {
    eprintln!("bench: time in Redis, {} calls for each algorithm", KEYS * CALLS_PER_KEY * rounds);
    let mut connection = redis.connection();
    let mut rows = Vec::new();
    for (name, algorithm) in algorithms()? {
        let (mut ratios, mut times) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let baseline_us = run(&mut connection, BASELINE, &[MINUTE_US.to_string().into_bytes()])?;
            let charge = Charge { algorithm: &algorithm, cost: 1, enforce: true };
            let decision_us = run(&mut connection, script::DECIDE.text, &script::arguments(b"bench", &[charge]))?;
            ratios.push(decision_us / baseline_us);
            times.push(decision_us);
        }
        let detail = format!("{:.1} µs a decision in Redis", row::median(times));
        let name = format!("script_{name}");
        rows.push(Row {
            name,
            connections: None,
            value: row::median(ratios),
            budget: row::SCRIPT,
            detail,
            fault: None,
        });
    }
    Ok(rows)
}

fn algorithms() -> Result<[(&'static str, Algorithm); 4]> {
    Ok([
        ("fixed_window", FixedWindow::new(ALLOWANCE, MINUTE_US)?.into()),
        ("sliding_window", SlidingWindow::new(ALLOWANCE, MINUTE_US)?.into()),
        ("sliding_window_counter", SlidingWindowCounter::new(ALLOWANCE, MINUTE_US)?.into()),
        ("token_bucket", TokenBucket::new(ALLOWANCE, ALLOWANCE, MINUTE_US)?.into()),
    ])
}

/// Runs a script on an empty store, each key in turn; the mean time of a call in µs.
fn run(connection: &mut Connection, text: &str, arguments: &[Vec<u8>]) -> Result<f64> {
    redis::cmd("FLUSHALL").exec(connection)?;
    let sha1: String = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection)?;
    redis::cmd("CONFIG").arg("RESETSTAT").exec(connection)?;
    for _ in 0..CALLS_PER_KEY {
        let mut pipeline = Pipeline::with_capacity(KEYS);
        for key in 0..KEYS {
            pipeline.cmd("EVALSHA").arg(&sha1).arg(1).arg(format!("bench:{{{key}}}")).arg(arguments).ignore();
        }
        pipeline.exec(connection)?;
    }
    let info: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).context("Redis counted no EVALSHA")?;
    let time =
        line.split(',').find_map(|field| field.strip_prefix("usec_per_call=")).context("no time in the statistics")?;
    Ok(time.parse()?)
}
