//! Other numbers for some requests of a limit, told by a value such as a verified claim. They share the limit's counters:
//! a client whose plan changes keeps what it has spent.

use super::Grant;
use super::error::PolicyErrors;
use super::key::key_part;
use super::limit::Scope;
use super::numbers::{self, Kind, Numbers};
use super::reader::{Members, Place};
use crate::identity::KeyPart;
use crate::normalize;

/// The most overrides of a limit, and conditions of one override.
const OVERRIDES_MAX: usize = 100;
const CONDITIONS_MAX: usize = 4;

/// Other numbers, and when they apply.
#[derive(Clone, Debug)]
pub struct Override {
    /// Must all hold.
    pub when: Vec<Condition>,
    /// What the limit grants then.
    pub grant: Grant,
}

/// What a part of the request must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The part, as a key would name it.
    pub part: KeyPart,
    /// Its value.
    pub value: ValueMatch,
}

impl Condition {
    /// Whether the part has a value that is meant.
    pub fn holds(&self, value: &[u8]) -> bool {
        match self.part {
            KeyPart::Header(_) | KeyPart::Cookie(_) => self.value.matches_header(value),
            _ => self.value.matches(value),
        }
    }
}

/// A value in a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueMatch {
    /// This one.
    Exact(String),
    /// Every one that starts with it.
    Prefix(String),
}

impl ValueMatch {
    /// `pro` is that value, `pro*` every value that starts with `pro`.
    pub(super) fn of(text: &str) -> ValueMatch {
        match text.strip_suffix('*') {
            Some(prefix) => ValueMatch::Prefix(prefix.to_owned()),
            None => ValueMatch::Exact(text.to_owned()),
        }
    }

    /// The same for the value of a header, or of a cookie, to be [compared as such](ValueMatch::matches_header).
    pub(super) fn of_header(text: &str) -> ValueMatch {
        ValueMatch::of(&normalize::joined_text(text))
    }

    /// Whether the value of a header, or of a cookie, is meant, however its lines are joined.
    pub fn matches_header(&self, value: &[u8]) -> bool {
        self.matches(&normalize::joined(value))
    }

    /// Whether the value is meant.
    pub fn matches(&self, value: &[u8]) -> bool {
        match self {
            ValueMatch::Exact(exact) => exact.as_bytes() == value,
            ValueMatch::Prefix(prefix) => value.starts_with(prefix.as_bytes()),
        }
    }
}

/// The limit that overrides belong to.
#[derive(Clone, Copy)]
pub(super) struct Base {
    pub kind: Kind,
    pub numbers: Numbers,
    /// The most that a request costs.
    pub cost: u64,
}

/// Reads the overrides of a limit; without its numbers, only their form.
pub(super) fn read(
    place: &Place<'_>,
    base: Option<Base>,
    scope: &Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Vec<Override>> {
    let places = place.list(errors, "a list of overrides, each with when and other numbers")?;
    if places.len() > OVERRIDES_MAX {
        place.reject(errors, format!("at most {OVERRIDES_MAX} overrides"));
    }
    places.iter().map(|place| read_one(place, base, scope, errors)).collect::<Vec<_>>().into_iter().collect()
}

fn read_one(place: &Place<'_>, base: Option<Base>, scope: &Scope<'_>, errors: &mut PolicyErrors) -> Option<Override> {
    let object = place.object(errors, "an object: an override with when and other numbers")?;
    let when = object
        .required("when", errors, "what must hold, such as {\"header:x-plan\": \"pro\"}")
        .and_then(|place| read_conditions(&place, errors));
    // Without the limit's own numbers, those of the override cannot be judged.
    let Base { kind, numbers, cost } = base?;
    let has_number = kind.fields().iter().any(|field| object.optional(field).is_some());
    let fields = overridable(kind);
    note_window(&object, fields, errors);
    if !has_number {
        errors.push(object.path(), "no other numbers", format!("at least one of {}", fields.join(", ")));
    }
    let numbers = numbers::read_instead(numbers, cost, &object, errors);
    object.finish(errors, &[&["when"], fields].concat());
    let grant = numbers.and_then(|numbers| numbers::grant(numbers, cost, &object, scope.options, errors));
    Some(Override { when: when?, grant: grant? })
}

fn overridable(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::TokenBucket => &["capacity", "refill"],
        Kind::SlidingWindow | Kind::SlidingWindowCounter | Kind::FixedWindow => &["limit"],
    }
}

fn note_window(object: &Members<'_>, fields: &[&str], errors: &mut PolicyErrors) {
    if let Some(window) = object.optional("window").filter(|_| !fields.contains(&"window")) {
        window.reject(errors, "no window: all requests of a limit share its counters, which have its window");
    }
}

fn read_conditions(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<Condition>> {
    let object = place.object(errors, "an object such as {\"header:x-plan\": \"pro\"}")?;
    let members = object.all();
    if members.is_empty() || members.len() > CONDITIONS_MAX {
        place.reject(errors, format!("1 to {CONDITIONS_MAX} conditions, which must all hold"));
    }
    object.finish(errors, &[]);
    members.iter().map(|(name, place)| read_condition(name, place, errors)).collect::<Vec<_>>().into_iter().collect()
}

fn read_condition(name: &str, place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Condition> {
    let part = key_part(name).filter(|part| !matches!(part, KeyPart::ClientAddress | KeyPart::Constant(_)));
    if part.is_none() {
        errors.push(
            &place.path,
            "a condition on what requests do not tell",
            "\"header:NAME\", \"metadata:FILTER.PATH\" or another key part; for addresses there are exempt and block",
        );
    }
    let value = place.text(errors, "a value such as \"pro\", or \"pro*\" for all that start with it");
    let (part, value) = (part?, value?);
    let is_of_header = matches!(part, KeyPart::Header(_) | KeyPart::Cookie(_));
    let value = if is_of_header { ValueMatch::of_header(value) } else { ValueMatch::of(value) };
    Some(Condition { part, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_match_whole_or_from_their_start() {
        let rows: [(&str, &[u8], bool); 10] = [
            ("pro", b"pro", true),
            ("pro", b"Pro", false),
            ("pro", b"pro ", false),
            ("pro", b"professional", false),
            ("pro*", b"pro", true),
            ("pro*", b"professional", true),
            ("pro*", b"pr", false),
            ("*", b"anything", true),
            ("", b"", true),
            ("p*o", b"p*o", true),
        ];
        for (text, value, expected) in rows {
            assert_eq!(ValueMatch::of(text).matches(value), expected, "{text:?} and {value:?}");
        }
    }
}
