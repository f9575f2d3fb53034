//! Reads a JSON tree field by field and notes every fault with its path, so that one run reports all of them.
//!
//! Every field calls what is here, once at load: inlined it would take a fiftieth of a module.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::RangeInclusive;

use super::error::{PolicyErrors, Spot};
use super::names::is_name;
use super::node::{Node, describe_text};
use super::suggest;

/// A JSON value and the path that leads to it.
#[derive(Clone)]
pub struct Place<'a> {
    /// JSON path, `$` at the root.
    pub path: String,
    /// The value found there.
    pub node: &'a Node,
}

impl<'a> Place<'a> {
    /// The root of a document.
    pub fn root(node: &'a Node) -> Place<'a> {
        Place { path: "$".into(), node }
    }

    /// Notes that this value is not what was expected.
    #[inline(never)]
    pub fn reject(&self, errors: &mut PolicyErrors, expected: impl Into<String>) {
        errors.push(&self.path, self.node.describe(), expected);
    }

    /// The same with a guess of what was meant, when there is one.
    #[inline(never)]
    pub fn reject_for(
        &self,
        errors: &mut PolicyErrors,
        expected: impl Into<String>,
        meant: impl FnOnce() -> Option<String>,
    ) {
        let expected = with_guess(expected.into(), errors, meant);
        self.reject(errors, expected);
    }

    /// The members of an object, or a noted fault.
    #[inline(never)]
    pub fn object(&self, errors: &mut PolicyErrors, expected: &str) -> Option<Members<'a>> {
        let Node::Object(members) = self.node else {
            self.reject(errors, expected);
            return None;
        };
        let members = members.iter().map(|(name, node)| (name.as_str(), node, Cell::new(false))).collect();
        Some(Members { path: self.path.clone(), members })
    }

    /// The items of a list, or a noted fault.
    #[inline(never)]
    pub fn list(&self, errors: &mut PolicyErrors, expected: &str) -> Option<Vec<Place<'a>>> {
        let Node::List(items) = self.node else {
            self.reject_for(errors, expected, || suggest::list(self.node));
            return None;
        };
        let place = |(index, node)| Place { path: item_path(&self.path, index), node };
        Some(items.iter().enumerate().map(place).collect())
    }

    /// A string, or a noted fault.
    #[inline(never)]
    pub fn text(&self, errors: &mut PolicyErrors, expected: &str) -> Option<&'a str> {
        let Node::Text(text) = self.node else {
            self.reject(errors, expected);
            return None;
        };
        Some(text)
    }

    /// `true` or `false`, or a noted fault.
    #[inline(never)]
    pub fn boolean(&self, errors: &mut PolicyErrors) -> Option<bool> {
        let Node::Bool(value) = self.node else {
            self.reject_for(errors, "true or false", || suggest::boolean(self.node));
            return None;
        };
        Some(*value)
    }

    /// A whole number in `range`, or a noted fault. `remark` follows the range in the message.
    #[inline(never)]
    pub fn whole(&self, errors: &mut PolicyErrors, range: RangeInclusive<u64>, remark: &str) -> Option<u64> {
        let (min, max) = (*range.start(), *range.end());
        match self.node {
            Node::Number(value) if value.fract() == 0.0 && *value >= min as f64 && *value <= max as f64 => {
                Some(*value as u64)
            }
            _ => {
                let expected = format!("a whole number from {min} to {max}{remark}");
                self.reject_for(errors, expected, || suggest::whole(self.node));
                None
            }
        }
    }

    /// One of the given words, or a noted fault that lists them.
    #[inline(never)]
    pub fn choice<T: Copy>(&self, errors: &mut PolicyErrors, choices: &[(&str, T)]) -> Option<T> {
        let chosen = match self.node {
            Node::Text(text) => choices.iter().find(|(word, _)| word == text),
            _ => None,
        };
        if chosen.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            let meant = || suggest::word(self.node, &words).map(|word| format!("{word:?}"));
            self.reject_for(errors, format!("one of {}", quoted.join(", ")), meant);
        }
        chosen.map(|(_, value)| *value)
    }
}

