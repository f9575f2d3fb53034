//! `lockkeeper inspect` and `lockkeeper reset`: what the store holds for one request, and forgetting it.

use std::fmt::Write;
use std::io::{BufRead, IsTerminal};

use anyhow::{Result, bail};
use lockkeeper_core::engine::Engine;
use serde_json::json;

use crate::Ending;
use crate::document::Document;
use crate::request::{Request, RequestOptions};
use crate::store::{Level, Store, StoreOptions};
use crate::style::{self, paint};

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
struct Target {
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
    let Some((_, levels)) = levels(&options.target)? else { return Ok(Ending::Objections) };
    match options.json {
        true => style::print(&format!("{}\n", serde_json::to_string_pretty(&json!({ "limits": levels }))?)),
        false => style::print(&described(&levels)),
    }
    Ok(Ending::Success)
}

/// Deletes what the store holds, after asking.
///
/// # Errors
/// Like [`inspect`], and when there is nobody to ask.
pub fn reset(options: &ResetOptions) -> Result<Ending> {
    let Some((mut store, levels)) = levels(&options.target)? else { return Ok(Ending::Objections) };
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
    if !options.yes && !is_confirmed()? {
        style::print("nothing was deleted\n");
        return Ok(Ending::Objections);
    }
    style::print(&format!("deleted: {} of {}\n", store.delete(&keys)?, keys.len()));
    Ok(Ending::Success)
}

fn levels(target: &Target) -> Result<Option<(Store, Vec<Level>)>> {
    let request = Request::new(&target.request)?;
    let Some(policies) = Document::read(&target.file)?.load_or_report() else { return Ok(None) };
    let mut store = Store::connect(&target.store)?;
    let levels = store.levels(&Engine::new(policies), &request)?;
    Ok(Some((store, levels)))
}

fn is_confirmed() -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nobody can be asked here: --yes deletes without asking");
    }
    style::print("Delete these keys, so that the request starts with a full allowance? [y/N] ");
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

/// Rounded up to milliseconds.
fn seconds(us: u64) -> String {
    let ms = us.div_ceil(1_000);
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}
