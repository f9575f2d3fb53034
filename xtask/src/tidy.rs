//! `cargo xtask tidy`: rules of the project that the compiler does not check. Reports every finding, then fails.

mod docs;
mod licences;
mod purity;
mod rust_files;
mod words;

use anyhow::{Result, ensure};
use lockkeeper_tests::paths;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A broken rule.
pub struct Finding {
    place: String,
    rule: String,
}

impl Finding {
    fn new(place: impl fmt::Display, rule: impl Into<String>) -> Self {
        Self { place: place.to_string(), rule: rule.into() }
    }
}

/// A text file of the workspace.
pub struct Source {
    /// From the root of the workspace, with `/`.
    path: String,
    text: String,
}

/// Runs all checks.
pub fn run() -> Result<ExitCode> {
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs all checks; an error when there is a finding.
pub fn check() -> Result<()> {
    let sources = sources()?;
    let mut findings = rust_files::check(&sources);
    findings.extend(words::check(&sources));
    findings.extend(docs::check(&sources));
    findings.extend(purity::check(&sources)?);
    findings.extend(licences::check()?);
    for finding in &findings {
        println!("{}: {}", finding.place, finding.rule);
    }
    ensure!(findings.is_empty(), "{} findings", findings.len());
    println!("tidy: {} files, nothing found", sources.len());
    Ok(())
}

/// All text files of the workspace but built, hidden and binary ones.
fn sources() -> Result<Vec<Source>> {
    let mut found = Vec::new();
    collect(paths::workspace(), &mut found)?;
    found.sort();
    let sources = found.into_iter().filter_map(|file| {
        let path = file.strip_prefix(paths::workspace()).ok()?.to_str()?.to_owned();
        Some(Source { path, text: std::fs::read_to_string(&file).ok()? })
    });
    Ok(sources.collect())
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let (path, name) = {
            let entry = entry?;
            (entry.path(), entry.file_name())
        };
        let skipped = name == "target"
            || name == "node_modules"
            || (name.as_encoded_bytes().starts_with(b".") && name != ".ci" && name != ".cargo");
        match path.is_dir() {
            _ if skipped => {}
            true => collect(&path, found)?,
            false => found.push(path),
        }
    }
    Ok(())
}
