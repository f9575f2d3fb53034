//! Builds the Worker: the module, its bindings, and the scripts that the platform and other Workers take, side by side in
//! `target/worker`.

use crate::build::{TARGET, cargo};
use anyhow::{Context, Result, ensure};
use lockkeeper_tests::{paths, tools};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use wasm_bindgen_cli_support::Bindgen;

const MODULE: &str = "lockkeeper_worker";

/// Builds it and prints the sizes.
pub fn run() -> Result<ExitCode> {
    all()?;
    let module = paths::worker().join(format!("{MODULE}_bg.wasm"));
    println!("{}: {} KiB", module.display(), fs::metadata(&module)?.len() / 1024);
    Ok(ExitCode::SUCCESS)
}

/// Builds the Worker, and the build of it that panics when a request carries `x-lockkeeper-trap`.
pub fn all() -> Result<()> {
    eprintln!("build: the Worker that panics on purpose");
    build(&paths::worker_trap(), &["--features", "trap"])?;
    worker()
}

/// Builds the Worker alone.
pub fn worker() -> Result<()> {
    eprintln!("build: the Worker (release, {TARGET})");
    build(&paths::worker(), &[])
}

/// Both builds leave their module in the same place: each is bound at once.
fn build(out: &Path, arguments: &[&str]) -> Result<()> {
    tools::wasm_target()?;
    let mut cargo = cargo();
    cargo.args(["build", "--release", "--quiet", "--package", "lockkeeper-worker", "--target", TARGET]);
    ensure!(cargo.args(arguments).status()?.success(), "the Worker does not build");
    bind(&paths::wasm_file(&format!("{MODULE}.wasm")), out)?;
    for file in fs::read_dir(paths::workspace().join("edge-worker/js"))? {
        let file = file?;
        fs::copy(file.path(), out.join(file.file_name()))
            .with_context(|| format!("copying {}", file.path().display()))?;
    }
    // Tests compare the sources with this file, which is written last.
    Ok(fs::write(out.join("stamp"), [])?)
}

/// Writes the module as the platform takes it and the script that binds it.
fn bind(module: &Path, out: &Path) -> Result<()> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).web(true)?.typescript(false).reset_state_function(true);
    bindgen.remove_name_section(true).remove_producers_section(true);
    bindgen.generate(out).with_context(|| format!("binding {}", module.display()))
}
