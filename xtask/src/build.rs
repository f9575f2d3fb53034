//! Builds the filter for Envoy, and a second time with the trap that the test of a crashing VM needs.

use anyhow::{Context, Result, ensure};
use lockkeeper_tests::{paths, tools};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use wasmparser::{Parser, Payload};

/// What all modules are built for.
pub const TARGET: &str = "wasm32-unknown-unknown";
const FILTER: &str = "lockkeeper_filter.wasm";
const TRAP: &str = "lockkeeper_filter_trap.wasm";

/// Builds both and prints their sizes.
pub fn run() -> Result<ExitCode> {
    all()?;
    for name in [FILTER, TRAP] {
        let file = paths::wasm_file(name);
        let bytes = fs::read(&file)?;
        println!(
            "{}: {} KiB ({} KiB without names)",
            file.display(),
            bytes.len() / 1024,
            stripped_bytes(&bytes)? / 1024
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds both.
pub fn all() -> Result<()> {
    filter()?;
    trap()?;
    // Tests compare their sources with this file: cargo leaves a module alone when only the time of a source changed.
    Ok(fs::write(paths::build_stamp(), [])?)
}

/// Builds the filter alone.
pub fn filter() -> Result<()> {
    tools::wasm_target()?;
    eprintln!("build: the filter (release, {TARGET}; the first time takes a minute)");
    cargo_build(&paths::target(), &[], &[])
}

/// In a target directory of its own, since cargo takes one file for the other when only features differ; and built fast, since only its crash matters.
fn trap() -> Result<()> {
    eprintln!("build: the filter that traps on purpose");
    let target = paths::target().join("trap");
    let quick = [("CARGO_PROFILE_RELEASE_LTO", "off"), ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")];
    cargo_build(&target, &["--features", "trap"], &quick)?;
    let built = target.join(TARGET).join("release").join(FILTER);
    fs::copy(&built, paths::wasm_file(TRAP)).with_context(|| format!("copying {}", built.display()))?;
    Ok(())
}

fn cargo_build(target: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let mut cargo = cargo();
    cargo.args(["build", "--release", "--quiet", "--package", "lockkeeper-filter", "--target", TARGET]);
    cargo.args(arguments).envs(environment.iter().copied()).env("CARGO_TARGET_DIR", target);
    ensure!(cargo.status()?.success(), "the filter does not build");
    Ok(())
}

/// The cargo that runs us, in the workspace.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(paths::workspace());
    cargo
}

/// The size of a module without its custom sections, such as names.
pub fn stripped_bytes(module: &[u8]) -> Result<usize> {
    let custom = Parser::new(0).parse_all(module).try_fold(0, |sum, payload| {
        Ok::<_, wasmparser::BinaryReaderError>(match payload? {
            Payload::CustomSection(section) => sum + section.range().len(),
            _ => sum,
        })
    })?;
    Ok(module.len() - custom)
}
