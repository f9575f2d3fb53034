//! A real workerd, the platform's runtime, with the built Worker on a free loopback port.

use crate::http::Client;
use crate::process::Process;
use crate::{paths, poll, ports, tools};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const START_DEADLINE: Duration = Duration::from_secs(20);
/// Another process may take the chosen port first.
const ATTEMPTS: usize = 5;
/// Where the configuration expects what is trusted.
const AUTHORITY: &str = "authority.pem";
const COMPATIBILITY_DATE: &str = "2026-04-01";

/// A Worker's deployment under change.
#[derive(Clone, Debug)]
pub struct WorkerdConfig {
    directory: PathBuf,
    variables: Vec<(String, String)>,
    /// Service of the origin binding, if any.
    origin: Option<SocketAddr>,
    /// The entries of the KV namespace, by a server that speaks its protocol.
    policies: Option<SocketAddr>,
    /// Whether the script exports the class of the Durable Objects.
    has_objects: bool,
    /// A certificate of an authority that it trusts beside the public ones.
    trusted: Option<PathBuf>,
    /// The header that stands for what the platform says of a request.
    platform_header: Option<String>,
}

/// A running workerd; dropped, it is killed and its directory removed.
pub struct Workerd {
    process: Process,
    address: SocketAddr,
    _directory: TempDir,
}

/// How the Worker reaches the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A connection that a Durable Object holds.
    DurableObject,
    /// HTTP.
    Rest,
    /// A socket for each request.
    Tcp,
}

impl Transport {
    /// All of them.
    pub const ALL: [Transport; 3] = [Transport::DurableObject, Transport::Rest, Transport::Tcp];

    /// Its name in the settings.
    pub fn word(self) -> &'static str {
        match self {
            Transport::DurableObject => "durable_object",
            Transport::Rest => "rest",
            Transport::Tcp => "tcp",
        }
    }
}

impl WorkerdConfig {
    /// The built Worker without settings. Panics when it is missing or out of date.
    pub fn built() -> Self {
        Self::built_in(paths::built_worker(paths::worker()))
    }

    /// The same in another directory, not checked.
    pub fn built_in(directory: PathBuf) -> Self {
        let variables = vec![("LOG_SAMPLE".to_owned(), "1".to_owned())];
        Self {
            directory,
            variables,
            origin: None,
            policies: None,
            has_objects: true,
            trusted: None,
            platform_header: None,
        }
    }

    /// Another Worker: the `worker.js` in that directory, without Durable Objects.
    pub fn script(directory: PathBuf) -> Self {
        Self { has_objects: false, ..Self::built_in(directory) }
    }

    /// Sets a variable.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the policy file.
    pub fn policy(self, policy: &Value) -> Self {
        self.variable("POLICY", &policy.to_string())
    }

    /// Sets how the store is reached, and where; for [`Transport::Rest`] that is its HTTP front.
    pub fn store(self, transport: Transport, address: SocketAddr) -> Self {
        let scheme = if transport == Transport::Rest { "http" } else { "redis" };
        let config = self.variable("TRANSPORT", transport.word());
        config.variable("STORE_URL", &format!("{scheme}://{address}")).variable("STORE_TOKEN", "token")
    }

