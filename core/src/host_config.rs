//! The configuration of one gateway: how it reaches the store and how it bears its absence. It differs by host, so it
//! stands beside the policy: `{ "host": { … }, "policy": { … } }`.

use crate::credentials::Credentials;
use crate::local_claims::ClaimTable;
use crate::policy::error::PolicyErrors;
use crate::policy::load::LoadOptions;
use crate::policy::names::header_name;
use crate::policy::node::Node;
use crate::policy::reader::Place;
use crate::policy::units::{duration_us, duration_us_between};
use crate::policy::{BodyFingerprint, PolicySet};

/// How this gateway reaches the store and limits without it.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// Envoy: the cluster that leads to the store through the bridge.
    pub store_cluster: String,
    /// Who this gateway is to the store, where it wants to know.
    pub credentials: Option<Credentials>,
    /// The store's database.
    pub database: u32,
    /// No request waits longer for the store, in microseconds.
    pub deadline_us: u64,
    /// Sets of the local limiter's table; each holds up to eight clients.
    pub local_sets: u32,
    /// Sets of the instance's own table of claims; each holds up to eight.
    pub local_claim_sets: u32,
    /// The part of each limit that this instance grants when it limits by itself.
    pub local_share: f64,
    /// A response header that marks degraded decisions, if any.
    pub degraded_header: Option<String>,
    /// Envoy: the member of `jwt_authn`'s dynamic metadata that holds the verified payload.
    pub jwt_payload: String,
    /// Envoy: whether each decision is written to filter state, for access logs and later filters.
    pub filter_state: bool,
    /// Envoy: with this many commands in flight, further ones wait for what else the same turn of the event loop brings.
    pub coalesce_above: usize,
    /// Envoy: whether this filter may hold requests while it reads their bodies (`allow_on_headers_stop_iteration`).
    pub reads_bodies: bool,
    /// Bytes of bodies that one worker holds at a time for fingerprints, at most.
    pub held_bodies_bytes: usize,
    /// How long a request's body may take until its fingerprint is known, in microseconds.
    pub body_deadline_us: u64,
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig {
            store_cluster: "lockkeeper_store".into(),
            credentials: None,
            database: 0,
            deadline_us: 50_000,
            local_sets: 4096,
            local_claim_sets: ClaimTable::SETS,
            local_share: 1.0,
            degraded_header: None,
            jwt_payload: "payload".into(),
            filter_state: true,
            coalesce_above: 4,
            reads_bodies: false,
            held_bodies_bytes: 64 * 1024 * 1024,
            body_deadline_us: 10_000_000,
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
                errors.push("$", format!("what cannot be read as JSON ({error})"), "an object with host and policy");
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
    let (host, policies) = (host?, policies?);
    if !host.reads_bodies {
        note_unread_bodies(&policies, object.path(), errors);
    }
    Some(PluginConfig { host, policies })
}

/// Notes fingerprints of bodies that this host does not read before it decides. `path` is that of the configuration.
fn note_unread_bodies(policies: &PolicySet, path: &str, errors: &mut PolicyErrors) {
    for policy in &policies.policies {
        let body = policy.idempotency.as_ref().map(|idempotency| idempotency.fingerprint.body);
        if let Some(BodyFingerprint::Raw | BodyFingerprint::Json) = body {
            let path = format!("{path}.policy.policies.{}.idempotency.fingerprint.body", policy.name);
            let found = "a fingerprint that needs the body before the request passes, on a host that does not read it";
            let expected = "\"at_completion\" or \"ignored\"; or \"reads_bodies\": true in host, for a filter with \
                            allow_on_headers_stop_iteration";
            errors.push(&path, found, expected);
        }
    }
}

const HOST_FIELDS: [&str; 12] = [
    "store_cluster",
    "credentials",
    "database",
    "deadline",
    "local",
    "degraded_header",
    "jwt_payload",
    "filter_state",
    "coalesce_above",
    "reads_bodies",
    "held_bodies_bytes",
    "body_deadline",
];
/// As many as a Redis can be told to have.
const DATABASE_MAX: u64 = i32::MAX as u64;
const HELD_BODIES_BYTES_MAX: u64 = 1024 * 1024 * 1024;
const LOCAL_SETS_MAX: u64 = 65_536;
const COALESCE_ABOVE_MAX: u64 = 1_000_000;
const DEADLINE_MAX_US: u64 = 10_000_000;

