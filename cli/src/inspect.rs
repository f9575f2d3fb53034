//! `lockkeeper inspect` and `lockkeeper reset`: what the store holds for one request, and forgetting it.

use std::fmt::Write;
use std::io::{BufRead, IsTerminal};

use anyhow::{Result, bail};
use lockkeeper_core::engine::Engine;

use crate::document::Document;
use crate::request::{Request, RequestOptions};
use crate::store::{Held, Level, Store, StoreOptions};
use crate::style::{self, paint, seconds};
use crate::{Ending, claims};

/// Whose levels to show.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Whose levels to delete.
#[derive(Debug, clap::Args)]
pub struct ResetOptions {
    #[command(flatten)]
    target: Target,
    /// Only of this limit
    #[arg(long, value_name = "NAME")]
    limit: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// A request, its policy file and the store.
#[derive(Debug, clap::Args)]
pub struct Target {
    /// A policy file or plugin configuration; `-` reads standard input
    file: String,
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    request: RequestOptions,
}

/// Shows what the store holds. Never writes.
///
/// # Errors
/// When the file cannot be read, the request is not written as one, or the store fails.
pub fn inspect(options: &Options) -> Result<Ending> {
    let Some((_, held)) = options.target.held()? else { return Ok(Ending::Objections) };
    style::print(&match options.json {
        true => format!("{}\n", serde_json::to_string_pretty(&held)?),
        false => held.claims.iter().map(claims::described).chain([described(&held.levels)]).collect(),
    });
    Ok(Ending::Success)
}

/// Deletes what the store holds, after asking.
///
/// # Errors
/// Like [`inspect`], and when there is nobody to ask.
pub fn reset(options: &ResetOptions) -> Result<Ending> {
    let Some((mut store, Held { levels, .. })) = options.target.held()? else { return Ok(Ending::Objections) };
    let names: Vec<&str> = levels.iter().map(|level| level.limit.as_str()).collect();
    if let Some(name) = options.limit.as_ref().filter(|name| !names.is_empty() && !names.contains(&name.as_str())) {
        bail!("no limit {name:?} counts this request; those that do: {}", names.join(", "));
    }
    let wanted = |level: &Level| options.limit.as_ref().is_none_or(|name| *name == level.limit);
    let levels: Vec<Level> = levels.into_iter().filter(wanted).collect();
    style::print(&described(&levels));
    let keys: Vec<String> = levels.into_iter().map(|level| level.store_key).collect();
    if keys.is_empty() {
        return Ok(Ending::Objections);
    }
    let question = "Delete these keys, so that the request starts with a full allowance? [y/N] ";
    if !options.yes && !confirmed(question, "--yes deletes without asking")? {
        style::print("nothing was deleted\n");
        return Ok(Ending::Objections);
    }
    style::print(&format!("deleted: {} of {}\n", store.delete(&keys)?, keys.len()));
    Ok(Ending::Success)
}

impl Target {
    /// What the store holds for the request; `None` when the file does not load, which is then reported. Warns of a store
    /// that may drop it.
    pub fn held(&self) -> Result<Option<(Store, Held)>> {
        let request = Request::new(&self.request)?;
        let Some(policies) = Document::read(&self.file)?.load_or_report() else { return Ok(None) };
        let mut store = Store::connect(&self.store)?;
        if let Some(policy) = store.evicting()? {
            style::warn(&format!(
                "the store has maxmemory-policy {policy}: it may drop claims, slots and counters; set noeviction"
            ));
        }
        let held = store.held(&Engine::new(policies), &request)?;
        Ok(Some((store, held)))
    }
}

/// Asks; an error with the `hint` when there is nobody.
pub fn confirmed(question: &str, hint: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nobody can be asked here: {hint}");
    }
    style::print(question);
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn described(levels: &[Level]) -> String {
    if levels.is_empty() {
        return "no limit counts this request\n".into();
    }
    levels.iter().map(described_level).collect()
}

fn described_level(level: &Level) -> String {
    let mut text = format!("{} {}\n", paint(style::STRONG, &level.limit), level.store_key);
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {} {value}", paint(style::FAINT, format!("{name:<10}")));
    };
    row("remaining", format!("{} of {}", level.remaining, level.allowance));
    for slot in &level.slots {
        row("held by", format!("{}… until its lease ends in {}", slot.owner, seconds(slot.lease_left_us)));
    }
    if level.next_refill_us > 0 {
        row("more in", seconds(level.next_refill_us));
    }
    if level.retry_us > 0 {
        row("admits in", seconds(level.retry_us));
    }
    row(
        "expires",
        match (level.ttl_ms, level.never_expires) {
            (Some(ms), _) => format!("in {}", seconds(ms.saturating_mul(1_000))),
            (None, true) => paint(style::WARNING, "never: something else wrote this key; the next decision heals it"),
            (None, false) => "there is no key: nothing is spent".into(),
        },
    );
    text
}
