//! The numbers of a limit: read as the file gives them, checked to be exact, and made ready for store and answers.

use super::Grant;
use super::error::PolicyErrors;
use super::load::LoadOptions;
use super::node::Node;
use super::reader::Members;
use super::units::{Rate, duration_us, is_duration, is_rate, rate};
use crate::algorithm::{
    Algorithm, Charge, Concurrency, DomainError, FixedWindow, LOG_LIMIT_MAX, SlidingWindow, SlidingWindowCounter,
    TokenBucket,
};
use crate::resp::push_bulk;
use crate::script;

/// The numbers of a limit as the file gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    TokenBucket { capacity: u64, refill: Rate },
    SlidingWindow { limit: u64, window_us: u64 },
    SlidingWindowCounter { limit: u64, window_us: u64 },
    FixedWindow { limit: u64, window_us: u64 },
}

/// An algorithm by its name.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    TokenBucket,
    SlidingWindow,
    SlidingWindowCounter,
    FixedWindow,
}

pub(super) const KINDS: [(&str, Kind); 4] = [
    ("token_bucket", Kind::TokenBucket),
    ("sliding_window", Kind::SlidingWindow),
    ("sliding_window_counter", Kind::SlidingWindowCounter),
    ("fixed_window", Kind::FixedWindow),
];
/// The largest number of units; the algorithms narrow it further.
pub(super) const UNITS_MAX: u64 = 1_000_000_000_000;

impl Kind {
    /// The fields that hold its numbers.
    pub(super) fn fields(self) -> &'static [&'static str] {
        match self {
            Kind::TokenBucket => &["capacity", "refill"],
            Kind::SlidingWindow | Kind::SlidingWindowCounter | Kind::FixedWindow => &["limit", "window"],
        }
    }
}

/// Reads the numbers of a limit.
pub(super) fn read(kind: Kind, object: &Members<'_>, errors: &mut PolicyErrors) -> Option<Numbers> {
    if note_swapped(kind, object, errors) {
        return None;
    }
    if let Kind::TokenBucket = kind {
        let capacity = required_units(object, "capacity", UNITS_MAX, errors);
        let refill = object.required("refill", errors, "a rate such as \"5/s\"").and_then(|place| rate(&place, errors));
        return Some(Numbers::TokenBucket { capacity: capacity?, refill: refill? });
    }
    let limit_max = if matches!(kind, Kind::SlidingWindow) { LOG_LIMIT_MAX } else { UNITS_MAX };
    let limit = required_units(object, "limit", limit_max, errors);
    let window =
        object.required("window", errors, "a duration such as \"1m\"").and_then(|place| duration_us(&place, errors));
    let (limit, window_us) = (limit?, window?);
    Some(match kind {
        Kind::SlidingWindow => Numbers::SlidingWindow { limit, window_us },
        Kind::SlidingWindowCounter => Numbers::SlidingWindowCounter { limit, window_us },
        Kind::TokenBucket | Kind::FixedWindow => Numbers::FixedWindow { limit, window_us },
    })
}

/// Notes a rate or duration in the place of the number, and the number in its place, as the one mistake that it is.
fn note_swapped(kind: Kind, object: &Members<'_>, errors: &mut PolicyErrors) -> bool {
    let [count, time] = kind.fields() else { return false };
    let (Some(in_count), Some(in_time)) = (object.optional(count), object.optional(time)) else { return false };
    let is_time = match kind {
        Kind::TokenBucket => is_rate,
        Kind::SlidingWindow | Kind::SlidingWindowCounter | Kind::FixedWindow => is_duration,
    };
    let swapped = in_count.node.as_text().is_some_and(is_time) && matches!(in_time.node, Node::Number(_));
    if swapped {
        let (text, number) = (in_count.node.describe(), in_time.node.describe());
        let found = format!("\"{count}\": {text} and \"{time}\": {number}");
        let expected = format!("them the other way round: \"{count}\": {number}, \"{time}\": {text}");
        errors.push(object.path(), found, expected);
    }
    swapped
}

fn required_units(object: &Members<'_>, field: &str, max: u64, errors: &mut PolicyErrors) -> Option<u64> {
    object
        .required(field, errors, "a whole number of requests, at least 1")
        .and_then(|place| place.whole(errors, 1..=max, ""))
}

