//! Many answers in one callback: Envoy carries them out one inside the other, so that an unbounded number would
//! overflow the stack of the filter's VM and take every paused request with it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lockkeeper_tests::{Envoy, EnvoyConfig, Redis, poll};
use serde_json::json;

/// Each is a socket here and one in Envoy; the usual limit of open files is 1,024 for tests that raise nothing.
const CLIENTS: usize = 1_500;

#[test]
fn many_denials_at_once_leave_the_vm_alive() {
    raise_open_files();
    let redis = Redis::start().unwrap();
    let policy = json!({ "version": 1, "default_policy": "one", "policies": { "one": { "limits": [
        { "name": "all", "algorithm": "fixed_window", "limit": 1, "window": "1h", "key": ["constant:all"] } ] } } });
    let config = EnvoyConfig::shipped()
        .policy(policy)
        .host(json!({ "deadline": "10s", "coalesce_above": 1 }))
        .redis(redis.address())
        .direct_response()
        .without_access_log()
        .concurrency(1);
    let envoy = Envoy::start(&config).unwrap();
    assert_eq!(envoy.client().get("/").status, 200);

    let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(envoy.address())).collect();
    // All replies come together.
    redis.pause();
    clients.iter().for_each(|mut client| client.write_all(b"GET / HTTP/1.1\r\nhost: example.com\r\n\r\n").unwrap());
    let all = CLIENTS as u64 + 1;
    let received = || (envoy.admin().stat("http.ingress.downstream_rq_total") >= all).then_some(());
    poll::until("Envoy receives all requests", Duration::from_secs(20), received).unwrap();
    redis.resume();
    let resumed = Instant::now();
    let statuses: Vec<String> = clients.iter().map(status).collect();
    println!("{CLIENTS} answers {} ms after Redis went on", resumed.elapsed().as_millis());

    let denied = statuses.iter().filter(|status| *status == "429").count();
    assert_eq!(denied, CLIENTS, "the others: {:?}", statuses.iter().find(|status| *status != "429"));
    assert_eq!(envoy.client().get("/").status, 429);
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client
}

fn status(mut client: &TcpStream) -> String {
    let mut head = [0; 12];
    client
        .read_exact(&mut head)
        .map_or_else(|error| error.to_string(), |()| String::from_utf8_lossy(&head[9..]).into_owned())
}

fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get the address of a live value of their type.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}
