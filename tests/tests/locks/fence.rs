//! The token at the resource: an upstream with a real database refuses the late write of a holder that stood still, by
//! the very statements of docs/AT-MOST-ONCE.md.

use crate::world::{SOON, config, lock, until_status};
use lockkeeper_tests::http::{Client, Request, Response};
use lockkeeper_tests::process::{Process, Signal};
use lockkeeper_tests::{Envoy, Redis, paths, poll};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

/// The upstream, with the directory of its output.
struct Accounts {
    client: Client,
    address: SocketAddr,
    _process: Process,
    _directory: tempfile::TempDir,
}

impl Accounts {
    fn start() -> Accounts {
        let directory = tempfile::tempdir().expect("a directory");
        let script = paths::workspace().join("tests/tests/locks/accounts.py");
        let mut command = Command::new("python3");
        command.arg("-u").arg(script).args(statements());
        let mut process = Process::spawn(command, &directory.path().join("log")).expect("python3 starts");
        let port = poll::until("the upstream listens", SOON, || {
            assert!(process.exited().is_none(), "{}", process.log());
            process.log().lines().find_map(|line| line.strip_prefix("port ")?.parse().ok())
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.expect("a port")));
        Accounts { client: Client::new(address), address, _process: process, _directory: directory }
    }

    /// How many writes stalled, the row's balance, and the lines of the rows.
    fn state(&self) -> String {
        self.client.get("/state").body
    }
}

/// The four statements of the page, in their order.
fn statements() -> Vec<String> {
    let page = std::fs::read_to_string(paths::workspace().join("docs/AT-MOST-ONCE.md")).expect("the page");
    let blocks = page.split("```sql\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let statements: Vec<String> = blocks.map(|(statement, _)| statement.to_owned()).collect();
    assert_eq!(statements.len(), 4, "{statements:?}");
    statements
}

fn write(path: &str, amount: u64) -> Request {
    Request::new("PUT", path).header("x-amount", amount.to_string())
}

fn send(gateway: &Envoy, request: &Request) -> Response {
    gateway.client().send(request).expect("an answer")
}

#[test]
fn lck_03_a_database_refuses_the_late_write_of_a_holder_that_stood_still() {
    let redis = Redis::start().expect("Redis starts");
    let accounts = Accounts::start();
    let config = config(&lock(json!({ "lease": "1s" })), redis.address(), accounts.address);
    let gateways = [(); 2].map(|()| Envoy::start(&config).expect("Envoy starts"));
    for (number, path) in ["/row", "/rows"].into_iter().enumerate() {
        std::thread::scope(|scope| {
            let stalled = scope.spawn(|| send(&gateways[0], &write(path, 10).header("x-stall", "1")));
            let begins = format!("{} ", number + 1);
            poll::until("the write stalls", SOON, || accounts.state().starts_with(&begins).then_some(()))
                .expect("stalled");
            gateways[0].process().signal(Signal::Stop);
            let next = until_status(200, || send(&gateways[1], &write(path, 5)));
            assert_eq!(next.status, 200, "the next holder writes once the lease has lapsed");
            accounts.client.get("/go");
            gateways[0].process().signal(Signal::Continue);
            assert_eq!(stalled.join().expect("an answer").status, 409, "the late write is refused");
        });
        // Whoever comes later has a higher token, and writes.
        until_status(200, || send(&gateways[0], &write(path, 1)));
    }
    assert_eq!(accounts.state(), "2 6 5,1");
}
