//! Clients that go away while the store is asked, and replies that come late or to the wrong place: nobody else notices.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::load::{self, Sample, Until};
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::stub_store::{self, Act, Behaviour, Command, StubStore};
use lockkeeper_tests::{Envoy, EnvoyConfig, poll};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RESETS: usize = 1_000;
/// A deadline that no decision meets on a busy machine: what is asked here is whose answer each one gets.
const PATIENT: Duration = Duration::from_secs(5);
const STORE_DELAY: Duration = Duration::from_millis(30);

/// The two users of each test; the stub denies one of them, so that an answer to the wrong request shows.
const ADMITTED: &str = "admitted";
const DENIED: &str = "denied";

/// A stub that tells the two users apart, and a gateway that uses it.
fn start(deadline: Duration) -> (StubStore, Envoy, Arc<Vec<u8>>) {
    let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
    let limit = json!({ "name": "all", "algorithm": "fixed_window", "limit": 1_000_000, "window": "1d", "key": ["header:x-user"] });
    let config = EnvoyConfig::shipped()
        .deadline(deadline)
        .concurrency(2)
        .redis(stub.address())
        .direct_response()
        .without_access_log();
    let config = config.host(json!({ "degraded_header": "x-decided-by" })).policy(json!({
        "version": 1,
        "policies": { "api": { "limits": [limit], "limits_on_store_failure": "allow" } },
        "default_policy": "api"
    }));
    let envoy = Envoy::start(&config).expect("Envoy starts");
    let denied = Arc::new(learn_key(&stub, &envoy));
    (stub, envoy, denied)
}

/// The store key of the denied user.
fn learn_key(stub: &StubStore, envoy: &Envoy) -> Vec<u8> {
    let seen = Arc::new(Mutex::new(None));
    let recorder = Arc::clone(&seen);
    stub.behave(Arc::new(move |command| {
        *recorder.lock().expect("no holder panics") = Some(key(command).to_vec());
        vec![Act::Send(command.admitting_reply())]
    }));
    let client = envoy.client();
    poll::until("the store is asked", Duration::from_secs(5), || {
        client.send(&request(DENIED)).expect("an answer");
        seen.lock().expect("no holder panics").take()
    })
    .expect("a command with a key")
}

fn key(command: &Command) -> &[u8] {
    command.arguments.get(3).map_or(b"", Vec::as_slice)
}

fn reply(command: &Command, denied: &[u8]) -> Vec<u8> {
    if key(command) == denied { command.denying_reply() } else { command.admitting_reply() }
}

fn reply_after(delay: Duration, denied: &Arc<Vec<u8>>) -> Behaviour {
    let denied = Arc::clone(denied);
    Arc::new(move |command| vec![Act::Wait(delay), Act::Send(reply(command, &denied))])
}

fn user(number: usize) -> &'static str {
    if number.is_multiple_of(2) { ADMITTED } else { DENIED }
}

fn request(user: &str) -> Request {
    Request::get("/").header("x-user", user)
}

/// Spread over twice the store's delay: before, at and after the reply.
fn patience(number: usize) -> Duration {
    Duration::from_millis(number as u64 * 7 % (2 * STORE_DELAY.as_millis() as u64))
}

/// Requests of one user over 4 connections, none of which goes away.
fn patient(server: SocketAddr, user: &str, until: Until<'_>) -> Vec<Sample> {
    load::run(server, 4, until, |_| request(user))
}

fn statuses(samples: &[Sample], status: u16) -> [usize; 2] {
    [load::count(samples, status), samples.len() - load::count(samples, status)]
}

/// Runs `impatient` beside patient clients and checks that these get their own answers and that nothing is left behind.
fn assert_unnoticed(impatient: impl FnOnce(SocketAddr) + Send) {
    let (stub, envoy, denied) = start(PATIENT);
    stub.behave(reply_after(STORE_DELAY, &denied));
    let server = envoy.address();
    let [admitted, refused] = std::thread::scope(|scope| {
        scope.spawn(move || impatient(server));
        [ADMITTED, DENIED]
            .map(|user| scope.spawn(move || patient(server, user, Until::Requests(500))))
            .map(|load| load.join().expect("the load does not panic"))
    });
    assert_eq!(statuses(&admitted, 200), [500, 0], "200 and other answers to the admitted user");
    assert_eq!(statuses(&refused, 429), [500, 0], "429 and other answers to the denied user");
    assert_drained(&stub, &envoy);
    let longest = admitted.iter().chain(&refused).map(|sample| sample.elapsed).max();
    println!("the longest of 1,000 patient requests took {longest:?}; the store was asked {} times", stub.commands());
}

