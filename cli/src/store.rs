//! The live store, for looking and, when asked, deleting: the keys of one request and what they hold.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper_core::algorithm::{Algorithm, Charge, State, Verdict};
use lockkeeper_core::claim::Command::Release;
use lockkeeper_core::claim::{Holdings, Owner};
use lockkeeper_core::engine::{Engine, Step};
use redis::{Client, Connection, ConnectionLike, Pipeline, Value};
use serde::Serialize;

use crate::claims::{self, Claim};
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
    /// Of a limit on requests at once: who holds a slot, the first to lapse first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Slot>,
}

/// A slot of a limit on requests at once.
#[derive(Debug, Serialize)]
pub struct Slot {
    /// The first digits of its holder.
    pub owner: String,
    /// Microseconds until its lease ends.
    pub lease_left_us: u64,
}

/// Everything that the store holds for a request.
#[derive(Debug, Serialize)]
pub struct Held {
    /// Its claims.
    pub claims: Vec<Claim>,
    /// Of the limits that count it.
    #[serde(rename = "limits")]
    pub levels: Vec<Level>,
}

/// What came of clearing a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// It is free.
    Yes,
    /// It is not as it was read, so it stays.
    Changed,
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

    /// What the claims of the request and the limits that count it hold for it. Only reads.
    ///
    /// # Errors
    /// When the store fails.
    pub fn held(&mut self, engine: &Engine, request: &Request) -> Result<Held> {
        let selection = request.select(engine);
        let Step::Call(call) = request.begin(engine, &selection) else {
            return Ok(Held { claims: Vec::new(), levels: Vec::new() });
        };
        let limits = engine.policy(&selection).map_or(&[][..], |policy| &policy.limits);
        let now_us = self.now_us()?;
        let claims =
            call.asks().iter().map(|ask| claims::read(ask, now_us, &mut self.connection)).collect::<Result<_>>()?;
        let mut levels = Vec::new();
        for (counted, charge) in call.counted().iter().zip(call.charges()) {
            let name = limits.get(counted.limit).map(|limit| limit.label.clone()).unwrap_or_default();
            let stored = self.stored(&counted.store_key)?;
            levels.push(level(name, counted.store_key.clone(), &charge, &stored, now_us));
        }
        Ok(Held { claims, levels })
    }

    /// Gives a running claim back, if it is still `owner`'s with the fence that was read.
    ///
    /// # Errors
    /// When the store fails.
    pub fn give_back(&mut self, owner: Owner, claim: &Claim) -> Result<Cleared> {
        let holdings = Holdings { owner, claims: vec![claim.held.clone()], slots: Vec::new() };
        let mut command = Vec::new();
        Release { holdings, is_uncounted: false }.write("unlock", true, &mut command);
        let reply: (String, String) = redis::from_redis_value(self.connection.req_packed_command(&command)?)?;
        Ok(if reply.1 == "ok" { Cleared::Yes } else { Cleared::Changed })
    }

    /// Deletes a record that is done or none of ours, if nobody has changed it since it was read. Its last fence stays.
    ///
    /// # Errors
    /// When the store fails.
    pub fn forget(&mut self, claim: &Claim) -> Result<Cleared> {
        let key = &claim.store_key;
        redis::cmd("WATCH").arg(key).query::<()>(&mut self.connection).context("WATCH")?;
        if claims::read_record(key, &mut self.connection)? != claim.record {
            redis::cmd("UNWATCH").query::<()>(&mut self.connection).context("UNWATCH")?;
            return Ok(Cleared::Changed);
        }
        let deleted: Option<(u64,)> =
            Pipeline::new().atomic().cmd("DEL").arg(key).query(&mut self.connection).context("DEL")?;
        Ok(if deleted.is_some_and(|(count,)| count > 0) { Cleared::Yes } else { Cleared::Changed })
    }

    /// The store's `maxmemory-policy`, when it is known and may drop what we wrote. Not every user may ask.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn evicting(&mut self) -> Result<Option<String>> {
        let asked = redis::cmd("INFO").arg("memory").query::<String>(&mut self.connection);
        let text = match asked {
            Ok(text) => text,
            Err(error) if error.is_io_error() => return Err(error).context("INFO"),
            Err(_) => return Ok(None),
        };
        let policy = text.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(str::trim);
        Ok(policy.filter(|policy| *policy != "noeviction").map(str::to_owned))
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
    let slots = if charge.algorithm.is_held() { slots(charge.algorithm, &texts, now_us) } else { Vec::new() };
    let Verdict { remaining, reset_us, retry_us, .. } = match charge.algorithm.is_held() {
        true => of_slots(charge.algorithm.allowance(), &slots),
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
        slots,
    }
}

/// The slots whose lease has not ended: `texts` are owners, each followed by the time at which it ends. None is held for
/// longer than a lease from now on.
fn slots(algorithm: &Algorithm, texts: &[&str], now_us: u64) -> Vec<Slot> {
    let slot = |pair: &[&str]| {
        let [owner, end_us] = pair else { return None };
        let rest_us = (end_us.parse::<f64>().ok()? as u64).checked_sub(now_us).filter(|rest_us| *rest_us > 0)?;
        let owner = owner.chars().take(claims::OWNER_DIGITS).collect();
        Some(Slot { owner, lease_left_us: rest_us.min(algorithm.window_us()) })
    };
    texts.chunks_exact(2).filter_map(slot).collect()
}

/// What the store would say of a limit whose slots these are.
fn of_slots(limit: u64, slots: &[Slot]) -> Verdict {
    let held = u64::try_from(slots.len()).unwrap_or(u64::MAX);
    let reset_us = slots.iter().map(|slot| slot.lease_left_us).min().unwrap_or(0);
    let admitted = held < limit;
    let retry_us = if admitted { 0 } else { reset_us.min(SLOT_RETRY_US) };
    Verdict { admitted, remaining: limit.saturating_sub(held), reset_us, retry_us }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::algorithm::Concurrency;

    #[test]
    fn slots_count_until_their_lease_ends() {
        let texts = ["a", "5000000", "b", "1.79e6", "c", "900000"];
        let held = |limit, texts, now_us| {
            let algorithm = Algorithm::Concurrency(Concurrency::new(limit, 4_200_000).unwrap());
            of_slots(limit, &slots(&algorithm, texts, now_us))
        };
        let rows = [(800_000, (true, 1, 100_000, 0)), (900_000, (true, 2, 890_000, 0)), (6_000_000, (true, 4, 0, 0))];
        for (now_us, (admitted, remaining, reset_us, retry_us)) in rows {
            let expected = Verdict { admitted, remaining, reset_us, retry_us };
            assert_eq!(held(4, &texts, now_us), expected, "{now_us}");
        }
        let full = Verdict { admitted: false, remaining: 0, reset_us: 1_790_000, retry_us: SLOT_RETRY_US };
        assert_eq!(held(1, &texts[..4], 0), full);
        let ahead = Verdict { admitted: false, remaining: 0, reset_us: 4_200_000, retry_us: SLOT_RETRY_US };
        assert_eq!(held(1, &texts[..2], 0), ahead, "the clock stepped back");
    }
}
