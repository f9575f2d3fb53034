//! The subjects that are servers: Envoy and workerd, before an origin that echoes.

use crate::transcript::{Answer, Request};
use crate::{Subject, World};
use lockkeeper_tests::http::Client;
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Envoy, EnvoyConfig, Workerd, WorkerdConfig};
use serde_json::Value;
use std::time::Duration;

/// Long: transcripts are about decisions of the store, on machines under load.
const DEADLINE: Duration = Duration::from_secs(5);

/// A server and the client that asks it.
pub struct Gateway<S> {
    client: Client,
    _server: S,
}

pub fn envoy(world: &World, policy: &Value) -> Gateway<Envoy> {
    let config = EnvoyConfig::shipped().redis(world.redis.address()).upstream(world.upstream.address());
    let envoy = Envoy::start(&config.reads_bodies().policy(policy.clone()).deadline(DEADLINE)).expect("Envoy starts");
    Gateway { client: envoy.client(), _server: envoy }
}

pub fn worker(world: &World, policy: &Value, transport: Transport) -> Gateway<Workerd> {
    let store = if transport == Transport::Rest { world.front.address() } else { world.redis.address() };
    let config = WorkerdConfig::built().store(transport, store).origin(world.upstream.address());
    let workerd = Workerd::start(&config.policy(policy).deadline(DEADLINE)).expect("workerd starts");
    Gateway { client: workerd.client(), _server: workerd }
}

impl<S> Subject for Gateway<S> {
    fn answer(&self, request: &Request) -> Answer {
        let answer = self.client.send(&request.http()).unwrap_or_else(|error| panic!("{request:?}: {error:#}"));
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers = answer.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())));
        Answer { status: answer.status, headers: headers.collect() }
    }
}
