//! `lockkeeper check`: every error and warning of the given files, for people or as JSON.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use crate::Ending;
use crate::document::Document;
use crate::finding::{Finding, Severity};
use crate::style::{self, paint};

/// Shown below the command's help.
pub const EXIT_CODES: &str = "Exit code: 0 when all files load, 1 when one does not (or has a warning, with \
                              --deny-warnings), 2 when one cannot be read.";

/// What to check, and how to say it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Policy files or plugin configurations (`{"host": …, "policy": …}`); `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Let warnings fail the check
    #[arg(long)]
    deny_warnings: bool,
}

#[derive(Serialize)]
struct Outcome {
    files: Vec<Checked>,
    errors: usize,
    warnings: usize,
}

#[derive(Default, Serialize)]
struct Checked {
    #[serde(flatten)]
    document: Document,
    /// Why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
    /// What the file holds, when it loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<Holds>,
    findings: Vec<Finding>,
}

#[derive(Clone, Copy, Serialize)]
struct Holds {
    policies: usize,
    limits: usize,
    routes: usize,
}

/// Checks all files, also after one that cannot be read.
///
/// # Errors
/// When the outcome cannot be written as JSON.
pub fn run(options: &Options) -> Result<Ending> {
    let files: Vec<Checked> = options.files.iter().map(|name| check(name)).collect();
    let count = |severity| files.iter().flat_map(|file| &file.findings).filter(|one| one.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let outcome = Outcome { files, errors, warnings };
    match options.json {
        true => style::print(&format!("{}\n", serde_json::to_string_pretty(&outcome)?)),
        false => outcome.files.iter().for_each(|file| style::print(&described(file))),
    }
    Ok(match () {
        () if outcome.files.iter().any(|file| file.unreadable.is_some()) => Ending::Failure,
        () if errors > 0 || (options.deny_warnings && warnings > 0) => Ending::Objections,
        () => Ending::Success,
    })
}

fn check(name: &str) -> Checked {
    let document = match Document::read(name) {
        Ok(document) => document,
        Err(error) => {
            let document = Document { name: name.to_owned(), text: String::new() };
            return Checked { document, unreadable: Some(format!("{error:#}")), ..Checked::default() };
        }
    };
    let (holds, findings) = match document.load() {
        Ok(policies) => {
            let holds = Holds {
                policies: policies.policies.len(),
                limits: policies.policies.iter().map(|policy| policy.limits.len()).sum(),
                routes: policies.routes.all().len(),
            };
            (Some(holds), document.warnings(&policies))
        }
        Err(findings) => (None, findings),
    };
    Checked { document, unreadable: None, holds, findings }
}

fn described(file: &Checked) -> String {
    if let Some(reason) = &file.unreadable {
        return format!("{}: {}: {reason}\n", file.document.name, paint(style::ERROR, "error"));
    }
    let mut text: String = file.document.described(&file.findings);
    let count = |severity| file.findings.iter().filter(|one| one.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let verdict = match (errors, warnings) {
        (0, 0) => paint(style::GOOD, "ok"),
        (0, _) => paint(style::WARNING, plural(warnings, "warning")),
        (_, 0) => paint(style::ERROR, plural(errors, "error")),
        _ => paint(style::ERROR, format!("{}, {}", plural(errors, "error"), plural(warnings, "warning"))),
    };
    let holds = file.holds.map_or(String::new(), |holds| {
        let Holds { policies, limits, routes } = holds;
        let policies = if policies == 1 { "1 policy".into() } else { format!("{policies} policies") };
        paint(style::FAINT, format!(" ({policies}, {}, {})", plural(limits, "limit"), plural(routes, "route")))
    });
    let _ = writeln!(text, "{}: {verdict}{holds}", file.document.name);
    text
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
