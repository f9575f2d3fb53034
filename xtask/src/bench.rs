//! x
use anyhow::Result;
use std::process::ExitCode;
#[derive(clap::Args)]
pub struct Options {}
pub fn run(_options: &Options) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
