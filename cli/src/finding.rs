//! Something to say about a place of a document, for editors in one line and for people with the line it is about.

use serde::Serialize;

use crate::places::{Lines, Position};
use crate::style::{self, paint};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The gateway refuses the file.
    Error,
    /// The gateway takes the file, but it may not mean what its author thinks.
    Warning,
}

/// Something to say about a place of a document.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The JSON path.
    pub path: String,
    /// The place in the text.
    #[serde(flatten)]
    pub position: Position,
    /// What is to be said.
    pub message: String,
}

impl Finding {
    /// One line that editors can jump from, and the line of the document with the place marked.
    pub fn described(&self, file: &str, lines: &Lines<'_>) -> String {
        let (style, word) = match self.severity {
            Severity::Error => (style::ERROR, "error"),
            Severity::Warning => (style::WARNING, "warning"),
        };
        let head = paint(style::STRONG, format!("{file}:{}:", self.position));
        let (word, path) = (paint(style, word), paint(style::STRONG, &self.path));
        let (excerpt, indent) = excerpt(lines.line(self.position.line), self.position);
        let gutter = paint(style::FAINT, format!("{:>5} |", self.position.line));
        let margin = paint(style::FAINT, "      |");
        let mark = paint(style, "^");
        format!("{head} {word}: {path}: {}\n{gutter} {excerpt}\n{margin} {}{mark}\n", self.message, " ".repeat(indent))
    }
}

/// How much of a line is shown, and how much of that before the place.
const SHOWN_CHARS: usize = 120;
const SHOWN_BEFORE: usize = 80;

/// The part of the line around a place, and how many characters stand before the place.
fn excerpt(line: &str, position: Position) -> (String, usize) {
    let before = position.column.saturating_sub(1);
    let skipped = if line.chars().nth(SHOWN_CHARS).is_some() { before.saturating_sub(SHOWN_BEFORE) } else { 0 };
    let visible = |char: char| if char.is_control() { ' ' } else { char };
    let shown: String = line.chars().skip(skipped).take(SHOWN_CHARS).map(visible).collect();
    (shown, before.saturating_sub(skipped))
}
