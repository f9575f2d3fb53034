//! The live store, for looking and, when asked, deleting: the keys of one request and what they hold.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper_core::algorithm::{Charge, State, Verdict};
use lockkeeper_core::engine::{Engine, Step};
use redis::{Client, Connection, Pipeline, Value};
use serde::Serialize;

use crate::request::Request;

/// Slots may come back at any time, so nobody is sent away for longer.
pub const SLOT_RETRY_US: u64 = 1_000_000;
const TIMEOUT: Duration = Duration::from_secs(3);

/// Where the store is.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreOptions {
    /// The store, as `redis://[user:password@]host[:port][/database]`
    #[arg(long, env = "LOCKKEEPER_STORE", hide_env_values = true, value_name = "URL")]
    store: String,
}

/// A connection to the store.
pub struct Store {
    connection: Connection,
}

/// What one limit holds for one identity.
#[derive(Debug, Serialize)]
pub struct Level {
    /// The limit's name.
    pub limit: String,
    /// Its key.
    pub store_key: String,
    /// The most that can be available at once.
    pub allowance: u64,
    /// What is available now.
    pub remaining: u64,
    /// Microseconds until more is available; 0 when nothing is spent.
    pub next_refill_us: u64,
    /// Microseconds until this request would be admitted; 0 when it would be now.
    pub retry_us: u64,
    /// Milliseconds until the key expires; none when there is no key.
    pub ttl_ms: Option<u64>,
    /// The key has no expiry: something else wrote it; the next decision heals it.
    pub never_expires: bool,
}

/// What is stored under one key.
struct Stored {
    texts: Vec<String>,
    pttl_ms: i64,
}

impl Store {
    /// Connects.
    ///
    /// # Errors
    /// When the URL is none or the store cannot be reached. The message never holds the URL, which may hold a password.
    pub fn connect(options: &StoreOptions) -> Result<Store> {
        let client = Client::open(options.store.as_str())
            .context("--store: expected redis://[user:password@]host[:port][/database]")?;
        let connection = client.get_connection_with_timeout(TIMEOUT).context("the store cannot be reached")?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        Ok(Store { connection })
    }

    /// What the limits that count the request hold for it. Only reads.
    ///
    /// # Errors
    /// When the store fails.
    pub fn levels(&mut self, engine: &Engine, request: &Request) -> Result<Vec<Level>> {
        let selection = request.select(engine);
        let Step::Call(call) = request.begin(engine, &selection) else { return Ok(Vec::new()) };
        let limits = engine.policy(&selection).map_or(&[][..], |policy| &policy.limits);
        let now_us = self.now_us()?;
        let mut levels = Vec::new();
        for (counted, charge) in call.counted().iter().zip(call.charges()) {
            let name = limits.get(counted.limit).map(|limit| limit.label.clone()).unwrap_or_default();
            let stored = self.stored(&counted.store_key)?;
            levels.push(level(name, counted.store_key.clone(), &charge, &stored, now_us));
        }
        Ok(levels)
    }

    /// Deletes keys and returns how many there were.
    ///
    /// # Errors
    /// When the store fails.
    pub fn delete(&mut self, keys: &[String]) -> Result<u64> {
        // One by one: in a cluster's node, keys of several slots are refused together.
        let mut deleted: u64 = 0;
        for key in keys {
            let count: u64 = redis::cmd("DEL").arg(key).query(&mut self.connection).context("DEL")?;
            deleted = deleted.saturating_add(count);
        }
        Ok(deleted)
    }

    fn now_us(&mut self) -> Result<u64> {
        let (seconds, us): (u64, u64) = redis::cmd("TIME").query(&mut self.connection).context("TIME")?;
        Ok(seconds.saturating_mul(1_000_000).saturating_add(us))
    }

    fn stored(&mut self, key: &str) -> Result<Stored> {
        let mut asked = Pipeline::new();
        asked.cmd("TYPE").arg(key).cmd("PTTL").arg(key);
        let (kind, pttl_ms): (String, i64) = asked.query(&mut self.connection).context("TYPE and PTTL")?;
        let texts = match kind.as_str() {
            "string" => texts(redis::cmd("GET").arg(key).query(&mut self.connection).context("GET")?)?,
            "list" => {
                texts(redis::cmd("LRANGE").arg(key).arg(0).arg(-1).query(&mut self.connection).context("LRANGE")?)?
            }
            "zset" => {
                let mut all = redis::cmd("ZRANGE");
                texts(all.arg(key).arg(0).arg(-1).arg("WITHSCORES").query(&mut self.connection).context("ZRANGE")?)?
            }
            _ => Vec::new(),
        };
        Ok(Stored { texts, pttl_ms })
    }
}

/// What is no text is nothing that a limit wrote.
fn texts(value: Value) -> Result<Vec<String>> {
    Ok(match value {
        Value::Nil => Vec::new(),
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(&bytes).into_owned()],
        Value::Array(items) => items.into_iter().map(texts).collect::<Result<Vec<_>>>()?.concat(),
        other => bail!("the store answered {other:?}"),
    })
}

fn level(limit: String, store_key: String, charge: &Charge<'_>, stored: &Stored, now_us: u64) -> Level {
    let texts: Vec<&str> = stored.texts.iter().map(String::as_str).collect();
    let Verdict { remaining, reset_us, retry_us, .. } = match charge.algorithm.is_held() {
        true => slots(charge.algorithm.allowance(), &texts, now_us),
        false => charge.peek(&State::parse(charge.algorithm, &texts), now_us),
    };
    Level {
        limit,
        store_key,
        allowance: charge.algorithm.allowance(),
        remaining,
        next_refill_us: reset_us,
        retry_us,
        ttl_ms: u64::try_from(stored.pttl_ms).ok(),
        never_expires: stored.pttl_ms == -1,
    }
}

/// What the store would say of slots: `texts` are owners, each followed by the time at which its lease ends.
fn slots(limit: u64, texts: &[&str], now_us: u64) -> Verdict {
    let ends = texts.iter().skip(1).step_by(2).filter_map(|text| text.parse::<f64>().ok()).map(|end_us| end_us as u64);
    let rest: Vec<u64> = ends.filter_map(|end_us| end_us.checked_sub(now_us)).filter(|rest_us| *rest_us > 0).collect();
    let held = u64::try_from(rest.len()).unwrap_or(u64::MAX);
    let reset_us = rest.into_iter().min().unwrap_or(0);
    let admitted = held < limit;
    let retry_us = if admitted { 0 } else { reset_us.min(SLOT_RETRY_US) };
    Verdict { admitted, remaining: limit.saturating_sub(held), reset_us, retry_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_count_until_their_lease_ends() {
        let texts = ["a", "5000000", "b", "1.79e6", "c", "900000"];
        let rows = [(800_000, (true, 1, 100_000, 0)), (900_000, (true, 2, 890_000, 0)), (6_000_000, (true, 4, 0, 0))];
        for (now_us, (admitted, remaining, reset_us, retry_us)) in rows {
            let expected = Verdict { admitted, remaining, reset_us, retry_us };
            assert_eq!(slots(4, &texts, now_us), expected, "{now_us}");
        }
        let full = Verdict { admitted: false, remaining: 0, reset_us: 1_790_000, retry_us: SLOT_RETRY_US };
        assert_eq!(slots(1, &texts[..4], 0), full);
    }
}
