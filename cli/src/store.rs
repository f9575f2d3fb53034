//! The live store, for looking and, when asked, deleting: the keys of one request and what they hold.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper_core::admission::Arrival;
use lockkeeper_core::algorithm::{Algorithm, Charge, Concurrency, State, Verdict};
use lockkeeper_core::claim::Command::Release;
use lockkeeper_core::claim::{Holdings, Owner};
use lockkeeper_core::engine::{Engine, Step};
use redis::{Client, Connection, ConnectionLike, Pipeline, Value};
use serde::Serialize;

use crate::claims::{self, Claim};
use crate::request::Request;

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
        // Nothing is claimed, so any owner will do; what is stored under a key does not depend on the body.
        let arrival = Arrival { owner: Some(Owner::new([0; 16])), ..Arrival::default() };
        let values = request.values(engine, &selection);
        let Step::Call(call) = engine.begin_arrived(&selection, &values, &arrival) else {
            return Ok(Held { claims: Vec::new(), levels: Vec::new() });
        };
        let limits = engine.policy(&selection).map_or(&[][..], |policy| &policy.limits);
        let now_us = self.now_us()?;
        let claims =
            call.asks().iter().map(|ask| claims::read(ask, now_us, &mut self.connection)).collect::<Result<_>>()?;
        let mut levels = Vec::new();
        for (counted, charge) in call.counted().iter().zip(call.charges()) {
            let name = limits.get(counted.limit).map(|limit| limit.label.clone()).unwrap_or_default();
            let store_key = counted.store_key.clone();
            levels.push(match charge.algorithm {
                Algorithm::Concurrency(rule) => self.slots(name, store_key, rule, now_us)?,
                _ => level(name, store_key.clone(), &charge, &self.stored(&store_key)?, now_us),
            });
        }
        Ok(Held { claims, levels })
    }

    fn slots(&mut self, limit: String, store_key: String, rule: &Concurrency, now_us: u64) -> Result<Level> {
        let (kind, pttl_ms) = self.kind(&store_key)?;
        let held: Vec<(String, u64)> = match kind.as_str() {
            "zset" => {
                let mut range = redis::cmd("ZRANGE");
                range.arg(&store_key).arg(0).arg(-1).arg("WITHSCORES");
                range.query(&mut self.connection).context("ZRANGE")?
            }
            _ => Vec::new(),
        };
        let live = held.into_iter().filter(|(_, deadline_us)| *deadline_us > now_us);
        let slots = live.map(|(owner, deadline_us)| Slot {
            owner: owner.chars().take(claims::OWNER_DIGITS).collect(),
            lease_left_us: deadline_us.saturating_sub(now_us).min(rule.lease_us()),
        });
        let slots: Vec<Slot> = slots.collect();
        Ok(Level {
            limit,
            store_key,
            allowance: rule.limit(),
            remaining: rule.limit().saturating_sub(slots.len() as u64),
            next_refill_us: slots.first().map_or(0, |slot| slot.lease_left_us),
            retry_us: 0,
            ttl_ms: u64::try_from(pttl_ms).ok(),
            never_expires: pttl_ms == -1,
            slots,
        })
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

    fn kind(&mut self, key: &str) -> Result<(String, i64)> {
        let mut asked = Pipeline::new();
        asked.cmd("TYPE").arg(key).cmd("PTTL").arg(key);
        asked.query(&mut self.connection).context("TYPE and PTTL")
    }

    fn stored(&mut self, key: &str) -> Result<Stored> {
        let (kind, pttl_ms) = self.kind(key)?;
        let texts = match kind.as_str() {
            "string" => texts(redis::cmd("GET").arg(key).query(&mut self.connection).context("GET")?)?,
            "list" => {
                texts(redis::cmd("LRANGE").arg(key).arg(0).arg(-1).query(&mut self.connection).context("LRANGE")?)?
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
    let state = State::parse(charge.algorithm, &texts);
    let Verdict { remaining, reset_us, retry_us, .. } = charge.peek(&state, now_us);
    Level {
        limit,
        store_key,
        allowance: charge.algorithm.allowance(),
        remaining,
        next_refill_us: reset_us,
        retry_us,
        ttl_ms: u64::try_from(stored.pttl_ms).ok(),
        never_expires: stored.pttl_ms == -1,
        slots: Vec::new(),
    }
}
