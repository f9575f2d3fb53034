//! `cargo xtask test`: every check and every test, with a summary at the end.

use crate::build::{self, cargo};
use crate::{tidy, worker};
use anyhow::{Result, ensure};
use lockkeeper_tests::tools;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What to pass on.
#[derive(clap::Args)]
pub struct Options {
    /// Arguments for `cargo test`, e.g. a test's name or `-- --nocapture`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo_test: Vec<String>,
}

type Step<'a> = (&'static str, Box<dyn Fn() -> Result<()> + 'a>);

/// Runs all steps, also after one failed.
pub fn run(options: &Options) -> Result<ExitCode> {
    let steps: [Step; 8] = [
        ("tools", Box::new(fetch_tools)),
        ("fmt", Box::new(|| cargo_step(&["fmt", "--check"], &[]))),
        (
            "clippy",
            Box::new(|| {
                cargo_step(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], &[])
            }),
        ),
        (
            "doc",
            Box::new(|| {
                cargo_step(&["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])
            }),
        ),
        ("wasm", Box::new(build::all)),
        ("worker", Box::new(worker::all)),
        ("tidy", Box::new(tidy::check)),
        ("tests", Box::new(|| tests(&options.cargo_test))),
    ];
    let results: Vec<_> = steps.iter().map(|(name, step)| (*name, timed(name, step))).collect();
    println!("\nsummary");
    for (name, (elapsed, result)) in &results {
        match result {
            Ok(()) => println!("  ok      {name:<8} {:>4} s", elapsed.as_secs()),
            Err(error) => println!("  FAILED  {name:<8} {:>4} s  {error:#}", elapsed.as_secs()),
        }
    }
    let failed = results.iter().filter(|(_, (_, result))| result.is_err()).count();
    println!("{}", if failed == 0 { "all passed".to_owned() } else { format!("{failed} of {} failed", results.len()) });
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn timed(name: &str, step: &dyn Fn() -> Result<()>) -> (Duration, Result<()>) {
    eprintln!("\n== {name}");
    let start = Instant::now();
    let result = step();
    if let Err(error) = &result {
        eprintln!("{name}: {error:#}");
    }
    (start.elapsed(), result)
}

/// Before the tests, whose deadlines know nothing of downloads.
fn fetch_tools() -> Result<()> {
    tools::envoy()?;
    tools::redis_server()?;
    tools::workerd()?;
    tools::wasm_target()
}

fn tests(arguments: &[String]) -> Result<()> {
    let arguments = || arguments.iter().map(String::as_str);
    let others: Vec<&str> = ["test", "--workspace", "--exclude", "lockkeeper-tests", "--no-fail-fast"]
        .into_iter()
        .chain(arguments())
        .collect();
    let others = cargo_step(&others, &[]);
    // One at a time: each of them fills both cores of a small machine, and some of them measure time.
    let servers: Vec<&str> =
        ["test", "--package", "lockkeeper-tests", "--no-fail-fast"].into_iter().chain(arguments()).collect();
    cargo_step(&servers, &[("RUST_TEST_THREADS", "1")]).and(others)
}

fn cargo_step(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let status = cargo().args(arguments).envs(environment.iter().copied()).status()?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}
