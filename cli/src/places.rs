//! Where in a JSON text each value stands, so that a fault's JSON path becomes a line and a column.

use std::collections::HashMap;
use std::fmt;
use std::iter::Peekable;
use std::str::CharIndices;

use lockkeeper_core::policy::error::Spot;
use lockkeeper_core::policy::reader::{item_path, member_path};
use serde::Serialize;

/// A place in a text, counted from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// The lines of a text, found once: positions and excerpts of many findings do not read the text again.
#[derive(Debug)]
pub struct Lines<'a> {
    text: &'a str,
    /// Byte offsets at which lines begin.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Finds the lines of a text.
    pub fn of(text: &'a str) -> Lines<'a> {
        let breaks = text.match_indices('\n').map(|(newline, _)| newline.saturating_add(1));
        Lines { text, starts: std::iter::once(0).chain(breaks).collect() }
    }

    /// The position of the character at a byte offset.
    pub fn position(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or_default();
        Position { line, column: before.chars().count().saturating_add(1) }
    }

    /// The text of a line, counted from 1, without its end; empty when there is none.
    pub fn line(&self, number: usize) -> &'a str {
        let start = number.checked_sub(1).and_then(|index| self.starts.get(index)).copied();
        let end = self.starts.get(number).copied().unwrap_or(self.text.len());
        start.and_then(|start| self.text.get(start..end)).unwrap_or_default().trim_end()
    }
}

/// The places of all values of one JSON text.
#[derive(Debug)]
pub struct Places<'a> {
    lines: Lines<'a>,
    values: Vec<Value>,
    by_path: HashMap<String, Vec<usize>>,
}

#[derive(Debug)]
struct Value {
    path: String,
    /// Byte offset of the member's name, for members of objects.
    name: Option<usize>,
    /// Byte offset of the value.
    start: usize,
}

impl<'a> Places<'a> {
    /// Scans a text that is known to be JSON.
    pub fn scan(text: &'a str) -> Places<'a> {
        let mut scanner = Scanner { text, rest: text.char_indices().peekable(), values: Vec::new() };
        scanner.value("$".into(), None);
        let mut by_path: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, value) in scanner.values.iter().enumerate() {
            by_path.entry(value.path.clone()).or_default().push(index);
        }
        Places { lines: Lines::of(text), values: scanner.values, by_path }
    }

    /// The position of what a fault is about. `repetition` counts the faults of the same path and
    /// [`Spot::RepeatedName`] before it. What is missing is shown at the object that lacks it.
    pub fn position(&self, path: &str, spot: Spot, repetition: usize) -> Position {
        let offset = match self.by_path.get(path) {
            Some(same) => self.offset(same, spot, repetition),
            None => self.closest(path),
        };
        self.lines.position(offset)
    }

    fn offset(&self, same: &[usize], spot: Spot, repetition: usize) -> usize {
        let occurrence = if spot == Spot::RepeatedName { repetition.saturating_add(1) } else { 0 };
        let value = same.get(occurrence).or(same.last()).and_then(|index| self.values.get(*index));
        value.map_or(0, |value| match spot {
            Spot::Value => value.start,
            Spot::Name | Spot::RepeatedName => value.name.unwrap_or(value.start),
        })
    }

    /// The value that a missing one would be in: the nearest shorter path that exists.
    fn closest(&self, path: &str) -> usize {
        let mut outer = path;
        while let Some(end) = outer.rfind(['.', '[']) {
            outer = outer.get(..end).unwrap_or_default();
            if let Some(value) = self.by_path.get(outer).and_then(|same| self.values.get(*same.last()?)) {
                return value.start;
            }
        }
        0
    }
}

struct Scanner<'a> {
    text: &'a str,
    rest: Peekable<CharIndices<'a>>,
    values: Vec<Value>,
}

