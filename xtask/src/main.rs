//! `cargo xtask …`: everything that is not `cargo test`.

mod bench;
mod build;
mod demo;
mod test;
mod tidy;
mod worker;
mod worker_demo;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Build, demo, test and bench Lockkeeper. Missing tools are fetched into target/tools.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure against a bare Envoy; the exit code says whether the floors are met
    Bench(bench::Options),
    /// Build the filter and the Worker, and the builds of them that fail on purpose
    Build {
        /// The filter or the Worker alone
        what: Option<What>,
    },
    /// Run a real Envoy with the filter, a real Redis and an upstream, on free loopback ports
    Demo(demo::Options),
    /// Run every check and every test
    Test(test::Options),
    /// Check what the compiler does not: file headers, function lengths, imports, licences, paths in the docs
    Tidy,
}

/// What to build.
#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    Filter,
    Worker,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Bench(options) => bench::run(&options),
        Command::Build { what: None } => build::run().and_then(|_| worker::run()),
        Command::Build { what: Some(What::Filter) } => build::run(),
        Command::Build { what: Some(What::Worker) } => worker::run(),
        Command::Demo(options) => demo::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Tidy => tidy::run(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
