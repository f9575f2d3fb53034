//! Where things lie in the workspace, and whether the built filter is up to date.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What the filter is built from; a newer file here makes the built module stale.
const FILTER_SOURCES: [&str; 5] = ["core/src", "core/scripts", "core/Cargo.toml", "filter/src", "filter/Cargo.toml"];

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), |dir| workspace().join(dir))
}

/// Where fetched tools are kept.
pub fn tools() -> PathBuf {
    target().join("tools")
}

/// The built filter. Panics when it is missing or older than its sources.
pub fn wasm() -> PathBuf {
    up_to_date("lockkeeper_filter.wasm")
}

/// The build of the filter that traps when a request carries `x-lockkeeper-trap`. Panics like [`wasm`].
pub fn wasm_trap() -> PathBuf {
    up_to_date("lockkeeper_filter_trap.wasm")
}

/// Where the built module `name` is put, whether it exists or not.
pub fn wasm_file(name: &str) -> PathBuf {
    target().join("wasm32-unknown-unknown/release").join(name)
}

/// Written after each complete build: cargo leaves a module alone when its sources changed only in time.
pub fn build_stamp() -> PathBuf {
    wasm_file("lockkeeper_filter.stamp")
}

/// Where the built Worker is put.
pub fn worker() -> PathBuf {
    target().join("worker")
}

/// Where the build of it that panics when a request carries `x-lockkeeper-trap` is put.
pub fn worker_trap() -> PathBuf {
    target().join("worker-trap")
}

/// One of those directories. Panics when the Worker in it is missing or older than its sources.
pub fn built_worker(directory: PathBuf) -> PathBuf {
    let sources =
        ["core/src", "core/scripts", "core/Cargo.toml", "edge-worker/src", "edge-worker/js", "edge-worker/Cargo.toml"];
    assert_up_to_date(&directory.join("worker.js"), &directory.join("stamp"), &sources);
    directory
}

fn up_to_date(name: &str) -> PathBuf {
    let file = wasm_file(name);
    assert_up_to_date(&file, &build_stamp(), &FILTER_SOURCES);
    file
}

fn assert_up_to_date(file: &Path, stamp: &Path, sources: &[&str]) {
    let built = modified(stamp).filter(|_| file.exists());
    let Some(built) = built else { panic!("{} is missing: run `cargo xtask build`", file.display()) };
    let newest = sources.iter().filter_map(|source| newest_under(&workspace().join(source))).max();
    assert!(
        newest.is_none_or(|newest| newest <= built),
        "{} is older than its sources: run `cargo xtask build`",
        file.display()
    );
}

fn newest_under(path: &Path) -> Option<SystemTime> {
    let Ok(entries) = std::fs::read_dir(path) else {
        return modified(path);
    };
    entries.flatten().filter_map(|entry| newest_under(&entry.path())).max()
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}
