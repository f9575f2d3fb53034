//! What passes the Worker in real workerd and how: upgrades, streams, gRPC, bodies, header fields, the ways to the origin,
//! and a module that panics.

use lockkeeper_tests::http::Request;
use lockkeeper_tests::raw::RawConnection;
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{Redis, Upstream, Workerd, WorkerdConfig, paths, poll};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);

fn policy(limit: u32, mode: &str) -> Value {
    let limit = json!({ "name": "all", "algorithm": "fixed_window", "limit": limit, "window": "1d", "key": ["client_address"] });
    let policies = json!({ "p": { "limits": [limit], "limits_on_store_failure": mode } });
    json!({ "version": 1, "default_policy": "p", "policies": policies })
}

fn config(redis: &Redis, policy: &Value) -> WorkerdConfig {
    WorkerdConfig::built().store(Transport::Tcp, redis.address()).deadline(SOON).policy(policy)
}

fn start(config: &WorkerdConfig) -> Workerd {
    Workerd::start(config).expect("workerd starts")
}

/// A request of the client that the platform names.
fn from_client(path: &str) -> Request {
    Request::get(path).header("cf-connecting-ip", "192.0.2.7")
}

/// A server that takes connections one after the other, in a thread that ends with the test.
fn serve(mut serve: impl FnMut(BufReader<TcpStream>) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
    let address = listener.local_addr().expect("a bound listener has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            serve(BufReader::new(stream));
        }
    });
    address
}

/// The lines of a request's head, in lower case.
fn head(stream: &mut impl BufRead) -> Vec<String> {
    let lines = stream.lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    lines.map(|line| line.to_ascii_lowercase()).collect()
}

#[test]
fn pro_04_upgrades_count_at_the_handshake_and_frames_pass() {
    use base64::Engine;
    let redis = Redis::start().expect("Redis starts");
    let origin = serve(|mut stream| {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let key = lines
            .iter()
            .find_map(|line| line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key")));
        let Some((_, key)) = key else { return };
        let mut sha1 = sha1_smol::Sha1::from(key);
        sha1.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        let accepted = base64::engine::general_purpose::STANDARD.encode(sha1.digest().bytes());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accepted}\r\n\r\n"
        );
        let _ = stream.get_mut().write_all(answer.as_bytes());
        // A masked frame of five bytes comes and goes back unmasked.
        let mut frame = [0; 11];
        if stream.read_exact(&mut frame).is_ok() {
            let text: Vec<u8> = (0..5).map(|index| frame[6 + index] ^ frame[2 + index % 4]).collect();
            let _ = stream.get_mut().write_all(&[&[0x81, 5], text.as_slice()].concat());
        }
    });
    let workerd = start(&config(&redis, &policy(2, "deny")).origin(origin));
    let upgrade = "GET /ws HTTP/1.1\r\nhost: example.com\r\ncf-connecting-ip: 192.0.2.7\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA==\r\n\r\n";
    for _ in 0..2 {
        let mut stream = TcpStream::connect(workerd.address()).expect("workerd accepts");
        stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
        stream.write_all(upgrade.as_bytes()).expect("workerd reads");
        let mut reader = BufReader::new(stream.try_clone().expect("a socket can be cloned"));
        let mut status = String::new();
        reader.read_line(&mut status).expect("workerd answers");
        assert!(status.starts_with("HTTP/1.1 101"), "{status}");
        while status != "\r\n" {
            status.clear();
            reader.read_line(&mut status).expect("a head ends");
        }
        stream.write_all(&[0x81, 0x85, 0, 0, 0, 0, b'h', b'e', b'l', b'l', b'o']).expect("workerd reads");
        let mut echoed = [0; 7];
        reader.read_exact(&mut echoed).expect("the frame comes back");
        assert_eq!(&echoed[2..], b"hello");
    }
    let mut third = RawConnection::open(workerd.address()).expect("workerd accepts");
    third.send(upgrade.as_bytes()).expect("workerd reads");
    let denied = third.receive().expect("workerd answers");
    assert_eq!(denied.status, 429, "never 101 first: {denied:?}");
}