fn read_host(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<HostConfig> {
    let object = place.object(errors, "an object: how this gateway reaches the store")?;
    let defaults = HostConfig::default();
    let store_cluster =
        object.optional("store_cluster").map_or(Some(defaults.store_cluster), |place| cluster(&place, errors));
    let credentials =
        object.or("credentials", None, errors, |place, errors| Credentials::read(place, errors).map(Some));
    let database = object.or("database", defaults.database, errors, |place, errors| {
        place.whole(errors, 0..=DATABASE_MAX, "").and_then(|database| u32::try_from(database).ok())
    });
    let deadline_us = object.optional("deadline").map_or(Some(defaults.deadline_us), |place| deadline(&place, errors));
    let degraded_header = match object.optional("degraded_header") {
        None => Some(None),
        Some(place) => header_name(&place, "the name of a response header", errors).map(Some),
    };
    let jwt_payload =
        object.optional("jwt_payload").map_or(Some(defaults.jwt_payload), |place| metadata_member(&place, errors));
    let filter_state = object.or("filter_state", defaults.filter_state, errors, |place, errors| place.boolean(errors));
    let coalesce_above = match object.optional("coalesce_above") {
        None => Some(defaults.coalesce_above),
        Some(place) => place.whole(errors, 1..=COALESCE_ABOVE_MAX, "").and_then(|count| usize::try_from(count).ok()),
    };
    let reads_bodies = object.or("reads_bodies", defaults.reads_bodies, errors, |place, errors| place.boolean(errors));
    let held_bodies_bytes = object.or("held_bodies_bytes", defaults.held_bodies_bytes, errors, |place, errors| {
        place.whole(errors, 1..=HELD_BODIES_BYTES_MAX, " bytes").and_then(|bytes| usize::try_from(bytes).ok())
    });
    let body_deadline_us = object.or("body_deadline", defaults.body_deadline_us, errors, |place, errors| {
        duration_us_between(place, "10ms", "5m", errors)
    });
    let local = Local { sets: defaults.local_sets, claim_sets: defaults.local_claim_sets, share: defaults.local_share };
    let local = object.optional("local").map_or(Some(local), |place| read_local(&place, local, errors));
    object.finish(errors, &HOST_FIELDS);
    let local = local?;
    Some(HostConfig {
        store_cluster: store_cluster?,
        credentials: credentials?,
        database: database?,
        deadline_us: deadline_us?,
        local_sets: local.sets,
        local_claim_sets: local.claim_sets,
        local_share: local.share,
        degraded_header: degraded_header?,
        jwt_payload: jwt_payload?,
        filter_state: filter_state?,
        coalesce_above: coalesce_above?,
        reads_bodies: reads_bodies?,
        held_bodies_bytes: held_bodies_bytes?,
        body_deadline_us: body_deadline_us?,
    })
}

fn deadline(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<u64> {
    let us = duration_us(place, errors)?;
    if us > DEADLINE_MAX_US {
        place.reject(errors, "at most \"10s\", for a request waits no longer than its client does");
        return None;
    }
    Some(us)
}

/// How this host does without the store.
#[derive(Clone, Copy)]
struct Local {
    sets: u32,
    claim_sets: u32,
    share: f64,
}

fn read_local(place: &Place<'_>, defaults: Local, errors: &mut PolicyErrors) -> Option<Local> {
    let object = place.object(errors, "an object with sets, claim_sets and share")?;
    let count = |place: &Place<'_>, errors: &mut PolicyErrors| {
        place.whole(errors, 1..=LOCAL_SETS_MAX, "").and_then(|sets| u32::try_from(sets).ok())
    };
    let sets = object.or("sets", defaults.sets, errors, count);
    let claim_sets = object.or("claim_sets", defaults.claim_sets, errors, count);
    let share = object.optional("share").map_or(Some(defaults.share), |place| share(&place, errors));
    object.finish(errors, &["sets", "claim_sets", "share"]);
    Some(Local { sets: sets?, claim_sets: claim_sets?, share: share? })
}

fn share(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<f64> {
    match place.node {
        Node::Number(share) if *share > 0.0 && *share <= 1.0 => Some(*share),
        _ => {
            place.reject(errors, "a number above 0 and at most 1");
            None
        }
    }
}

fn cluster(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<String> {
    let expected = "the name of a cluster";
    let text = place.text(errors, expected)?;
    if text.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        place.reject(errors, expected);
        return None;
    }
    Some(text.to_owned())
}

fn metadata_member(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<String> {
    let expected = "the payload_in_metadata of your jwt_authn provider";
    let text = place.text(errors, expected)?;
    if text.is_empty() || text.contains(char::is_control) {
        place.reject(errors, expected);
        return None;
    }
    Some(text.to_owned())
}
