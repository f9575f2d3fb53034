//! Reads a JSON tree field by field and notes every fault with its path, so that one run reports all of them.

use std::cell::Cell;
use std::ops::RangeInclusive;

use super::error::PolicyErrors;
use super::names::is_name;
use super::node::{Node, describe_text};

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
    pub fn reject(&self, errors: &mut PolicyErrors, expected: impl Into<String>) {
        errors.push(&self.path, self.node.describe(), expected);
    }

    /// The members of an object, or a noted fault.
    pub fn object(&self, errors: &mut PolicyErrors, expected: &str) -> Option<Members<'a>> {
        let Node::Object(members) = self.node else {
            self.reject(errors, expected);
            return None;
        };
        let members = members.iter().map(|(name, node)| (name.as_str(), node, Cell::new(false))).collect();
        Some(Members { path: self.path.clone(), members })
    }

    /// The items of a list, or a noted fault.
    pub fn list(&self, errors: &mut PolicyErrors, expected: &str) -> Option<Vec<Place<'a>>> {
        let Node::List(items) = self.node else {
            self.reject(errors, expected);
            return None;
        };
        let place = |(index, node)| Place { path: format!("{}[{index}]", self.path), node };
        Some(items.iter().enumerate().map(place).collect())
    }

    /// A string, or a noted fault.
    pub fn text(&self, errors: &mut PolicyErrors, expected: &str) -> Option<&'a str> {
        let Node::Text(text) = self.node else {
            self.reject(errors, expected);
            return None;
        };
        Some(text)
    }

    /// `true` or `false`, or a noted fault.
    pub fn boolean(&self, errors: &mut PolicyErrors) -> Option<bool> {
        let Node::Bool(value) = self.node else {
            self.reject(errors, "true or false");
            return None;
        };
        Some(*value)
    }

    /// A whole number in `range`, or a noted fault. `remark` follows the range in the message.
    pub fn whole(&self, errors: &mut PolicyErrors, range: RangeInclusive<u64>, remark: &str) -> Option<u64> {
        let (min, max) = (*range.start(), *range.end());
        match self.node {
            Node::Number(value) if value.fract() == 0.0 && *value >= min as f64 && *value <= max as f64 => {
                Some(*value as u64)
            }
            _ => {
                self.reject(errors, format!("a whole number from {min} to {max}{remark}"));
                None
            }
        }
    }

    /// One of the given words, or a noted fault that lists them.
    pub fn choice<T: Copy>(&self, errors: &mut PolicyErrors, choices: &[(&str, T)]) -> Option<T> {
        let chosen = match self.node {
            Node::Text(text) => choices.iter().find(|(word, _)| word == text),
            _ => None,
        };
        if chosen.is_none() {
            let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
            self.reject(errors, format!("one of {}", words.join(", ")));
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
    pub fn optional(&self, name: &str) -> Option<Place<'a>> {
        let (_, node, asked) = self.members.iter().find(|(member, ..)| *member == name)?;
        asked.set(true);
        Some(Place { path: self.member_path(name), node })
    }

    /// The member of that name, or a noted fault.
    pub fn required(&self, name: &str, errors: &mut PolicyErrors, expected: &str) -> Option<Place<'a>> {
        let place = self.optional(name);
        if place.is_none() {
            errors.push(&self.member_path(name), "nothing", expected);
        }
        place
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
    pub fn finish(&self, errors: &mut PolicyErrors, known: &[&str]) {
        for (index, (name, _, asked)) in self.members.iter().enumerate() {
            let repeated = self.members.iter().take(index).any(|(earlier, ..)| earlier == name);
            if repeated {
                errors.push(&self.member_path(name), "the same name twice", "each name once");
            } else if !asked.get() {
                let expected = format!("one of the fields {}", known.join(", "));
                errors.push(&self.member_path(name), "an unknown field", expected);
            }
        }
    }

    /// The path of this object.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn member_path(&self, name: &str) -> String {
        if is_name(name) { format!("{}.{name}", self.path) } else { format!("{}[{}]", self.path, describe_text(name)) }
    }
}