#[test]
fn a_stream_arrives_while_it_is_being_sent() {
    let redis = Redis::start().expect("Redis starts");
    let (go_on, wait) = mpsc::channel::<()>();
    let origin = serve(move |mut stream| {
        head(&mut stream);
        let stream = stream.get_mut();
        let start = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n7\r\nfirst\n\n\r\n";
        let _ = stream.write_all(start.as_bytes());
        let _ = wait.recv_timeout(SOON);
        let _ = stream.write_all(b"8\r\nsecond\n\n\r\n0\r\n\r\n");
    });
    let workerd = start(&config(&redis, &policy(2, "deny")).origin(origin));
    let stream = TcpStream::connect(workerd.address()).expect("workerd accepts");
    stream.set_read_timeout(Some(SOON)).expect("a timeout can be set");
    (&stream)
        .write_all(b"GET /events HTTP/1.1\r\nhost: example.com\r\ncf-connecting-ip: 192.0.2.7\r\n\r\n")
        .expect("workerd reads");
    let mut lines = BufReader::new(&stream).lines().map(|line| line.expect("the stream goes on before it ends"));
    assert!(lines.any(|line| line == "first"));
    go_on.send(()).expect("the origin waits");
    assert!(lines.any(|line| line == "second"));
}

#[test]
fn bodies_and_fields_pass_and_ours_stand_beside_the_origins() {
    let (redis, upstream) =
        (Redis::start().expect("Redis starts"), Upstream::start().expect("a loopback port is free"));
    let workerd = start(&config(&redis, &policy(10, "deny")).origin(upstream.address()));
    let body = "x".repeat(300_000);
    let request = Request::new("POST", "/a%2Fb//c?d=%20e").header("cf-connecting-ip", "192.0.2.7").header("x-own", "1");
    let answer = workerd.client().send(&request.body(body.clone())).expect("workerd answers");
    assert_eq!(answer.status, 200);
    let seen = &upstream.take()[0];
    assert_eq!((&seen["method"], &seen["path"]), (&json!("POST"), &json!("/a%2Fb//c?d=%20e")));
    assert_eq!((seen["body"].as_str(), &seen["headers"]["x-own"]), (Some(body.as_str()), &json!("1")));
    let redirect = workerd.client().send(&from_client("/").header("x-echo-status", "302")).expect("workerd answers");
    assert_eq!(redirect.status, 302, "redirects are the client's");
    assert!(redirect.header("ratelimit-policy").is_some());
}

#[test]
fn each_client_address_has_its_own_allowance_and_a_grpc_client_its_own_answer() {
    let (redis, upstream) =
        (Redis::start().expect("Redis starts"), Upstream::start().expect("a loopback port is free"));
    let workerd = start(&config(&redis, &policy(1, "deny")).origin(upstream.address()));
    let client = workerd.client();
    let send = |request: &Request| client.send(request).expect("workerd answers");
    assert_eq!(send(&from_client("/")).status, 200);
    // What a client can write itself changes nothing.
    assert_eq!(send(&from_client("/").header("x-forwarded-for", "198.51.100.1")).status, 429);
    assert_eq!(send(&Request::get("/").header("cf-connecting-ip", "192.0.2.8")).status, 200);
    let grpc = Request::new("POST", "/package.Service/Method").header("content-type", "application/grpc");
    let denied = send(&grpc.header("cf-connecting-ip", "192.0.2.7"));
    assert_eq!((denied.status, denied.header("grpc-status")), (200, Some("8")), "{denied:?}");
    assert_eq!(denied.header("content-type"), Some("application/grpc"));
}

/// The platform's front sets `cf-connecting-ip` over whatever a client sends; this runtime has none, so tests set it.
#[test]
fn what_clients_can_write_of_their_address_says_nothing() {
    let (redis, upstream) =
        (Redis::start().expect("Redis starts"), Upstream::start().expect("a loopback port is free"));
    let workerd = start(&config(&redis, &policy(1, "deny")).origin(upstream.address()));
    let send = |request: &Request| workerd.client().send(request).expect("workerd answers").status;
    assert_eq!(send(&from_client("/")), 200);
    let written = ["x-forwarded-for", "forwarded", "x-real-ip", "true-client-ip", "x-client-ip", "cf-pseudo-ipv4"];
    for name in written {
        assert_eq!(send(&from_client("/").header(name, "198.51.100.1")), 429, "{name}");
        assert_eq!(send(&Request::get("/").header(name, "198.51.100.1")), 400, "{name} alone");
    }
    assert_eq!(send(&from_client("/").header("cf-connecting-ip", "198.51.100.1")), 400, "two lines are no address");
    assert_eq!(send(&Request::get("/").header("cf-connecting-ip", "198.51.100.1")), 200, "nothing of it was counted");
}

