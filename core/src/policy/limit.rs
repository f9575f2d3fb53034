//! Reads one limit of a policy: its algorithm with numbers, its key, its cost.

use super::cost;
use super::error::PolicyErrors;
use super::load::LoadOptions;
use super::names::read as name;
use super::numbers::{self, KINDS, Kind, Numbers};
use super::overrides::{self, Base};
use super::reader::{Members, Place};
use super::{Access, Cost, CustomAnswers, Grant, Limit, LimitId, MissingKey, key};
use crate::client_address::AddressSource;
use crate::identity::{AddressPrefixes, KeyPart, meaning};

/// What the rest of the file means for a limit.
pub(super) struct Scope<'a> {
    pub namespace: &'a str,
    pub prefixes: AddressPrefixes,
    pub source: AddressSource,
    pub options: LoadOptions,
    /// What the file says before its policies do.
    pub access: &'a Access,
    pub custom: &'a CustomAnswers,
    /// Whether the file enforces at all.
    pub enforce: bool,
}

const COMMON_FIELDS: [&str; 7] = ["name", "algorithm", "key", "on_missing_key", "cost", "overrides", "enforce"];

/// Reads the limit at `place` of the policy named `policy`; `id` is its place in the file.
pub(super) fn read(
    policy: &str,
    id: LimitId,
    place: &Place<'_>,
    scope: &Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Limit> {
    let object = place.object(errors, "an object: a limit")?;
    let limit_name = object.required("name", errors, "a name").and_then(|place| name(&place, errors));
    let kind =
        object.required("algorithm", errors, "the name of an algorithm").and_then(|place| place.choice(errors, &KINDS));
    let numbers = kind.and_then(|kind| numbers::read(kind, &object, errors));
    let cost = read_cost(&object, numbers, errors);
    let cost_max = cost.as_ref().map_or(1, Cost::max);
    let base = numbers.and_then(|numbers| numbers::grant(numbers, cost_max, &object, scope.options, errors));
    let overrides = object.optional("overrides").map_or(Some(Vec::new()), |place| {
        let base = kind.zip(numbers).map(|(kind, numbers)| Base { kind, numbers, cost: cost_max });
        overrides::read(&place, base, scope, errors)
    });
    let key = object.required("key", errors, "a list of key parts").and_then(|place| key::read(&place, errors));
    let on_missing_key = key::read_on_missing(&object, key.as_deref(), errors);
    let enforce = object.optional("enforce").map_or(Some(true), |place| place.boolean(errors));
    finish(&object, kind, errors);
    let (name, key, base, enforce) = (limit_name?, key?, base?, enforce? && scope.enforce);
    let meaning = numbers?.meaning(&key, scope.prefixes);
    Some(Limit {
        id,
        label: name.clone(),
        script_head: numbers::script_head(&base.algorithm, enforce),
        base,
        overrides: overrides?,
        cost: cost?,
        enforce,
        on_missing_key: on_missing_key?,
        store_key_prefix: format!("{}:{policy}.{name}:{meaning}:", scope.namespace),
        name,
        key,
    })
}

/// What [`own`] needs to know.
pub(super) struct Own {
    pub name: String,
    /// Its name in the store, unique in the file, and its meaning.
    pub stored_as: (String, String),
    pub base: Grant,
    pub key: Vec<KeyPart>,
    pub on_missing_key: MissingKey,
    pub enforce: bool,
}

/// A limit that a policy has beside the list of its limits: each request costs one unit. `id` is its place behind them.
pub(super) fn own(id: LimitId, own: Own, scope: &Scope<'_>) -> Limit {
    let enforce = own.enforce && scope.enforce;
    let (store_name, meaning) = own.stored_as;
    Limit {
        id,
        label: own.name.clone(),
        name: own.name,
        script_head: numbers::script_head(&own.base.algorithm, enforce),
        base: own.base,
        overrides: Vec::new(),
        cost: Cost::Fixed(1),
        enforce,
        key: own.key,
        on_missing_key: own.on_missing_key,
        store_key_prefix: format!("{}:{store_name}:{meaning}:", scope.namespace),
    }
}

fn read_cost(object: &Members<'_>, numbers: Option<Numbers>, errors: &mut PolicyErrors) -> Option<Cost> {
    let allowance = numbers.map(Numbers::units);
    object.optional("cost").map_or(Some(Cost::Fixed(1)), |place| cost::read(&place, allowance, errors))
}

fn finish(object: &Members<'_>, kind: Option<Kind>, errors: &mut PolicyErrors) {
    let own: &[&str] = match kind {
        Some(kind) => kind.fields(),
        // Without a known algorithm, its fields are not known either: do not blame any.
        None => {
            let fields = &["capacity", "refill", "limit", "window"];
            fields.iter().for_each(|field| drop(object.optional(field)));
            fields
        }
    };
    object.finish(errors, &[&COMMON_FIELDS, own].concat());
}

impl Numbers {
    /// Changes when stored counts would mean something else; capacities and rates may change without.
    pub(super) fn meaning(self, key: &[KeyPart], prefixes: AddressPrefixes) -> String {
        let algorithm = match self {
            Numbers::TokenBucket { .. } => "token_bucket".to_owned(),
            Numbers::SlidingWindow { window_us, .. } => format!("sliding_window {window_us}"),
            Numbers::SlidingWindowCounter { window_us, .. } => format!("sliding_window_counter {window_us}"),
            Numbers::FixedWindow { window_us, .. } => format!("fixed_window {window_us}"),
        };
        meaning_of(algorithm, key, prefixes)
    }
}

/// Changes when stored counts would be of others.
pub(super) fn meaning_of(algorithm: String, key: &[KeyPart], prefixes: AddressPrefixes) -> String {
    let mut texts = vec![algorithm];
    texts.extend(key.iter().map(KeyPart::text));
    if key.contains(&KeyPart::ClientAddress) {
        texts.push(format!("/{} /{}", prefixes.ipv4, prefixes.ipv6));
    }
    meaning(&texts)
}
