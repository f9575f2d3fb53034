//! What is deployed: wrangler takes the shipped file, and the bundle stays small.

use lockkeeper_tests::{paths, wrangler};

/// The whole bundle, compressed as the platform counts it.
const BUNDLE_KIB_MAX: f64 = 700.0;

#[test]
fn wrangler_bundles_the_worker_within_the_limit() {
    paths::built_worker(paths::worker());
    let out = tempfile::tempdir().expect("a temporary directory");
    let said =
        wrangler::bundle(&paths::workspace().join("edge-worker"), out.path()).unwrap_or_else(|e| panic!("{e:#}"));
    for binding in ["env.STORE_CONNECTION (StoreConnection)", "env.POLICY", "env.STORE_URL"] {
        assert!(said.contains(binding), "{binding} is not bound:\n{said}");
    }
    let compressed = said.split("gzip: ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    let compressed = compressed.unwrap_or_else(|| panic!("wrangler tells no size:\n{said}"));
    println!("{compressed} KiB compressed");
    assert!(compressed <= BUNDLE_KIB_MAX, "the bundle has {compressed} KiB compressed");
}
