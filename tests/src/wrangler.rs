//! Bundles a Worker with the platform's own command, as a deployment would.

use crate::tools;
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

/// Bundles the project in that directory, by its `wrangler.toml`, into `out`; what wrangler said.
pub fn bundle(project: &Path, out: &Path) -> Result<String> {
    let home = tempfile::tempdir()?;
    let mut node = Command::new("node");
    node.arg(tools::wrangler()?).args(["deploy", "--dry-run", "--outdir"]).arg(out).current_dir(project);
    node.envs([("WRANGLER_SEND_METRICS", "false"), ("CI", "1"), ("NO_COLOR", "1")]);
    node.env("WRANGLER_LOG_PATH", home.path().join("wrangler.log")).env("HOME", home.path());
    let output = node.output()?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(output.status.success(), "wrangler does not bundle {}:\n{said}", project.display());
    Ok(said)
}
