//! A store that misbehaves on order: it parses RESP commands and answers each by a script that tests can change at any time.

use crate::tcp::{Connections, TcpServer};
use anyhow::Result;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::time::{Duration, Instant};

/// What the store does about one command, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Closes the connection.
    Close,
    /// Sends bytes.
    Send(Vec<u8>),
    /// Goes on this long after the command arrived: commands that arrive together wait together.
    Wait(Duration),
}

/// A command as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its running number over all connections, from 0.
    pub number: u64,
    /// Its name and arguments.
    pub arguments: Vec<Vec<u8>>,
}

/// What to do about each command.
pub type Behaviour = Arc<dyn Fn(&Command) -> Vec<Act> + Send + Sync>;

/// A running stub; dropped, it closes all connections.
pub struct StubStore {
    server: TcpServer,
    shared: Arc<Shared>,
}

struct Shared {
    behaviour: RwLock<Behaviour>,
    commands: AtomicU64,
}

impl StubStore {
    /// Starts one on a free loopback port.
    pub fn start(behaviour: Behaviour) -> Result<Self> {
        let shared = Arc::new(Shared { behaviour: RwLock::new(behaviour), commands: AtomicU64::new(0) });
        let serving = Arc::clone(&shared);
        let server = TcpServer::start(move |stream, _: &Connections| serve(stream, &serving))?;
        Ok(Self { server, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Answers by another script from the next command on.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.shared.behaviour.write().expect("no holder panics") = behaviour;
    }

    /// How many commands have arrived.
    pub fn commands(&self) -> u64 {
        self.shared.commands.load(Ordering::Relaxed)
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> u64 {
        self.server.accepted()
    }

    /// Closes all connections; new ones are accepted.
    pub fn close_connections(&self) {
        self.server.close_connections();
    }
}

impl Command {
    /// Whether it runs a script.
    pub fn is_script(&self) -> bool {
        self.key_count().is_some()
    }

    /// The first argument of a script after its keys: the tag that the reply echoes.
    pub fn tag(&self) -> &[u8] {
        let tag = self.key_count().and_then(|keys| self.arguments.get(3 + keys));
        tag.map_or(b"", Vec::as_slice)
    }

    fn key_count(&self) -> Option<usize> {
        let name = self.arguments.first()?.to_ascii_uppercase();
        let runs_a_script = name == b"EVAL" || name == b"EVALSHA";
        std::str::from_utf8(self.arguments.get(2)?).ok()?.parse().ok().filter(|_| runs_a_script)
    }

    /// The reply that admits: the tag, then for each key admitted, 9 remaining, nothing to wait for. `+OK` to what is not a script.
    pub fn admitting_reply(&self) -> Vec<u8> {
        self.reply([1, 9, 0, 0])
    }

    /// The reply that denies for one second.
    pub fn denying_reply(&self) -> Vec<u8> {
        self.reply([0, 0, 1_000_000, 1_000_000])
    }

    fn reply(&self, verdict: [u64; 4]) -> Vec<u8> {
        let Some(keys) = self.key_count() else { return b"+OK\r\n".to_vec() };
        let mut reply = format!("*{}\r\n${}\r\n", 1 + keys * verdict.len(), self.tag().len()).into_bytes();
        reply.extend_from_slice(self.tag());
        reply.extend_from_slice(b"\r\n");
        for number in verdict.iter().cycle().take(keys * verdict.len()) {
            reply.extend_from_slice(format!(":{number}\r\n").as_bytes());
        }
        reply
    }
}

/// Admits everything.
pub fn admit() -> Behaviour {
    Arc::new(|command| vec![Act::Send(command.admitting_reply())])
}

/// Denies everything for a second.
pub fn deny() -> Behaviour {
    Arc::new(|command| vec![Act::Send(command.denying_reply())])
}

/// Admits after a delay.
pub fn admit_after(delay: Duration) -> Behaviour {
    Arc::new(move |command| vec![Act::Wait(delay), Act::Send(command.admitting_reply())])
}

/// Never answers.
pub fn silent() -> Behaviour {
    Arc::new(|_| Vec::new())
}

/// Answers with these bytes, whatever the command.
pub fn raw(bytes: &[u8]) -> Behaviour {
    let bytes = bytes.to_vec();
    Arc::new(move |_| vec![Act::Send(bytes.clone())])
}

/// Answers with an error reply, e.g. `READONLY You can't write against a read only replica.`
pub fn error(text: &str) -> Behaviour {
    raw(format!("-{text}\r\n").as_bytes())
}

/// Sends the first `bytes` of the admitting reply, then closes the connection.
pub fn close_after(bytes: usize) -> Behaviour {
    Arc::new(move |command| {
        let reply = command.admitting_reply();
        vec![Act::Send(reply[..bytes.min(reply.len())].to_vec()), Act::Close]
    })
}

/// Sends the admitting reply in two pieces, cut after `bytes`, with a pause between them.
pub fn cut_after(bytes: usize, pause: Duration) -> Behaviour {
    Arc::new(move |command| {
        let reply = command.admitting_reply();
        let (head, tail) = reply.split_at(bytes.min(reply.len()));
        vec![Act::Send(head.to_vec()), Act::Wait(pause), Act::Send(tail.to_vec())]
    })
}

/// Reads commands here and answers them in a second thread, so that waiting for one does not delay the arrival of the next.
fn serve(stream: &TcpStream, shared: &Shared) {
    let (orders, inbox) = mpsc::channel::<(Instant, Vec<Act>)>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (arrived, acts) in inbox {
                if acts.into_iter().try_for_each(|act| perform(act, arrived, stream)).is_err() {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
            }
        });
        let (mut reader, mut received, mut buffer) = (stream, Vec::new(), [0; 16 * 1024]);
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
            let arrived = Instant::now();
            while let Some(arguments) = take_command(&mut received) {
                let number = shared.commands.fetch_add(1, Ordering::Relaxed);
                let behaviour = Arc::clone(&shared.behaviour.read().expect("no holder panics"));
                let _ = orders.send((arrived, behaviour(&Command { number, arguments })));
            }
        }
        drop(orders);
    });
}