    /// Sets the longest wait for the store.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.variable("STORE_DEADLINE", &format!("{}ms", deadline.as_millis()))
    }

    /// Sends requests on to this address.
    pub fn origin(self, origin: SocketAddr) -> Self {
        self.variable("ORIGIN", &format!("http://{origin}"))
    }

    /// Sends requests on through a service binding.
    pub fn origin_service(mut self, origin: SocketAddr) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Takes the policy from a KV namespace, served at this address.
    pub fn policies(mut self, server: SocketAddr) -> Self {
        self.policies = Some(server);
        self
    }

    /// Trusts the certificates of another authority.
    pub fn trusts(mut self, authority: PathBuf) -> Self {
        self.trusted = Some(authority);
        self
    }

    /// Takes from this header, as JSON, what the platform says of a request (`request.cf`), and hides it from the Worker.
    pub fn platform_header(mut self, name: &str) -> Self {
        self.platform_header = Some(name.to_owned());
        self
    }

    /// The configuration as workerd reads it. Variables come from its environment, so that no text needs quoting.
    fn render(&self, address: SocketAddr) -> String {
        let mut services = String::new();
        let (mut bindings, objects) = match self.has_objects {
            true => (
                String::from("(name = \"STORE_CONNECTION\", durableObjectNamespace = \"StoreConnection\"),"),
                "(className = \"StoreConnection\", uniqueKey = \"store-connection\")",
            ),
            false => (String::new(), ""),
        };
        for (name, _) in &self.variables {
            let _ = write!(bindings, "(name = \"{name}\", fromEnvironment = \"{name}\"),");
        }
        let bound = [("ORIGIN_SERVICE", "service", self.origin), ("POLICIES", "kvNamespace", self.policies)];
        for (name, kind, server) in bound {
            if let Some(server) = server {
                let _ = write!(services, "(name = \"{name}\", external = (address = \"{server}\", http = ())),");
                let _ = write!(bindings, "(name = \"{name}\", {kind} = \"{name}\"),");
            }
        }
        let trusted = self.trusted.as_ref().map_or(String::new(), |_| format!("embed \"{AUTHORITY}\""));
        let header = self.platform_header.iter().map(|name| format!("cfBlobHeader = \"{name}\"")).collect::<String>();
        let modules: String = modules(&self.directory).iter().map(|file| module(file)).collect();
        format!(
            r#"using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (
      allow = ["public", "private", "local"],
      tlsOptions = (trustBrowserCas = true, trustedCertificates = [{trusted}]),
    )),
    {services}
  ],
  sockets = [(name = "main", address = "{address}", http = ({header}), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [{modules}],
  compatibilityDate = "{COMPATIBILITY_DATE}",
  bindings = [{bindings}],
  durableObjectNamespaces = [{objects}],
  durableObjectStorage = (inMemory = void),
);
"#
        )
    }
}

/// The files of the build, the script that the platform calls first.
fn modules(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    collect(directory, directory, &mut found);
    found.sort_by_key(|file| (file != "worker.js", file.clone()));
    found
}

fn collect(root: &Path, directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
        match entry.extension().and_then(|extension| extension.to_str()) {
            _ if entry.is_dir() => collect(root, &entry, found),
            Some("js" | "wasm") => {
                found.extend(entry.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_owned))
            }
            _ => {}
        }
    }
}

fn module(file: &str) -> String {
    let kind = if file.ends_with(".wasm") { "wasm" } else { "esModule" };
    format!("(name = \"{file}\", {kind} = embed \"{file}\"),")
}

impl Workerd {
    /// Starts workerd and waits until it listens. The error holds the end of its log.
    pub fn start(config: &WorkerdConfig) -> Result<Self> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match launch(config, ports::free()) {
                Ok(workerd) => return Ok(workerd),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no attempt was made")?)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client with connections of its own.
    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// The process, for its pid, signals, log, memory and processor time.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process.exited().is_some()
    }
}

impl Drop for Workerd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of workerd's log:\n{}", self.process.log_tail());
        }
    }
}

fn launch(config: &WorkerdConfig, address: SocketAddr) -> Result<Workerd> {
    let directory = tempfile::tempdir()?;
    for file in modules(&config.directory) {
        let copy = directory.path().join(&file);
        std::fs::create_dir_all(copy.parent().context("a file has a directory")?)?;
        std::fs::copy(config.directory.join(&file), copy)?;
    }
    if let Some(authority) = &config.trusted {
        std::fs::copy(authority, directory.path().join(AUTHORITY))?;
    }
    let file = directory.path().join("config.capnp");
    std::fs::write(&file, config.render(address))?;
    let mut command = Command::new(tools::workerd()?);
    command.arg("serve").arg(&file).envs(config.variables.iter().map(|(name, value)| (name, value)));
    let mut process = Process::spawn(command, &directory.path().join("workerd.log"))?;
    wait_until_it_listens(&mut process, address, &file)?;
    Ok(Workerd { process, address, _directory: directory })
}

fn wait_until_it_listens(process: &mut Process, address: SocketAddr, config: &Path) -> Result<()> {
    let ready = poll::until("workerd listens", START_DEADLINE, || match process.exited() {
        Some(status) => Some(Err(status)),
        None => TcpStream::connect(address).ok().map(|_| Ok(())),
    });
    match ready {
        Ok(Ok(())) => Ok(()),
        Ok(Err(status)) => bail!("workerd with {} ended with {status}:\n{}", config.display(), process.log_tail()),
        Err(error) => Err(error.context(process.log_tail())),
    }
}