/// The members of one object. What is never asked for is an unknown field.
pub struct Members<'a> {
    path: String,
    members: Vec<(&'a str, &'a Node, Cell<bool>)>,
}

impl<'a> Members<'a> {
    /// The member of that name, if present.
    #[inline(never)]
    pub fn optional(&self, name: &str) -> Option<Place<'a>> {
        let (_, node, asked) = self.members.iter().find(|(member, ..)| *member == name)?;
        asked.set(true);
        Some(Place { path: self.member_path(name), node })
    }

    /// The member of that name, or a noted fault.
    #[inline(never)]
    pub fn required(&self, name: &str, errors: &mut PolicyErrors, expected: &str) -> Option<Place<'a>> {
        let place = self.optional(name);
        if place.is_none() {
            errors.push(&self.member_path(name), "nothing", expected);
        }
        place
    }

    /// What `read` makes of the member of that name, or `default` when it is not there.
    pub fn or<T>(
        &self,
        name: &str,
        default: T,
        errors: &mut PolicyErrors,
        read: impl FnOnce(&Place<'a>, &mut PolicyErrors) -> Option<T>,
    ) -> Option<T> {
        self.optional(name).map_or(Some(default), |place| read(&place, errors))
    }

    /// Every member, in the order of the file: for objects whose names are the user's own.
    pub fn all(&self) -> Vec<(&'a str, Place<'a>)> {
        self.members
            .iter()
            .map(|(name, node, asked)| {
                asked.set(true);
                (*name, Place { path: self.member_path(name), node })
            })
            .collect()
    }

    /// Notes unknown and repeated members. `known` is what the message offers instead.
    #[inline(never)]
    pub fn finish(&self, errors: &mut PolicyErrors, known: &[&str]) {
        let mut earlier = HashSet::new();
        for (name, _, asked) in &self.members {
            if !earlier.insert(*name) {
                errors.push_at(Spot::RepeatedName, &self.member_path(name), "the same name twice", "each name once");
            } else if !asked.get() {
                let expected = format!("one of the fields {}", known.join(", "));
                let expected = with_guess(expected, errors, || self.meant(name, known));
                errors.push_at(Spot::Name, &self.member_path(name), "an unknown field", expected);
            }
        }
    }

    /// A known field that is not there and may have been meant by an unknown one.
    fn meant(&self, unknown: &str, known: &[&str]) -> Option<String> {
        let is_free = |field: &&str| self.members.iter().all(|(name, ..)| name != field);
        let free: Vec<&str> = known.iter().copied().filter(is_free).collect();
        suggest::field(unknown, &free).map(|field| format!("{field:?}"))
    }

    /// The path of this object.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn member_path(&self, name: &str) -> String {
        member_path(&self.path, name)
    }
}

/// Nobody reads more guesses than these, and a file of nothing but faults must not take long.
const GUESSES_MAX: usize = 100;

fn with_guess(expected: String, errors: &PolicyErrors, meant: impl FnOnce() -> Option<String>) -> String {
    let guesses = cfg!(feature = "guesses") && errors.0.len() < GUESSES_MAX;
    match guesses.then(meant).flatten() {
        Some(meant) => format!("{expected}: did you mean {meant}?"),
        None => expected,
    }
}

/// The path of the member `name` of the object at `path`: `$.policies.login`, `$.policies["a b"]`.
#[inline(never)]
pub fn member_path(path: &str, name: &str) -> String {
    if is_name(name) { format!("{path}.{name}") } else { format!("{path}[{}]", describe_text(name)) }
}

/// The path of an item of the list at `path`: `$.routes[0]`.
#[inline(never)]
pub fn item_path(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}
