//! A child process that cannot outlive its owner, whatever ends the owner.

use crate::poll;
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, mpsc};
use std::time::Duration;

/// How long a process may take to stand still.
const STOP_DEADLINE: Duration = Duration::from_secs(2);
/// How much of a log an error shows.
const TAIL_LINES: usize = 30;

/// A running child; dropped, it is killed by its pid and waited for.
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// A signal the harness sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGCONT.
    Continue,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGTERM.
    Terminate,
}

impl Process {
    /// Starts `command` with both outputs in the file `log`.
    pub fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
        // In a group of its own: Ctrl-C at the terminal reaches the owner alone, which ends its children in order.
        command.process_group(0);
        die_with_the_owner(&mut command);
        let program = command.get_program().to_owned();
        let child = spawn_on_the_lasting_thread(command).with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, when it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends it a signal. After [`Signal::Stop`] all its threads stand still.
    pub fn signal(&self, signal: Signal) {
        let number = match signal {
            Signal::Continue => libc::SIGCONT,
            Signal::Kill => libc::SIGKILL,
            Signal::Stop => libc::SIGSTOP,
            Signal::Terminate => libc::SIGTERM,
        };
        let pid = libc::pid_t::try_from(self.pid()).expect("a pid fits pid_t");
        // SAFETY: a plain system call; the pid is our child's, not yet waited for, so it names no other process.
        unsafe { libc::kill(pid, number) };
        if let Signal::Stop = signal {
            let _ = poll::until("all threads stand still", STOP_DEADLINE, || self.stands_still().then_some(()));
        }
    }

    /// A signal is taken up by one thread after the other: until then some go on.
    fn stands_still(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid())) else { return true };
        let is_stopped = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with(['T', 't']) || rest.is_empty())
        };
        threads.flatten().all(is_stopped)
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        if self.exited().is_none() {
            self.signal(Signal::Kill);
            let _ = self.child.wait();
        }
    }

    /// All it has written so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The last lines it has written.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Its resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a running process has a status");
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a running process has a resident size");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("VmRSS is a number of kB");
        kib * 1024
    }

    /// The processor time it has used, in its own code and in the kernel; in steps of 10 ms.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("a running process has a stat");
        // The name, in parentheses, may hold spaces: fields are counted after it. Numbers 14 and 15 of proc_pid_stat(5).
        let (_, fields) = stat.rsplit_once(") ").expect("a stat has a name");
        let ticks: u64 =
            fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("a number of ticks")).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn die_with_the_owner(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe and touches nothing of the parent.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

type Order = (Command, mpsc::Sender<std::io::Result<Child>>);

/// The death signal fires when the *thread* that spawned ends, and test threads end early: one thread that lasts spawns for all.
fn spawn_on_the_lasting_thread(command: Command) -> std::io::Result<Child> {
    static ORDERS: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, child) = mpsc::channel();
    ORDERS.lock().expect("no spawn panics").send((command, answer)).expect("the spawning thread lasts");
    child.recv().expect("the spawning thread answers")
}
