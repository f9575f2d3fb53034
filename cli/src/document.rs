//! A policy file or plugin configuration as the user has it: read, loaded, and each fault with its place in the text.

use std::collections::HashMap;
use std::io::Read;

use anyhow::{Context, Result};
use lockkeeper_core::host_config::PluginConfig;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::error::{PolicyError, PolicyErrors, Spot};
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::policy::node::Node;
use lockkeeper_core::policy::warnings::Warning;
use serde::Serialize;

use crate::finding::{Finding, Severity};
use crate::places::{Lines, Places, Position};
use crate::{secrets, style};

/// A text and what its faults call it.
#[derive(Debug, Default, Serialize)]
pub struct Document {
    /// The file's path, `-` for standard input.
    #[serde(rename = "file")]
    pub name: String,
    /// Its text.
    #[serde(skip)]
    pub text: String,
}

/// Editors write it unseen, and hosts do not take it.
const BYTE_ORDER_MARK: char = '\u{feff}';

impl Document {
    /// Reads a file, or standard input for `-`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(name: &str) -> Result<Document> {
        let mut bytes = Vec::new();
        if name == "-" {
            std::io::stdin().read_to_end(&mut bytes).context("standard input cannot be read")?;
        } else {
            bytes = std::fs::read(name).context("cannot be read")?;
        }
        // What is not UTF-8 is no JSON either; its faults are found with the replacement characters in place.
        let text =
            String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Ok(Document { name: name.to_owned(), text })
    }

    /// Loads it as what it is: an object with a member `policy` is a plugin configuration, all else a policy file.
    ///
    /// # Errors
    /// Every fault, in the order of the text.
    pub fn load(&self) -> Result<PolicySet, Vec<Finding>> {
        let node = Node::parse(self.text.as_bytes()).map_err(|error| vec![self.syntax_error(&error)])?;
        let loaded = match node.member("policy") {
            Some(_) => PluginConfig::from_json(self.text.as_bytes()).map(|config| config.policies),
            None => PolicySet::from_json(self.text.as_bytes(), LoadOptions::default()),
        };
        loaded.map_err(|errors| self.located(&errors))
    }

    /// What of these policies, which it holds, may not be meant.
    pub fn warnings(&self, policies: &PolicySet) -> Vec<Finding> {
        let is_plugin = Node::parse(self.text.as_bytes()).is_ok_and(|node| node.member("policy").is_some());
        let places = Places::scan(&self.text);
        let finding = |warning: Warning| {
            let inside = warning.path.strip_prefix('$').unwrap_or_default();
            let path = if is_plugin { format!("$.policy{inside}") } else { warning.path };
            let position = places.position(&path, Spot::Name, 0);
            Finding { severity: Severity::Warning, path, position, message: warning.message }
        };
        policies.warnings().into_iter().map(finding).collect()
    }

    /// Loads it; where it does not load, prints every fault.
    pub fn load_or_report(&self) -> Option<PolicySet> {
        let report = |findings: Vec<Finding>| {
            style::print_error(&self.described(&findings));
        };
        self.load().map_err(report).ok()
    }

    /// The findings as people read them, each with the line it is about.
    pub fn described(&self, findings: &[Finding]) -> String {
        let shown = secrets::masked(&self.text);
        let lines = Lines::of(&shown);
        findings.iter().map(|finding| finding.described(&self.name, &lines)).collect()
    }

    fn syntax_error(&self, error: &serde_json::Error) -> Finding {
        let line_start: usize =
            self.text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        // The parser counts bytes, and names the last one that it read.
        let mut offset = line_start.saturating_add(error.column().saturating_sub(1)).min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset = offset.saturating_sub(1);
        }
        let reason = error.to_string();
        let mut reason = reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason);
        if self.text.starts_with(BYTE_ORDER_MARK) {
            reason = "it begins with a byte order mark (save it as UTF-8 without one)";
        }
        Finding {
            severity: Severity::Error,
            path: "$".into(),
            position: Lines::of(&self.text).position(offset),
            message: format!("this is no JSON: {reason}"),
        }
    }

    fn located(&self, errors: &PolicyErrors) -> Vec<Finding> {
        let places = Places::scan(&self.text);
        let mut repetitions: HashMap<&str, usize> = HashMap::new();
        let mut findings = Vec::with_capacity(errors.0.len());
        for error in &errors.0 {
            let seen = repetitions.entry(&error.path).or_default();
            findings.push(finding(error, places.position(&error.path, error.spot, *seen)));
            if error.spot == Spot::RepeatedName {
                *seen = seen.saturating_add(1);
            }
        }
        findings.sort_by_key(|finding| finding.position);
        findings
    }
}

fn finding(error: &PolicyError, position: Position) -> Finding {
    let message = format!("found {}, expected {}", error.found, error.expected);
    Finding { severity: Severity::Error, path: error.path.clone(), position, message }
}
