//! Under which keys requests are counted in the store: the same on every gateway, different wherever counts must not mix.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod meaning;
mod vectors;

use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::identity::Attribute;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::selection::GatewayRoute;

fn engine(json: &str) -> Engine {
    let policies = PolicySet::from_json(json.as_bytes(), LoadOptions::default());
    Engine::new(policies.unwrap_or_else(|errors| panic!("the policy does not load:\n{errors}\n{json}")))
}

/// The keys that a request is counted under, limit by limit; the attributes come from `look_up`.
fn store_keys(
    engine: &Engine,
    line: (&str, &str, &str),
    look_up: impl Fn(&Attribute) -> Option<Vec<u8>>,
) -> Vec<String> {
    routed_store_keys(engine, line, GatewayRoute::default(), look_up)
}

/// The same where the gateway has a route of its own.
fn routed_store_keys(
    engine: &Engine,
    (method, authority, target): (&str, &str, &str),
    gateway: GatewayRoute<'_>,
    look_up: impl Fn(&Attribute) -> Option<Vec<u8>>,
) -> Vec<String> {
    let selection = engine.select_routed(method, authority, target, gateway);
    let headers: Vec<_> = engine.route_headers(&selection).iter().map(&look_up).collect();
    let selection = engine.select_by_headers(selection, &headers);
    let values: Vec<_> = engine.attributes(&selection).iter().map(look_up).collect();
    match engine.begin(&selection, &values) {
        Step::Call(call) => call.counted().iter().map(|counted| counted.store_key.clone()).collect(),
        other => panic!("not counted: {other:?}"),
    }
}