#[test]
fn what_the_platform_says_of_a_request_is_metadata_and_headers_are_not() {
    let (redis, upstream) =
        (Redis::start().expect("Redis starts"), Upstream::start().expect("a loopback port is free"));
    let limit = |name: &str, path: &str| {
        let key = json!([format!("metadata:cf.{path}")]);
        let limit = json!({ "name": name, "algorithm": "fixed_window", "limit": 1, "window": "1d", "key": key });
        json!({ "limits": [limit] })
    };
    let policies = json!({ "country": limit("country", "country"), "score": limit("score", "botManagement.score") });
    let routes = ["country", "score"].map(|name| json!({ "match": { "path": format!("/{name}") }, "policy": name }));
    let policy = json!({ "version": 1, "policies": policies, "routes": routes });
    let config = config(&redis, &policy).origin(upstream.address()).platform_header("x-platform");
    let workerd = start(&config);
    let send = |request: Request| workerd.client().send(&request).expect("workerd answers").status;
    let said = |path: &str, platform: Value| Request::get(path).header("x-platform", platform.to_string());
    assert_eq!(send(said("/country", json!({ "country": "DE" }))), 200);
    assert_eq!(send(said("/country", json!({ "country": "DE" })).header("cf-ipcountry", "FR")), 429);
    assert_eq!(send(said("/country", json!({ "country": "FR" }))), 200);
    let of_client = Request::get("/country").header("cf-ipcountry", "IT").header("cf", "{\"country\":\"IT\"}");
    assert_eq!(send(of_client), 400, "nothing that a client wrote");
    for (score, status) in [(json!(30), 200), (json!(30), 429), (json!({ "of": 30 }), 400), (json!([30]), 400)] {
        let platform = json!({ "botManagement": { "score": score } });
        assert_eq!(send(said("/score", platform)), status, "{score}");
    }
}

#[test]
fn a_service_binding_or_the_requests_own_host_is_the_origin() {
    let (redis, upstream) =
        (Redis::start().expect("Redis starts"), Upstream::start().expect("a loopback port is free"));
    let bound = start(&config(&redis, &policy(10, "deny")).origin_service(upstream.address()));
    assert_eq!(bound.client().send(&from_client("/bound")).expect("workerd answers").status, 200);
    let own = start(&config(&redis, &policy(10, "deny")));
    let to_upstream = from_client("/own").header("host", upstream.address().to_string());
    assert_eq!(own.client().send(&to_upstream).expect("workerd answers").status, 200);
    let paths: Vec<_> = upstream.take().iter().map(|seen| seen["path"].clone()).collect();
    assert_eq!(paths, ["/bound", "/own"]);
}

#[test]
fn an_origin_that_is_away_is_a_502_and_faulty_settings_are_a_503() {
    let redis = Redis::start().expect("Redis starts");
    let away = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let workerd = start(&config(&redis, &policy(10, "deny")).origin(away));
    let answer = workerd.client().send(&from_client("/")).expect("workerd answers");
    assert_eq!((answer.status, answer.header("content-type")), (502, Some("application/problem+json")));
    let workerd = start(&config(&redis, &json!({ "version": 1, "polices": {} })));
    let answer = workerd.client().send(&from_client("/")).expect("workerd answers");
    assert_eq!((answer.status, answer.header("content-type")), (503, Some("application/problem+json")));
    assert!(workerd.process().log().contains("polices"), "the log tells the fault");
}

#[test]
fn a_module_that_panics_answers_as_the_policy_says_and_is_replaced() {
    let (redis, upstream) =
        (Redis::start().expect("Redis starts"), Upstream::start().expect("a loopback port is free"));
    for transport in [Transport::Tcp, Transport::DurableObject] {
        for (mode, status) in [("deny", 503), ("allow", 200), ("local", 200)] {
            let config = WorkerdConfig::built_in(paths::built_worker(paths::worker_trap()));
            let config = config.store(transport, redis.address()).deadline(SOON).policy(&policy(100, mode));
            let workerd = start(&config.origin(upstream.address()));
            let client = workerd.client();
            for _ in 0..2 {
                let panicked =
                    client.send(&from_client("/").header("x-lockkeeper-trap", "1")).expect("workerd answers");
                assert_eq!(panicked.status, status, "{mode}: {panicked:?}");
                assert!(panicked.elapsed < SOON, "{mode} took {:?}", panicked.elapsed);
                let next = poll::until("the next instance decides", SOON, || {
                    let next = client.send(&from_client("/")).ok()?;
                    next.header("ratelimit").is_some().then_some(next)
                });
                assert_eq!(
                    next.unwrap_or_else(|error| panic!("{error:#}\n{}", workerd.process().log_tail())).status,
                    200
                );
            }
        }
    }
}
