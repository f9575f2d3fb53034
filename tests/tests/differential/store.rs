//! A real redis-server on a free loopback port, without persistence, gone when dropped.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::wire::Words;

pub struct Store {
    server: Child,
    connection: redis::Connection,
}

impl Store {
    pub fn start() -> Self {
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free loopback port").port();
        let server = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed and on PATH");
        let mut server = Some(server);
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("an address");
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match client.get_connection() {
                Ok(connection) => {
                    return Self { server: server.take().expect("started once"), connection };
                }
                Err(error) if Instant::now() > deadline => {
                    stop(&mut server.take().expect("started once"));
                    panic!("redis-server does not answer: {error}");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Store {
    /// Runs commands in one round trip. An error of one is its reply.
    pub fn run(&mut self, commands: &[Words]) -> Vec<redis::Value> {
        let mut pipe = redis::pipe();
        pipe.ignore_errors();
        for command in commands {
            let [name, arguments @ ..] = command.as_slice() else { panic!("an empty command") };
            let name = std::str::from_utf8(name).expect("a command's name");
            pipe.cmd(name).arg(arguments);
        }
        pipe.query(&mut self.connection).unwrap_or_else(|error| panic!("the store says {error}"))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        stop(&mut self.server);
    }
}

fn stop(server: &mut Child) {
    let _already_gone = server.kill();
    let _already_gone = server.wait();
}