fn perform(act: Act, arrived: Instant, mut stream: &TcpStream) -> std::io::Result<()> {
    match act {
        Act::Close => Err(std::io::ErrorKind::ConnectionAborted.into()),
        Act::Send(bytes) => stream.write_all(&bytes),
        Act::Wait(time) => {
            std::thread::sleep((arrived + time).saturating_duration_since(Instant::now()));
            Ok(())
        }
    }
}

/// Takes a whole command off the front, if there is one. Panics on what is no RESP command: the filter must not send it.
fn take_command(received: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut rest = received.as_slice();
    let count = take_length(&mut rest, b'*')?;
    let mut arguments = Vec::with_capacity(count);
    for _ in 0..count {
        let length = take_length(&mut rest, b'$')?;
        if rest.len() < length + 2 {
            return None;
        }
        arguments.push(rest[..length].to_vec());
        rest = &rest[length + 2..];
    }
    let used = received.len() - rest.len();
    received.drain(..used);
    Some(arguments)
}

fn take_length(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = &rest[..end];
    let digits = line.strip_prefix(&[kind]).and_then(|line| line.strip_suffix(b"\r"));
    let length = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    *rest = &rest[end + 1..];
    Some(
        length.unwrap_or_else(|| {
            panic!("the stub store got {:?}, which is no RESP command", String::from_utf8_lossy(line))
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVALSHA: &[u8] = b"*5\r\n$7\r\nEVALSHA\r\n$2\r\nab\r\n$1\r\n1\r\n$1\r\nk\r\n$2\r\nt7\r\n";
    const ADMITTED: &[u8] = b"*5\r\n$2\r\nt7\r\n:1\r\n:9\r\n:0\r\n:0\r\n";

    fn exchange(behaviour: Behaviour, sent: &[&[u8]], expected: usize) -> Vec<u8> {
        let stub = StubStore::start(behaviour).expect("a loopback port is free");
        let mut stream = TcpStream::connect(stub.address()).expect("the stub accepts");
        for piece in sent {
            stream.write_all(piece).expect("the stub reads");
        }
        let mut reply = vec![0; expected];
        stream.read_exact(&mut reply).expect("the stub answers");
        reply
    }

    #[test]
    fn a_command_in_any_two_pieces_is_answered_with_its_tag() {
        for cut in 0..=EVALSHA.len() {
            let (head, tail) = EVALSHA.split_at(cut);
            assert_eq!(exchange(admit(), &[head, tail], ADMITTED.len()), ADMITTED);
        }
    }

    #[test]
    fn commands_that_arrive_together_wait_together() {
        let (start, delay) = (Instant::now(), Duration::from_millis(50));
        let reply = exchange(admit_after(delay), &[&EVALSHA.repeat(20)], ADMITTED.len() * 20);
        assert_eq!(reply, ADMITTED.repeat(20));
        assert!(start.elapsed() >= delay && start.elapsed() < delay * 10, "{:?}", start.elapsed());
    }

    #[test]
    fn it_closes_in_the_middle_of_a_reply() {
        let stub = StubStore::start(close_after(4)).expect("a loopback port is free");
        let mut stream = TcpStream::connect(stub.address()).expect("the stub accepts");
        stream.write_all(EVALSHA).expect("the stub reads");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).expect("the stub closes in order");
        assert_eq!(reply, ADMITTED[..4]);
    }
}