/// Reads the numbers that an override gives instead of `base`; it grants at least `cost` at once.
pub(super) fn read_instead(
    base: Numbers,
    cost: u64,
    object: &Members<'_>,
    errors: &mut PolicyErrors,
) -> Option<Numbers> {
    let units = |field: &str, default: u64, max: u64, errors: &mut PolicyErrors| match object.optional(field) {
        None => Some(default),
        Some(place) => place.whole(errors, cost..=max, ", at least what one request may cost"),
    };
    match base {
        Numbers::TokenBucket { capacity, refill } => {
            let capacity = units("capacity", capacity, UNITS_MAX, errors);
            let refill = object.optional("refill").map_or(Some(refill), |place| rate(&place, errors));
            Some(Numbers::TokenBucket { capacity: capacity?, refill: refill? })
        }
        Numbers::SlidingWindow { limit, window_us } => {
            units("limit", limit, LOG_LIMIT_MAX, errors).map(|limit| Numbers::SlidingWindow { limit, window_us })
        }
        Numbers::SlidingWindowCounter { limit, window_us } => {
            units("limit", limit, UNITS_MAX, errors).map(|limit| Numbers::SlidingWindowCounter { limit, window_us })
        }
        Numbers::FixedWindow { limit, window_us } => {
            units("limit", limit, UNITS_MAX, errors).map(|limit| Numbers::FixedWindow { limit, window_us })
        }
    }
}

/// What the numbers grant a request of at most `cost`, or a fault when they are not exact.
pub(super) fn grant(
    numbers: Numbers,
    cost: u64,
    object: &Members<'_>,
    options: LoadOptions,
    errors: &mut PolicyErrors,
) -> Option<Grant> {
    let share = options.local_share;
    let (found, remedy) = match (numbers.algorithm(), numbers.scaled(share, cost).algorithm()) {
        (Ok(algorithm), Ok(local_algorithm)) => {
            let quota = numbers.quota();
            return Some(Grant { script_numbers: script_numbers(&algorithm), algorithm, local_algorithm, quota });
        }
        (Err(error), _) => (format!("numbers that do not fit together ({error})"), ""),
        (Ok(_), Err(error)) => {
            (format!("numbers that do not fit at this host's share of {share} ({error})"), ", or a larger share")
        }
    };
    errors.push(object.path(), found, format!("smaller numbers, or a rounder refill or window{remedy}"));
    None
}

/// What concurrency grants. No share of it is granted without the store, which alone knows who runs.
pub(super) fn concurrency_grant(rule: Concurrency) -> Grant {
    let quota = format!(";q={};qu=\"concurrent-requests\"", rule.limit());
    let algorithm = Algorithm::Concurrency(rule);
    Grant { script_numbers: script_numbers(&algorithm), local_algorithm: algorithm.clone(), algorithm, quota }
}

/// The arguments of a charge before its cost: algorithm and whether it is enforced.
pub(super) fn script_head(algorithm: &Algorithm, enforce: bool) -> Vec<u8> {
    encoded(algorithm, enforce, 1..1 + script::ARGUMENTS_BEFORE_COST)
}

/// The arguments of a charge behind its cost, up to the owner if it is held.
fn script_numbers(algorithm: &Algorithm) -> Vec<u8> {
    let end = match algorithm.is_held() {
        true => 1 + script::ARGUMENTS_BEFORE_OWNER,
        false => 1 + script::ARGUMENTS_PER_CHARGE,
    };
    encoded(algorithm, true, 2 + script::ARGUMENTS_BEFORE_COST..end)
}

fn encoded(algorithm: &Algorithm, enforce: bool, range: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let arguments = script::arguments(b"", &[Charge { algorithm, cost: 1, enforce }]);
    arguments.get(range).into_iter().flatten().for_each(|argument| push_bulk(argument, &mut bytes));
    bytes
}

impl Numbers {
    /// The most that can be available at once.
    pub(super) fn units(self) -> u64 {
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

    /// `;q=100;w=60`: quota, and the whole seconds in which it is granted, left out below one second.
    fn quota(self) -> String {
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
        format!(";q={}{window}", self.units())
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
