//! The scripts in a real Redis, as they are shipped but for where they read the time.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockkeeper_core::resp::{Decoder, Reply, encode_command};
use lockkeeper_core::script::{self, Script};
use lockkeeper_tests::Redis;

const SCRIPTS: [Script; 5] = [script::ADMIT, script::COMPLETE, script::DECIDE, script::RELEASE, script::RENEW];
/// Two arguments more than the script knows of: seconds come off first.
const VIRTUAL_TIME: &str = "local time = { table.remove(ARGV), table.remove(ARGV) }";
const HANGING: Duration = Duration::from_secs(30);

/// A change to the scripts that the comparison must notice.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// A text that one of the scripts has exactly once.
    pub from: &'static str,
    pub to: &'static str,
}

pub struct Store {
    stream: TcpStream,
    decoder: Decoder,
    /// The SHA-1 of each script in virtual time, by that of the one that is shipped.
    virtual_sha1: HashMap<Vec<u8>, Vec<u8>>,
    /// Started last, so that it ends last.
    _server: Redis,
}

impl Store {
    pub fn start() -> Store {
        let server = Redis::start().expect("Redis starts");
        let stream = TcpStream::connect(server.address()).expect("Redis accepts");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(HANGING)).expect("a timeout");
        let mut store = Store { stream, decoder: Decoder::default(), virtual_sha1: HashMap::new(), _server: server };
        store.load(None);
        store
    }

    /// Loads the scripts, changed if so wished.
    pub fn load(&mut self, mutation: Option<Mutation>) {
        let mut changed = 0;
        for script in SCRIPTS {
            let time = script.text.lines().find(|line| line.contains("'TIME'")).expect("the line that reads time");
            let mut text = script.text.replace(time, VIRTUAL_TIME);
            assert_eq!(text.matches(VIRTUAL_TIME).count(), 1);
            if let Some(Mutation { from, to }) = mutation {
                let count = text.matches(from).count();
                assert!(count <= 1, "{from:?} stands {count} times in one script");
                changed += count;
                text = text.replace(from, to);
            }
            let loaded = self.run(&[words(&["SCRIPT", "LOAD", &text])]).remove(0);
            let Reply::BulkString(sha1) = loaded else { panic!("{mutation:?} does not compile: {loaded:?}") };
            self.virtual_sha1.insert(script.sha1.into(), sha1);
        }
        assert_eq!(mutation.is_some(), changed > 0, "{mutation:?} changes nothing");
    }

    /// One script's command as it is written for the store, made to run at `now_us`.
    pub fn at(&self, command: &[u8], now_us: u64) -> Vec<Vec<u8>> {
        let mut decoder = Decoder::default();
        decoder.extend(command);
        let Ok(Some(Reply::Array(parts))) = decoder.next_reply() else { panic!("no command: {command:?}") };
        assert_eq!(decoder.next_reply(), Ok(None), "a second command");
        let mut words: Vec<Vec<u8>> = parts.into_iter().map(bulk).collect();
        assert_eq!(words[0], b"EVALSHA");
        words[1] = self.virtual_sha1[&words[1]].clone();
        words.extend([now_us % 1_000_000, now_us / 1_000_000].map(|part| part.to_string().into_bytes()));
        words
    }

    /// Runs commands in one round trip. An error of one is its reply.
    pub fn run(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        let mut out = Vec::new();
        for command in commands {
            encode_command(&command.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut out);
        }
        self.stream.write_all(&out).expect("Redis reads");
        commands.iter().map(|_| self.next_reply()).collect()
    }

    fn next_reply(&mut self) -> Reply {
        loop {
            if let Some(reply) = self.decoder.next_reply().expect("RESP") {
                return reply;
            }
            let mut bytes = [0; 16_384];
            let count = self.stream.read(&mut bytes).expect("Redis answers");
            assert!(count > 0, "Redis closed the connection");
            self.decoder.extend(&bytes[..count]);
        }
    }
}

pub fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// The bytes of a bulk string.
pub fn bulk(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::BulkString(bytes) => bytes,
        other => panic!("no bulk string: {other:?}"),
    }
}
