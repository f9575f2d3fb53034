//! The configuration of one gateway: how it reaches the store and how it bears its absence. It differs by host, so it
//! stands beside the policy: `{ "host": { … }, "policy": { … } }`.

use crate::policy::PolicySet;
use crate::policy::error::PolicyErrors;
use crate::policy::load::LoadOptions;
use crate::policy::node::Node;
use crate::policy::reader::{Members, Place};
use crate::policy::units::duration_us;

/// How this gateway reaches the store and limits without it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// Envoy: the cluster that leads to the store through the tunnel.
    pub store_cluster: String,
    /// No request waits longer for the store, in microseconds.
    pub deadline_us: u64,
    /// Sets of the local limiter's table; each holds up to eight clients.
    pub local_sets: u32,
    /// The part of each limit that this instance grants when it limits by itself.
    pub local_share: f64,
    /// A response header that marks degraded decisions, if any.
    pub degraded_header: Option<String>,
    /// With this many commands in flight, further ones may go out together after the next reply.
    pub coalesce_above: usize,
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig {
            store_cluster: "lockkeeper_store".into(),
            deadline_us: 50_000,
            local_sets: 4096,
            local_share: 1.0,
            degraded_header: None,
            coalesce_above: 4,
        }
    }
}

/// The whole plugin configuration.
#[derive(Clone, Debug)]
pub struct PluginConfig {
    /// How this gateway reaches the store.
    pub host: HostConfig,
    /// What is enforced.
    pub policies: PolicySet,
}

impl PluginConfig {
    /// Loads `{ "host": { … }, "policy": { … } }`.
    ///
    /// # Errors
    /// Every fault of both parts.
    pub fn from_json(json: &[u8]) -> Result<PluginConfig, PolicyErrors> {
        let mut errors = PolicyErrors::default();
        let config = match Node::parse(json) {
            Ok(node) => read(&Place::root(&node), &mut errors),
            Err(error) => {
                errors.push("$", format!("no JSON ({error})"), "an object with host and policy");
                None
            }
        };
        errors.or(config)
    }
}

fn read(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<PluginConfig> {
    let object = place.object(errors, "an object with host and policy")?;
    let host = object.optional("host").map_or(Some(HostConfig::default()), |place| read_host(&place, errors));
    let options = LoadOptions { local_share: host.as_ref().map_or(1.0, |host| host.local_share) };
    let policies = object.required("policy", errors, "the policy file").and_then(|place| {
        PolicySet::from_place(&place, options).map_err(|mut found| errors.0.append(&mut found.0)).ok()
    });
    object.finish(errors, &["host", "policy"]);
    Some(PluginConfig { host: host?, policies: policies? })
}

const HOST_FIELDS: [&str; 5] = ["store_cluster", "deadline", "local", "degraded_header", "coalesce_above"];
const LOCAL_SETS_MAX: u64 = 65_536;

fn read_host(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<HostConfig> {
    let object = place.object(errors, "an object: how this gateway reaches the store")?;
    let mut host = HostConfig::default();
    if let Some(place) = object.optional("store_cluster") {
        host.store_cluster = non_empty(&place, "the name of a cluster", errors)?;
    }
    if let Some(place) = object.optional("deadline") {
        host.deadline_us = duration_us(&place, errors)?;
    }
    if let Some(place) = object.optional("degraded_header") {
        host.degraded_header = Some(non_empty(&place, "the name of a response header", errors)?.to_ascii_lowercase());
    }
    if let Some(place) = object.optional("coalesce_above") {
        host.coalesce_above = usize::try_from(place.whole(errors, 1, 1_000_000)?).ok()?;
    }
    if let Some(place) = object.optional("local") {
        read_local(&place.object(errors, "an object with sets and share")?, &mut host, errors);
    }
    object.finish(errors, &HOST_FIELDS);
    Some(host)
}

fn read_local(object: &Members<'_>, host: &mut HostConfig, errors: &mut PolicyErrors) {
    if let Some(sets) = object.optional("sets").and_then(|place| place.whole(errors, 1, LOCAL_SETS_MAX)) {
        host.local_sets = u32::try_from(sets).unwrap_or(host.local_sets);
    }
    if let Some(place) = object.optional("share") {
        match place.node {
            Node::Number(share) if *share > 0.0 && *share <= 1.0 => host.local_share = *share,
            _ => place.reject(errors, "a number above 0 and at most 1"),
        }
    }
    object.finish(errors, &["sets", "share"]);
}

fn non_empty(place: &Place<'_>, expected: &str, errors: &mut PolicyErrors) -> Option<String> {
    let text = place.text(errors, expected)?;
    if text.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        place.reject(errors, expected);
        return None;
    }
    Some(text.to_owned())
}
