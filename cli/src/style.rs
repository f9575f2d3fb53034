//! How output looks: colours where a terminal shows them, plain text in pipes and where `NO_COLOR` asks for it.

use std::fmt::Display;
use std::io::Write;

use anstyle::{AnsiColor, Style};

use crate::Ending;

/// What is wrong.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// What may be wrong.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// What is right.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Headings.
pub const STRONG: Style = Style::new().bold();
/// What frames the matter.
pub const FAINT: Style = Style::new().dimmed();

/// The text in a style.
pub fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Prints to standard output. A reader that went away is no fault.
pub fn print(text: &str) {
    let mut out = anstream::stdout();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Prints to standard error.
pub fn print_error(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// A time, rounded up to milliseconds.
pub fn seconds(us: u64) -> String {
    let ms = us.div_ceil(1_000);
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}

/// Prints what is to be seen to.
pub fn warn(text: &str) {
    let _ = writeln!(anstream::stderr(), "{}: {text}", paint(WARNING, "warning"));
}

/// Prints what kept the command from doing its work.
pub fn fail(error: &anyhow::Error) -> Ending {
    let _ = writeln!(anstream::stderr(), "{}: {error:#}", paint(ERROR, "error"));
    Ending::Failure
}