impl Scanner<'_> {
    fn value(&mut self, path: String, name: Option<usize>) {
        let Some((start, first)) = self.next_token() else { return };
        self.values.push(Value { path: path.clone(), name, start });
        match first {
            '{' => self.members(&path),
            '[' => self.items(&path),
            '"' => drop(self.string()),
            _ => while self.rest.next_if(|(_, char)| !is_space(*char) && !",]}".contains(*char)).is_some() {},
        }
    }

    fn members(&mut self, path: &str) {
        self.rest.next();
        while let Some((start, char)) = self.next_token() {
            match char {
                '"' => {
                    let name = self.string();
                    self.value_after_colon(member_path(path, &name), start);
                }
                _ => {
                    self.rest.next();
                    if char == '}' {
                        return;
                    }
                }
            }
        }
    }

    fn value_after_colon(&mut self, path: String, name: usize) {
        self.next_token();
        self.rest.next_if(|(_, char)| *char == ':');
        self.value(path, Some(name));
    }

    fn items(&mut self, path: &str) {
        self.rest.next();
        let mut index: usize = 0;
        while let Some((_, char)) = self.next_token() {
            match char {
                ']' | ',' => {
                    self.rest.next();
                    if char == ']' {
                        return;
                    }
                }
                _ => {
                    self.value(item_path(path, index), None);
                    index = index.saturating_add(1);
                }
            }
        }
    }

    /// Reads a string with its quotes and returns what it means.
    fn string(&mut self) -> String {
        let start = self.rest.next().map_or(0, |(start, _)| start);
        let mut end = start;
        while let Some((at, char)) = self.rest.next() {
            end = at;
            match char {
                '\\' => drop(self.rest.next()),
                '"' => break,
                _ => {}
            }
        }
        let quoted = self.text.get(start..=end).unwrap_or_default();
        serde_json::from_str(quoted).unwrap_or_default()
    }

    /// Skips white space and shows the character after it.
    fn next_token(&mut self) -> Option<(usize, char)> {
        while self.rest.next_if(|(_, char)| is_space(*char)).is_some() {}
        self.rest.peek().copied()
    }
}

fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, path: &str, spot: Spot, repetition: usize) -> (usize, usize) {
        let position = Places::scan(text).position(path, spot, repetition);
        (position.line, position.column)
    }

    #[test]
    fn values_and_names_are_found_wherever_they_stand() {
        let text = "{\r\n  \"a\" : [ 1,\t{ \"b\":null},[],\"x]\" ,{}],\n\"c\":{\"d\": -1.5e3 }}\n";
        let rows = [
            ("$", (1, 1), (1, 1)),
            ("$.a", (2, 3), (2, 9)),
            ("$.a[0]", (2, 11), (2, 11)),
            ("$.a[1]", (2, 14), (2, 14)),
            ("$.a[1].b", (2, 16), (2, 20)),
            ("$.a[2]", (2, 26), (2, 26)),
            ("$.a[3]", (2, 29), (2, 29)),
            ("$.a[4]", (2, 35), (2, 35)),
            ("$.c", (3, 1), (3, 5)),
            ("$.c.d", (3, 6), (3, 11)),
        ];
        for (path, name, value) in rows {
            assert_eq!(at(text, path, Spot::Name, 0), name, "{path}");
            assert_eq!(at(text, path, Spot::Value, 0), value, "{path}");
        }
    }

    #[test]
    fn escapes_in_names_are_read_and_columns_count_characters() {
        let text = r#"{"é😀\"}": 1, "b\u0061d \\": {"\u007b": 2}, "": 3, "ok": 4}"#;
        let rows = [
            (r#"$["é😀\"}"]"#, 11),
            (r#"$["bad \\"]"#, 29),
            (r#"$["bad \\"]["{"]"#, 40),
            (r#"$[""]"#, 48),
            ("$.ok", 57),
        ];
        for (path, column) in rows {
            assert_eq!(at(text, path, Spot::Value, 0), (1, column), "{path}");
        }
    }

    #[test]
    fn each_repetition_of_a_name_is_found() {
        let text = "{\"a\": 1,\n\"a\": 2,\n\"a\": 3}";
        assert_eq!(at(text, "$.a", Spot::Value, 0), (1, 7));
        assert_eq!(at(text, "$.a", Spot::RepeatedName, 0), (2, 1));
        assert_eq!(at(text, "$.a", Spot::RepeatedName, 1), (3, 1));
    }

    #[test]
    fn what_is_missing_is_shown_at_the_object_that_lacks_it() {
        let text = "{\"policies\":\n{\"p\": {},\n\"pq\": [{}]}}";
        assert_eq!(at(text, "$.version", Spot::Value, 0), (1, 1));
        assert_eq!(at(text, "$.policies.p.limits", Spot::Value, 0), (2, 7));
        assert_eq!(at(text, "$.policies.pq[0].key[3]", Spot::Value, 0), (3, 8));
        assert_eq!(at(text, "$.policies.pqr", Spot::Value, 0), (2, 1));
    }

    #[test]
    fn broken_text_ends_the_scan() {
        for text in ["", "{", "[", "{\"a", "{\"a\":", "[1, \"\\", "}", "]]", "{,:}", "nul"] {
            assert!(Places::scan(text).values.len() <= 3, "{text:?}");
        }
    }
}
