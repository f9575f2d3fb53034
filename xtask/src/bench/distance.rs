//! What a distant store costs: latency at 64 connections with a round trip added to the link, in such round trips.
//! A decision is one round trip; commands that waited for others to leave would cost more.

use super::gateways::{DEADLINE, policy};
use super::row::{self, Budget, Row};
use super::{Effort, wrk};
use anyhow::Result;
use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, SlowLink, paths};
use std::time::Duration;

const CONNECTIONS: u32 = 64;
const ROUND_TRIPS_MS: [u64; 2] = [1, 5];
/// Longer than the pipe remembers how near the store was.
const SETTLE: Duration = Duration::from_secs(3);

/// One row for each distance.
pub fn measure(redis: &Redis, effort: Effort) -> Result<Vec<Row>> {
    let link = SlowLink::start(redis.address(), Duration::ZERO)?;
    let config = EnvoyConfig::shipped_with(&paths::wasm_file("lockkeeper_filter.wasm"))
        .without_access_log()
        .policy(policy())
        .deadline(DEADLINE)
        .redis(link.address())
        .direct_response();
    let envoy = Envoy::start(&config)?;
    let median_us = |round_trip: Duration| -> Result<f64> {
        link.set_round_trip(round_trip);
        wrk::run(envoy.address(), CONNECTIONS, SETTLE)?;
        Ok(wrk::run(envoy.address(), CONNECTIONS, effort.run)?.median_us)
    };
    let mut rows = Vec::new();
    for millis in ROUND_TRIPS_MS {
        eprintln!("bench: {CONNECTIONS} connections, Redis {millis} ms away");
        let added =
            |_| Ok((median_us(Duration::from_millis(millis))? - median_us(Duration::ZERO)?) / (millis as f64 * 1e3));
        let value = row::median((0..effort.rounds).map(added).collect::<Result<_>>()?);
        rows.push(Row {
            name: format!("round_trips_{millis}ms"),
            connections: Some(CONNECTIONS),
            value,
            budget: Budget::at_most(1.2, 1.0),
            detail: format!("median latency added by {millis} ms between Envoy and Redis ÷ {millis} ms"),
            fault: None,
        });
    }
    Ok(rows)
}