/// Every command has been answered and counted, and no stream is left.
fn assert_drained(stub: &StubStore, envoy: &Envoy) {
    let calls = |stats: &std::collections::BTreeMap<String, u64>| -> u64 {
        let is_answer = |name: &str| name == "wasmcustom.lockkeeper_store_calls.outcome.answered";
        stats.iter().filter(|(name, _)| is_answer(name)).map(|(_, count)| count).sum()
    };
    let drained = || {
        let stats = envoy.admin().stats();
        let active = stats.get("http.ingress.downstream_rq_active").copied().unwrap_or(0);
        (calls(&stats) == stub.commands() && active == 0).then_some(())
    };
    let ended = poll::until("all replies settle their commands", Duration::from_secs(10), drained);
    let sent = stub.commands();
    ended.unwrap_or_else(|error| {
        let stats =
            envoy.admin().stats().into_iter().filter(|(name, count)| name.contains("lockkeeper_") && *count > 0);
        panic!("{error:#}: {sent} commands sent; {:?}", stats.collect::<Vec<_>>())
    });
    let event = |name: &str| envoy.admin().stat(&format!("wasmcustom.lockkeeper_pipe_events.event.{name}"));
    assert_eq!([event("desync"), event("closed")], [0, 0], "desyncs and closed pipes");
}

#[test]
fn connections_closed_while_the_store_is_asked() {
    assert_unnoticed(|server| {
        std::thread::scope(|scope| {
            for lane in 0..20 {
                scope.spawn(move || {
                    for number in (lane..RESETS).step_by(20) {
                        let mut connection = RawConnection::open(server).expect("Envoy accepts");
                        let bytes = format!("GET / HTTP/1.1\r\nhost: example.com\r\nx-user: {}\r\n\r\n", user(number));
                        connection.send(bytes.as_bytes()).expect("Envoy reads");
                        std::thread::sleep(patience(number));
                    }
                });
            }
        });
    });
}

#[test]
fn http2_streams_reset_while_the_store_is_asked() {
    assert_unnoticed(|server| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            for connection in 0..RESETS / 100 {
                reset_streams(server, connection * 100..(connection + 1) * 100).await.expect("HTTP/2 works");
            }
        });
    });
}

/// One connection with a stream for each number, all open at once, each reset when its patience ends.
async fn reset_streams(server: SocketAddr, numbers: std::ops::Range<usize>) -> Result<(), h2::Error> {
    let stream = tokio::net::TcpStream::connect(server).await.expect("Envoy accepts");
    let (mut client, connection) = h2::client::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let mut streams = Vec::new();
    for number in numbers {
        client = client.ready().await?;
        let request = ureq::http::Request::get("http://example.com/").header("x-user", user(number)).body(());
        let (response, mut stream) = client.send_request(request.expect("a request"), true)?;
        streams.push(tokio::spawn(async move {
            tokio::time::sleep(patience(number)).await;
            stream.send_reset(h2::Reason::CANCEL);
            drop(response);
        }));
    }
    for stream in streams {
        stream.await.expect("a stream does not panic");
    }
    drop(client);
    connection.await.expect("the connection does not panic")
}

