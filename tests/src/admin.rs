//! Envoy's admin interface: readiness, ports, metrics.

use crate::http::{Client, Request};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// The admin interface of one Envoy.
pub struct Admin {
    client: Client,
    address: SocketAddr,
}

impl Admin {
    /// The admin interface at an address.
    pub fn new(address: SocketAddr) -> Self {
        Self { client: Client::new(address), address }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether Envoy serves (`/ready` answers 200).
    pub fn is_ready(&self) -> bool {
        self.client.send(&Request::get("/ready")).is_ok_and(|response| response.status == 200)
    }

    /// Where the listener `name` listens.
    pub fn listener(&self, name: &str) -> Result<SocketAddr> {
        let answer = self.client.send(&Request::get("/listeners?format=json"))?;
        let answer: Value = serde_json::from_str(&answer.body)?;
        let mut listeners = answer["listener_statuses"].as_array().into_iter().flatten();
        let listener = listeners
            .find(|listener| listener["name"] == name)
            .with_context(|| format!("Envoy has no listener {name}"))?;
        let port = listener.pointer("/local_address/socket_address/port_value").and_then(Value::as_u64);
        let port = port.with_context(|| format!("listener {name} has no port"))?;
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port)?)))
    }

    /// All counters and gauges by name. Panics when Envoy does not answer.
    pub fn stats(&self) -> BTreeMap<String, u64> {
        let text = self.get("/stats");
        let entries = text.lines().filter_map(|line| line.split_once(": "));
        entries.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
    }

    /// One counter or gauge; 0 when it does not exist.
    pub fn stat(&self, name: &str) -> u64 {
        self.stats().get(name).copied().unwrap_or(0)
    }

    /// The metrics as Prometheus scrapes them.
    pub fn prometheus(&self) -> String {
        self.get("/stats/prometheus")
    }

    /// The body of any admin page. Panics when Envoy does not answer.
    pub fn get(&self, path: &str) -> String {
        self.client.send(&Request::get(path)).expect("Envoy's admin interface answers").body
    }

    /// Sends a POST, e.g. to `/drain_listeners`. Panics when Envoy does not answer.
    pub fn post(&self, path: &str) -> String {
        self.client.send(&Request::new("POST", path)).expect("Envoy's admin interface answers").body
    }
}
