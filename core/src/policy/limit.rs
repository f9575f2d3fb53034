//! Reads one limit of a policy: its algorithm with numbers, its key, its cost.

use super::error::PolicyErrors;
use super::load::LoadOptions;
use super::names::read as name;
use super::reader::{Members, Place};
use super::units::{Rate, duration_us, rate};
use super::{Limit, key};
use crate::algorithm::{Algorithm, Charge, DomainError, FixedWindow, SlidingWindow, SlidingWindowCounter, TokenBucket};
use crate::identity::{AddressPrefixes, KeyPart, meaning};
use crate::resp::push_bulk;
use crate::script;

/// What the rest of the file means for a limit.
pub(super) struct Scope<'a> {
    pub namespace: &'a str,
    pub prefixes: AddressPrefixes,
    pub options: LoadOptions,
}

/// The numbers of a limit as the file gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    TokenBucket { capacity: u64, refill: Rate },
    SlidingWindow { limit: u64, window_us: u64 },
    SlidingWindowCounter { limit: u64, window_us: u64 },
    FixedWindow { limit: u64, window_us: u64 },
}

#[derive(Clone, Copy)]
enum Kind {
    TokenBucket,
    SlidingWindow,
    SlidingWindowCounter,
    FixedWindow,
}

const KINDS: [(&str, Kind); 4] = [
    ("token_bucket", Kind::TokenBucket),
    ("sliding_window", Kind::SlidingWindow),
    ("sliding_window_counter", Kind::SlidingWindowCounter),
    ("fixed_window", Kind::FixedWindow),
];
const COMMON_FIELDS: [&str; 6] = ["name", "algorithm", "key", "on_missing_key", "cost", "enforce"];
/// The largest number of units; the algorithms narrow it further.
const UNITS_MAX: u64 = 1_000_000_000_000;

/// Reads the limit at `place` of the policy named `policy`.
pub(super) fn read(policy: &str, place: &Place<'_>, scope: &Scope<'_>, errors: &mut PolicyErrors) -> Option<Limit> {
    let object = place.object(errors, "an object: a limit")?;
    let limit_name = object.required("name", errors, "a name").and_then(|place| name(&place, errors));
    let kind =
        object.required("algorithm", errors, "the name of an algorithm").and_then(|place| place.choice(errors, &KINDS));
    let numbers = kind.and_then(|kind| read_numbers(kind, &object, errors));
    let cost = object.optional("cost").map_or(Some(1), |place| read_cost(&place, numbers, errors));
    let algorithms = numbers.and_then(|numbers| build(numbers, cost.unwrap_or(1), &object, scope.options, errors));
    let key = object.required("key", errors, "a list of key parts").and_then(|place| key::read(&place, errors));
    let on_missing_key = key::read_on_missing(&object, key.as_deref(), errors);
    let enforce = object.optional("enforce").map_or(Some(true), |place| place.boolean(errors));
    finish(&object, kind, errors);
    let (limit_name, numbers, key, (algorithm, local_algorithm)) = (limit_name?, numbers?, key?, algorithms?);
    let store_key_prefix =
        format!("{}:{policy}.{limit_name}:{}:", scope.namespace, numbers.meaning(&key, scope.prefixes));
    let policy_item = numbers.policy_item(&limit_name);
    let (cost, enforce) = (cost?, enforce?);
    let charge = Charge { algorithm: &algorithm, cost, enforce };
    let mut script_arguments = Vec::new();
    script::arguments(b"", &[charge]).iter().skip(1).for_each(|argument| push_bulk(argument, &mut script_arguments));
    Some(Limit {
        script_arguments,
        algorithm,
        local_algorithm,
        cost,
        enforce,
        on_missing_key: on_missing_key?,
        store_key_prefix,
        policy_item,
        name: limit_name,
        key,
    })
}

fn read_numbers(kind: Kind, object: &Members<'_>, errors: &mut PolicyErrors) -> Option<Numbers> {
    if let Kind::TokenBucket = kind {
        let capacity = units(object, "capacity", UNITS_MAX, errors);
        let refill = object.required("refill", errors, "a rate such as \"5/s\"").and_then(|place| rate(&place, errors));
        return Some(Numbers::TokenBucket { capacity: capacity?, refill: refill? });
    }
    let limit_max = if matches!(kind, Kind::SlidingWindow) { 10_000 } else { UNITS_MAX };
    let limit = units(object, "limit", limit_max, errors);
    let window =
        object.required("window", errors, "a duration such as \"1m\"").and_then(|place| duration_us(&place, errors));
    let (limit, window_us) = (limit?, window?);
    Some(match kind {
        Kind::SlidingWindow => Numbers::SlidingWindow { limit, window_us },
        Kind::SlidingWindowCounter => Numbers::SlidingWindowCounter { limit, window_us },
        Kind::TokenBucket | Kind::FixedWindow => Numbers::FixedWindow { limit, window_us },
    })
}

fn units(object: &Members<'_>, field: &str, max: u64, errors: &mut PolicyErrors) -> Option<u64> {
    object
        .required(field, errors, "a whole number of requests, at least 1")
        .and_then(|place| place.whole(errors, 1..=max, ""))
}

fn read_cost(place: &Place<'_>, numbers: Option<Numbers>, errors: &mut PolicyErrors) -> Option<u64> {
    match numbers.map(Numbers::units) {
        Some(units) => place.whole(errors, 1..=units, ", the most that the limit ever grants at once"),
        None => place.whole(errors, 1..=UNITS_MAX, ""),
    }
}