#[test]
fn memory_stays_flat_over_thousands_of_resets() {
    let (stub, envoy, denied) = start(PATIENT);
    // Each client is gone before even a prompt reply comes.
    stub.behave(reply_after(Duration::ZERO, &denied));
    let reset = |count: usize| {
        for number in 0..count {
            let mut connection = RawConnection::open(envoy.address()).expect("Envoy accepts");
            let bytes = format!("GET / HTTP/1.1\r\nhost: example.com\r\nx-user: {}\r\n\r\n", user(number));
            connection.send(bytes.as_bytes()).expect("Envoy reads");
        }
        assert_drained(&stub, &envoy);
    };
    let allocated = || -> u64 {
        let memory: serde_json::Value = serde_json::from_str(&envoy.admin().get("/memory")).expect("JSON");
        memory["allocated"].as_str().and_then(|text| text.parse().ok()).expect("allocated bytes")
    };
    let after = |resets: usize| {
        reset(resets);
        allocated()
    };
    // Envoy's own caches come and go: the least of several rounds is what stays.
    let least = || (0..4).map(|_| after(3_000)).min().expect("some rounds");
    let before = least();
    let grown = least().saturating_sub(before);
    println!("Envoy allocated {} KiB more after another 12,000 resets", grown / 1024);
    assert!(grown < 1 << 19, "Envoy grew by {grown} bytes");
}

#[test]
fn replies_after_the_deadline_reach_nobody() {
    let (stub, envoy, denied) = start(Duration::from_millis(50));
    let late = || envoy.admin().stat("wasmcustom.lockkeeper_pipe_events.event.late_reply");
    for _ in 0..5 {
        stub.behave(reply_after(Duration::from_millis(90), &denied));
        let samples = load::run(envoy.address(), 40, Until::Requests(40), |number| request(user(number)));
        let degraded = |sample: &Sample| sample.answer.as_ref().is_ok_and(|one| one.header("x-decided-by").is_some());
        assert!(samples.iter().all(|sample| sample.status() == 200 && degraded(sample)), "{samples:?}");
        stub.behave(reply_after(Duration::ZERO, &denied));
        assert_own_answers(&envoy);
    }
    poll::until("late replies are counted", Duration::from_secs(5), || (late() > 0).then_some(())).expect("a count");
    println!("{} late replies", late());
}

/// Waits until the store decides for the denied user again; meanwhile and afterwards each user gets its own answers.
fn assert_own_answers(envoy: &Envoy) {
    let own = || {
        let samples = load::run(envoy.address(), 8, Until::Requests(80), |number| request(user(number)));
        let ok = samples.iter().all(|sample| sample.status() == 200 || sample.status() == 429);
        assert!(ok, "{samples:?}");
        (statuses(&samples, 429) == [40, 40]).then_some(())
    };
    poll::until("the store decides for both users", Duration::from_secs(10), own).expect("the store is used again");
    for (user, status) in [(ADMITTED, 200), (DENIED, 429)] {
        let samples = patient(envoy.address(), user, Until::Requests(80));
        assert_eq!(statuses(&samples, status), [80, 0], "{status} and other answers to the {user} user");
    }
}

/// Without the tag each later reply would reach the request before its own: half of them are another user's.
#[test]
fn lost_and_doubled_replies_reach_no_other_request() {
    let (stub, envoy, denied) = start(PATIENT);
    let unreliable: Behaviour = Arc::new(move |command| {
        let reply = Act::Send(reply(command, &denied));
        match command.number % 50 {
            20 => vec![],
            45 => vec![reply.clone(), reply],
            _ => vec![reply],
        }
    });
    stub.behave(unreliable);
    let server = envoy.address();
    let [admitted, refused] = std::thread::scope(|scope| {
        [ADMITTED, DENIED]
            .map(|user| scope.spawn(move || patient(server, user, Until::Elapsed(Duration::from_secs(4)))))
            .map(|load| load.join().expect("the load does not panic"))
    });
    let desyncs = || envoy.admin().stat("wasmcustom.lockkeeper_pipe_events.event.desync");
    poll::until("desyncs are counted", Duration::from_secs(5), || (desyncs() > 0).then_some(())).expect("a count");
    println!("{} and {} requests, {} desyncs", admitted.len(), refused.len(), desyncs());
    assert_eq!(statuses(&admitted, 200), [admitted.len(), 0], "200 and other answers to the admitted user");
    for sample in &refused {
        let response = sample.answer.as_ref().expect("an answer");
        let own = response.status == 429 || response.header("x-decided-by") == Some("failure_mode");
        assert!(own, "the denied user got {response:?}");
    }
    assert!(load::count(&refused, 429) > 100, "the store decided only {} times", load::count(&refused, 429));
}
