//! A JSON document as a tree that keeps duplicate object members, which `serde_json::Value` would silently drop.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// One JSON value. Objects keep every member in the order of the file, duplicates included.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// Any JSON number, as the double that JSON means by it.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Node>),
    /// An object.
    Object(Vec<(String, Node)>),
}

impl Node {
    /// Parses a whole document.
    pub fn parse(json: &[u8]) -> Result<Node, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// The first member of that name, of an object that has it.
    pub fn member(&self, name: &str) -> Option<&Node> {
        let Node::Object(members) = self else { return None };
        members.iter().find(|(member, _)| member == name).map(|(_, node)| node)
    }

    /// The text of a string.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as an error message shows it: scalars as written, containers by kind, long strings cut.
    pub fn describe(&self) -> String {
        match self {
            Node::Null => "null".into(),
            Node::Bool(value) => value.to_string(),
            Node::Number(value) => describe_number(*value),
            Node::Text(text) => describe_text(text),
            Node::List(items) if items.is_empty() => "an empty list".into(),
            Node::List(items) => format!("a list of {}", items.len()),
            Node::Object(_) => "an object".into(),
        }
    }
}

/// Beyond this, and below its inverse, zeros would fill the line.
const PLAIN_NUMBER_MAX: f64 = 1e16;

fn describe_number(value: f64) -> String {
    let plain = value == 0.0 || (PLAIN_NUMBER_MAX.recip()..PLAIN_NUMBER_MAX).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

const SHOWN_CHARS_MAX: usize = 60;

/// A text in quotes as an error message shows it, cut when it is long.
pub(super) fn describe_text(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{start:?}… ({} characters)", text.chars().count())
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value as f64))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(value as f64))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut object = Vec::new();
        while let Some(member) = members.next_entry()? {
            object.push(member);
        }
        Ok(Node::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_members_are_kept() {
        let node = Node::parse(br#"{"a": 1, "a": [null, true, "x"]}"#).unwrap();
        let Node::Object(members) = node else { panic!("not an object") };
        assert_eq!(members.len(), 2);
    }

    #[test]
    fn long_texts_are_cut_in_messages() {
        let text = Node::Text("x".repeat(1000)).describe();
        assert!(text.len() < 100, "{text}");
    }
}
