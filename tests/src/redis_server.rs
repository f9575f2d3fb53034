//! A real Redis on a free loopback port, without persistence, that tests can kill, stop and bring back.

use crate::process::{Process, Signal};
use crate::{paths, poll, ports, tools};
use anyhow::{Context, Result, bail};
use redis::{Client, Connection};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const START_DEADLINE: Duration = Duration::from_secs(10);
/// Another process may take the chosen port first.
const ATTEMPTS: usize = 5;

/// A running (or killed) Redis; dropped, it is killed and its directory removed.
pub struct Redis {
    process: Process,
    address: SocketAddr,
    directory: TempDir,
    options: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

impl Redis {
    /// Starts one with default options.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts one with config options, e.g. `("maxmemory", "3mb")`.
    pub fn start_with(options: &[(&str, &str)]) -> Result<Self> {
        Self::start_in(options, &[])
    }

    /// Starts one with config options, and these variables in its environment.
    pub fn start_in(options: &[(&str, &str)], environment: &[(String, String)]) -> Result<Self> {
        let options: Vec<_> = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let directory = tempfile::tempdir()?;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let address = ports::free();
            match launch(address, &directory, &options, environment) {
                Ok(process) => {
                    let environment = environment.to_vec();
                    return Ok(Self { process, address, directory, options, environment });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no attempt was made")?)
    }

    /// Where it listens, also while it is down.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A new connection to it. Panics when it is down.
    pub fn connection(&self) -> Connection {
        connect(self.address).expect("Redis accepts connections")
    }

    /// Kills it at once: nothing it held survives.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it (SIGSTOP): it accepts connections and answers nothing.
    pub fn pause(&self) {
        self.process.signal(Signal::Stop);
    }

    /// Lets it go on after [`Redis::pause`].
    pub fn resume(&self) {
        self.process.signal(Signal::Continue);
    }

    /// Starts it again, empty, on the same port.
    pub fn restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process = launch(self.address, &self.directory, &self.options, &self.environment)?;
        Ok(())
    }
}

fn launch(
    address: SocketAddr,
    directory: &TempDir,
    options: &[(String, String)],
    environment: &[(String, String)],
) -> Result<Process> {
    let mut command = Command::new(tools::redis_server()?);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(["--port", &address.port().to_string()]).arg("--dir").arg(directory.path());
    for (name, value) in options {
        command.arg(format!("--{name}")).arg(value);
    }
    let mut process = Process::spawn(command, &directory.path().join("redis.log"))?;
    let ready = poll::until("Redis answers PING", START_DEADLINE, || match process.exited() {
        Some(status) => Some(Err(status)),
        None => connect(address)
            .ok()
            .and_then(|mut connection| redis::cmd("PING").query::<String>(&mut connection).ok())
            .map(|_| Ok(())),
    });
    match ready {
        Ok(Ok(())) => Ok(process),
        Ok(Err(status)) => bail!("redis-server ended with {status}:\n{}", process.log_tail()),
        Err(error) => Err(error.context(process.log_tail())),
    }
}

fn connect(address: SocketAddr) -> redis::RedisResult<Connection> {
    Client::open(format!("redis://{address}/"))?.get_connection_with_timeout(Duration::from_secs(1))
}

/// `SETUSER lockkeeper …`, as the documentation recommends it for the namespace `prod`.
pub fn documented_rights() -> String {
    let file = paths::workspace().join("docs/OPERATIONS.md");
    let text = std::fs::read_to_string(file).expect("the documentation is there");
    text.lines().find_map(|line| line.strip_prefix("ACL ")).expect("a line of rights").to_owned()
}
