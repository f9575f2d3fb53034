//! What is deployed: wrangler takes the shipped file, and the bundle stays small.

use lockkeeper_tests::{paths, tools};
use std::process::Command;

/// The whole bundle, compressed as the platform counts it.
const BUNDLE_KIB_MAX: f64 = 700.0;

#[test]
fn wrangler_bundles_the_worker_within_the_limit() {
    paths::built_worker(paths::worker());
    let out = tempfile::tempdir().expect("a temporary directory");
    let mut node = Command::new("node");
    node.arg(tools::wrangler().expect("wrangler is there")).args(["deploy", "--dry-run", "--outdir"]).arg(out.path());
    node.current_dir(paths::workspace().join("edge-worker"));
    node.envs([("WRANGLER_SEND_METRICS", "false"), ("CI", "1"), ("NO_COLOR", "1")]);
    node.env("WRANGLER_LOG_PATH", out.path().join("wrangler.log")).env("HOME", out.path());
    let output = node.output().expect("node runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{text}");
    for binding in ["env.STORE_CONNECTION (StoreConnection)", "env.POLICY", "env.STORE_URL"] {
        assert!(text.contains(binding), "{binding} is not bound:\n{text}");
    }
    let compressed = text.split("gzip: ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    let compressed = compressed.unwrap_or_else(|| panic!("wrangler tells no size:\n{text}"));
    println!("{compressed} KiB compressed");
    assert!(compressed <= BUNDLE_KIB_MAX, "the bundle has {compressed} KiB compressed");
}
