//! A real Redis behind a store that fails on order, script by script: a command is refused, or carried out and its reply lost, late or
//! garbled. What is not ordered to fail is Redis' own.

use crate::StubStore;
use crate::stub_store::{Act, Command};
use anyhow::Result;
use lockkeeper_core::script::Script;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What goes wrong with the commands of one script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is carried out, and this error is the reply.
    Refused(String),
    /// Nothing is carried out, and these bytes are the reply.
    Garbled(Vec<u8>),
    /// Nothing is carried out, and nothing is replied.
    Ignored,
    /// The command is carried out, and never replied to.
    Unanswered,
    /// The command is carried out, and the connection closes without a reply.
    ReplyLost,
    /// The command is carried out at once, and replied to after this long.
    Late(Duration),
    /// The command is carried out, and replied to, after this long.
    Slow(Duration),
}

/// The store; dropped, it closes all connections.
pub struct FaultyStore {
    stub: StubStore,
    shared: Arc<Shared>,
}

struct Shared {
    redis: SocketAddr,
    faults: Mutex<HashMap<&'static str, (Fault, u64)>>,
    counts: Mutex<HashMap<String, u64>>,
}

impl FaultyStore {
    /// A store that answers as `redis` does.
    pub fn start(redis: SocketAddr) -> Result<Self> {
        let shared = Arc::new(Shared { redis, faults: Mutex::default(), counts: Mutex::default() });
        let behaving = Arc::clone(&shared);
        let stub = StubStore::start(Arc::new(move |command| behaving.perform(command)))?;
        Ok(Self { stub, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.stub.address()
    }

    /// Lets the commands of a script fail from now on.
    pub fn fail(&self, script: Script, fault: Fault) {
        self.fail_times(script, fault, u64::MAX);
    }

    /// Lets the next command of a script fail; one that Redis does not know by its SHA-1 does not count.
    pub fn fail_once(&self, script: Script, fault: Fault) {
        self.fail_times(script, fault, 1);
    }

    fn fail_times(&self, script: Script, fault: Fault, times: u64) {
        self.shared.faults.lock().expect("no holder panics").insert(script.sha1, (fault, times));
    }

    /// Lets nothing fail any more.
    pub fn heal(&self) {
        self.shared.faults.lock().expect("no holder panics").clear();
    }

    /// How often a script was asked for, by its SHA-1 or its text.
    pub fn count(&self, script: Script) -> u64 {
        let counts = self.shared.counts.lock().expect("no holder panics");
        [script.sha1, &script.text()].iter().filter_map(|name| counts.get(*name)).sum()
    }

    /// Counts from nothing again.
    pub fn forget_counts(&self) {
        self.shared.counts.lock().expect("no holder panics").clear();
    }

    /// Closes all connections; new ones are accepted.
    pub fn cut(&self) {
        self.stub.close_connections();
    }
}

impl Shared {
    fn perform(&self, command: &Command) -> Vec<Act> {
        let script = command.arguments.get(1).filter(|_| command.is_script());
        let script = script.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
        *self.counts.lock().expect("no holder panics").entry(script.clone()).or_default() += 1;
        // The text of a script is asked for only after its SHA-1.
        let sha1 = text_of(&script).map_or(script, str::to_owned);
        let fault = self.faults.lock().expect("no holder panics").get(sha1.as_str()).map(|(fault, _)| fault.clone());
        let acts = self.perform_with(command, fault.as_ref());
        let is_unknown = matches!(acts.as_slice(), [Act::Send(reply)] if reply.starts_with(b"-NOSCRIPT"));
        let mut faults = self.faults.lock().expect("no holder panics");
        if let Some((_, times)) = faults.get_mut(sha1.as_str()).filter(|_| !is_unknown) {
            *times = times.saturating_sub(1);
        }
        faults.retain(|_, (_, times)| *times > 0);
        acts
    }

    fn perform_with(&self, command: &Command, fault: Option<&Fault>) -> Vec<Act> {
        match fault {
            Some(Fault::Refused(error)) => return vec![Act::Send(format!("-{error}\r\n").into_bytes())],
            Some(Fault::Garbled(bytes)) => return vec![Act::Send(bytes.clone())],
            Some(Fault::Ignored) => return Vec::new(),
            Some(Fault::Slow(time)) => std::thread::sleep(*time),
            _ => {}
        }
        let reply = self.reply(command);
        match fault {
            // Nothing was carried out: the command comes again, with its text.
            _ if reply.starts_with(b"-NOSCRIPT") => vec![Act::Send(reply)],
            Some(Fault::Unanswered) => Vec::new(),
            Some(Fault::ReplyLost) => vec![Act::Close],
            Some(Fault::Late(time)) => vec![Act::Wait(*time), Act::Send(reply)],
            _ => vec![Act::Send(reply)],
        }
    }

    /// What Redis says; the error of a store that cannot be reached, when it does not.
    fn reply(&self, command: &Command) -> Vec<u8> {
        let reply = TcpStream::connect(self.redis).and_then(|stream| exchange(&stream, &command.arguments));
        reply.unwrap_or_else(|_| b"-CLUSTERDOWN no store\r\n".to_vec())
    }
}

fn text_of(text: &str) -> Option<&'static str> {
    use lockkeeper_core::script::{ADMIT, COMPLETE, DECIDE, PROBE, RELEASE, RENEW};
    let known = [ADMIT, COMPLETE, DECIDE, PROBE, RELEASE, RENEW];
    known.iter().find(|script| script.text() == text).map(|script| script.sha1)
}

fn exchange(mut stream: &TcpStream, arguments: &[Vec<u8>]) -> std::io::Result<Vec<u8>> {
    let mut command = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        command.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        command.extend_from_slice(argument);
        command.extend_from_slice(b"\r\n");
    }
    stream.write_all(&command)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut reply, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    while reply_end(&reply).is_none() {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => reply.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(reply)
}

/// Where the reply at the front ends, when it is whole.
fn reply_end(bytes: &[u8]) -> Option<usize> {
    let line_end = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line_end - 2]).ok()?.parse::<usize>().ok();
    match bytes[0] {
        b'$' => number().map_or(Some(line_end), |length| Some(line_end + length + 2)).filter(|end| bytes.len() >= *end),
        b'*' => (0..number().unwrap_or(0)).try_fold(line_end, |at, _| Some(at + reply_end(bytes.get(at..)?)?)),
        _ => Some(line_end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_its_last_element_does() {
        let whole = b"*3\r\n$2\r\nab\r\n:1\r\n*1\r\n$-1\r\n";
        for cut in 0..whole.len() {
            assert_eq!(reply_end(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(reply_end(whole), Some(whole.len()));
        assert_eq!(reply_end(b"-ERR no\r\n+OK\r\n"), Some(9));
    }
}
