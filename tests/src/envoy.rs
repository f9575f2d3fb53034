//! A real Envoy on free loopback ports.

use crate::admin::Admin;
use crate::http::Client;
use crate::process::Process;
use crate::{EnvoyConfig, poll, tools};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;

const START_DEADLINE: Duration = Duration::from_secs(20);
const RELOAD_DEADLINE: Duration = Duration::from_secs(10);

/// A running Envoy; dropped, it is killed and its directory removed.
pub struct Envoy {
    process: Process,
    admin: Admin,
    address: SocketAddr,
    directory: TempDir,
}

/// What Envoy said to a new configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum Reload {
    /// It runs now.
    Accepted,
    /// The old one keeps running; the text is Envoy's.
    Rejected(String),
}

impl Envoy {
    /// Starts Envoy and waits until it is ready. The error holds the end of its log.
    pub fn start(config: &EnvoyConfig) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        write(config, directory.path())?;
        let admin_address = directory.path().join("admin");
        let mut command = command(config, directory.path())?;
        command.arg("--admin-address-path").arg(&admin_address);
        let mut process = Process::spawn(command, &directory.path().join("envoy.log"))?;
        let admin = wait_for_admin(&mut process, &admin_address)?;
        let address = admin.listener("main").with_context(|| process.log_tail())?;
        Ok(Self { process, admin, address, directory })
    }

    /// What `envoy --mode validate` says to a configuration: its whole output, as an error when it refuses.
    pub fn validate(config: &EnvoyConfig) -> Result<String> {
        let directory = tempfile::tempdir()?;
        write(config, directory.path())?;
        let output = command(config, directory.path())?.args(["--mode", "validate"]).output()?;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        ensure!(output.status.success(), text);
        Ok(text)
    }

    /// The address of the main listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client of the main listener, with connections of its own.
    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// The admin interface.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The process, for its pid, signals, log, memory and processor time.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its exit status, when it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.process.exited()
    }

    /// The access log so far, a JSON object for each request.
    pub fn access_log(&self) -> Vec<Value> {
        self.process
            .log()
            .lines()
            .filter(|line| line.starts_with('{'))
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Replaces the listeners of a [`EnvoyConfig::reloadable`] configuration and waits for the answer.
    pub fn reload(&self, config: &EnvoyConfig) -> Result<Reload> {
        let updates =
            |name: &str| self.admin.stats().get(&format!("listener_manager.lds.{name}")).copied().unwrap_or(0);
        let (accepted, rejected) = (updates("update_success"), updates("update_rejected"));
        write(config, self.directory.path())?;
        poll::until("Envoy answers to the new listeners", RELOAD_DEADLINE, || {
            if updates("update_rejected") > rejected {
                return Some(Reload::Rejected(self.process.log_tail()));
            }
            (updates("update_success") > accepted).then_some(Reload::Accepted)
        })
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of Envoy's log:\n{}", self.process.log_tail());
        }
    }
}

fn command(config: &EnvoyConfig, directory: &Path) -> Result<Command> {
    let mut command = Command::new(tools::envoy()?);
    command.envs(config.environment.iter().map(|(name, value)| (name, value)));
    command.arg("-c").arg(directory.join("envoy.json"));
    command.args(["--concurrency", &config.concurrency.to_string(), "--disable-hot-restart"]);
    command.args(["--log-level", "warning", "--component-log-level", "wasm:info", "--file-flush-interval-msec", "20"]);
    Ok(command)
}

fn write(config: &EnvoyConfig, directory: &Path) -> Result<()> {
    let (root, listeners) = config.render(directory);
    if let Some(listeners) = listeners {
        // Envoy watches for the rename: it never sees half a file.
        let staged = directory.join("listeners.json.new");
        fs::write(&staged, listeners.to_string())?;
        fs::rename(staged, directory.join("listeners.json"))?;
    }
    Ok(fs::write(directory.join("envoy.json"), root.to_string())?)
}

fn wait_for_admin(process: &mut Process, file: &Path) -> Result<Admin> {
    let ready = poll::until("Envoy is ready", START_DEADLINE, || {
        if let Some(status) = process.exited() {
            return Some(Err(status));
        }
        let address = fs::read_to_string(file).ok()?.trim().parse().ok()?;
        let admin = Admin::new(address);
        admin.is_ready().then_some(Ok(admin))
    });
    match ready {
        Ok(Ok(admin)) => Ok(admin),
        Ok(Err(status)) => bail!("Envoy ended with {status}:\n{}", process.log()),
        Err(error) => Err(error.context(process.log_tail())),
    }
}