/// The algorithm for the store and the one scaled for the local limiter, or a fault when their numbers are not exact.
fn build(
    numbers: Numbers,
    cost: u64,
    object: &Members<'_>,
    options: LoadOptions,
    errors: &mut PolicyErrors,
) -> Option<(Algorithm, Algorithm)> {
    let share = options.local_share;
    let (found, remedy) = match (numbers.algorithm(), numbers.scaled(share, cost).algorithm()) {
        (Ok(whole), Ok(local)) => return Some((whole, local)),
        (Err(error), _) => (format!("numbers that do not fit together ({error})"), ""),
        (Ok(_), Err(error)) => {
            (format!("numbers that do not fit at this host's share of {share} ({error})"), ", or a larger share")
        }
    };
    errors.push(object.path(), found, format!("smaller numbers, or a rounder refill or window{remedy}"));
    None
}

fn finish(object: &Members<'_>, kind: Option<Kind>, errors: &mut PolicyErrors) {
    let own: &[&str] = match kind {
        Some(Kind::TokenBucket) => &["capacity", "refill"],
        Some(_) => &["limit", "window"],
        // Without a known algorithm, its fields are not known either: do not blame them.
        None => {
            ["capacity", "refill", "limit", "window"].iter().for_each(|field| drop(object.optional(field)));
            &[]
        }
    };
    object.finish(errors, &[&COMMON_FIELDS, own].concat());
}

impl Numbers {
    fn units(self) -> u64 {
        match self {
            Numbers::TokenBucket { capacity, .. } => capacity,
            Numbers::SlidingWindow { limit, .. }
            | Numbers::SlidingWindowCounter { limit, .. }
            | Numbers::FixedWindow { limit, .. } => limit,
        }
    }

    fn algorithm(self) -> Result<Algorithm, DomainError> {
        Ok(match self {
            Numbers::TokenBucket { capacity, refill } => {
                Algorithm::TokenBucket(TokenBucket::new(capacity, refill.tokens, refill.period_us)?)
            }
            Numbers::SlidingWindow { limit, window_us } => {
                Algorithm::SlidingWindow(SlidingWindow::new(limit, window_us)?)
            }
            Numbers::SlidingWindowCounter { limit, window_us } => {
                Algorithm::SlidingWindowCounter(SlidingWindowCounter::new(limit, window_us)?)
            }
            Numbers::FixedWindow { limit, window_us } => Algorithm::FixedWindow(FixedWindow::new(limit, window_us)?),
        })
    }

    /// The numbers for one instance of several. A share too small for a single request of `cost` becomes that cost.
    fn scaled(self, share: f64, cost: u64) -> Numbers {
        let part = |units: u64| part(units, share).0.max(cost);
        match self {
            whole if share >= 1.0 => whole,
            // A slower refill by the same share: longer periods lose nothing to rounding, fewer tokens could.
            Numbers::TokenBucket { capacity, refill } => {
                Numbers::TokenBucket { capacity: part(capacity), refill: scaled_refill(refill, share) }
            }
            Numbers::SlidingWindow { limit, window_us } => Numbers::SlidingWindow { limit: part(limit), window_us },
            Numbers::SlidingWindowCounter { limit, window_us } => {
                Numbers::SlidingWindowCounter { limit: part(limit), window_us }
            }
            Numbers::FixedWindow { limit, window_us } => Numbers::FixedWindow { limit: part(limit), window_us },
        }
    }

    /// Changes when stored counts would mean something else; capacities and rates may change without.
    fn meaning(self, key: &[KeyPart], prefixes: AddressPrefixes) -> String {
        let algorithm = match self {
            Numbers::TokenBucket { .. } => "token_bucket".to_owned(),
            Numbers::SlidingWindow { window_us, .. } => format!("sliding_window {window_us}"),
            Numbers::SlidingWindowCounter { window_us, .. } => format!("sliding_window_counter {window_us}"),
            Numbers::FixedWindow { window_us, .. } => format!("fixed_window {window_us}"),
        };
        let mut texts = vec![algorithm];
        texts.extend(key.iter().map(KeyPart::text));
        if key.contains(&KeyPart::ClientAddress) {
            texts.push(format!("/{} /{}", prefixes.ipv4, prefixes.ipv6));
        }
        meaning(&texts)
    }

    /// `"name";q=100;w=60`: quota, and the whole seconds in which it is granted, left out below one second.
    fn policy_item(self, name: &str) -> String {
        let window_us = match self {
            Numbers::TokenBucket { capacity, refill } => {
                let fill_us = u128::from(capacity)
                    .saturating_mul(u128::from(refill.period_us))
                    .div_ceil(u128::from(refill.tokens.max(1)));
                u64::try_from(fill_us).unwrap_or(u64::MAX)
            }
            Numbers::SlidingWindow { window_us, .. }
            | Numbers::SlidingWindowCounter { window_us, .. }
            | Numbers::FixedWindow { window_us, .. } => window_us,
        };
        let window =
            if window_us < 1_000_000 { String::new() } else { format!(";w={}", window_us.div_ceil(1_000_000)) };
        format!("\"{name}\";q={}{window}", self.units())
    }
}

fn scaled_refill(refill: Rate, share: f64) -> Rate {
    if let (tokens, true) = part(refill.tokens, share) {
        return Rate { tokens, period_us: refill.period_us };
    }
    // Whole milliseconds keep the numbers exact for large capacities.
    let period_ms = (refill.period_us as f64 / share / 1_000.0).ceil() as u64;
    Rate { tokens: refill.tokens, period_us: period_ms.saturating_mul(1_000) }
}

/// The whole units in a share, and whether that is all of it. No double is exactly 0.29: what is off by so little that
/// it can only come from there is whole.
fn part(units: u64, share: f64) -> (u64, bool) {
    let product = units as f64 * share;
    let nearest = product.round();
    let is_whole = (product - nearest).abs() <= nearest * 1e-12;
    let whole = if is_whole { nearest } else { product.floor() };
    (whole as u64, is_whole)
}
