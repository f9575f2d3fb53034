//! A store that answers slowly, wrongly or in pieces: at the end of the pipe, and behind `redis_proxy`.

use crate::observe::{Decider, Mode, Way, alone, observe, wait_for_the_store};
use lockkeeper_core::store::Refusal;
use lockkeeper_tests::stub_store::{self, Act, Behaviour, StubStore};
use lockkeeper_tests::{Envoy, EnvoyConfig, poll};
use std::sync::Arc;
use std::time::Duration;

/// `*5`, the tag with its length, four integers: the reply to a decision with one limit.
const REPLY_BYTES: usize = 4 + 5 + 18 + 4 * 4;

/// A stub that admits, and a gateway that uses it.
fn start(config: EnvoyConfig) -> (StubStore, Envoy) {
    let stub = StubStore::start(stub_store::admit()).expect("a loopback port is free");
    let envoy = Envoy::start(&config.redis(stub.address())).expect("Envoy starts");
    (stub, envoy)
}

/// With one worker, so that each failure is followed by a success of the same breaker.
fn start_one_worker(way: Way) -> (StubStore, Envoy) {
    let (stub, envoy) = start(way.config().concurrency(1));
    wait_for_the_store(&envoy);
    (stub, envoy)
}

fn assert_bounded_outage(way: Way, name: &str, behaviour: Behaviour) {
    let (stub, envoy) = start(way.config());
    let observed = observe(&envoy, || stub.behave(behaviour), || stub.behave(stub_store::admit()));
    observed.assert_bounded_outage(&format!("{name}, {way:?}"));
}

/// Closes in the middle of each reply, at another byte each time.
fn close_anywhere() -> Behaviour {
    Arc::new(|command| {
        let reply = command.admitting_reply();
        let bytes = usize::try_from(command.number).unwrap_or(0) % reply.len();
        vec![Act::Send(reply[..bytes].to_vec()), Act::Close]
    })
}

#[test]
fn a_silent_store() {
    let _alone = alone();
    assert_bounded_outage(Way::Direct, "silent", stub_store::silent());
}

#[test]
fn a_store_that_takes_500_ms() {
    let _alone = alone();
    for way in Way::ALL {
        assert_bounded_outage(way, "500 ms", stub_store::admit_after(Duration::from_millis(500)));
    }
}

/// All times are ten times the shipped ones, so that the load of the machine does not decide.
#[test]
fn a_store_that_takes_nine_tenths_of_the_deadline_is_still_used() {
    let _alone = alone();
    for way in Way::ALL {
        let (stub, envoy) = start(way.config().deadline(Duration::from_millis(500)));
        let slow = || stub.behave(stub_store::admit_after(Duration::from_millis(450)));
        observe(&envoy, slow, || stub.behave(stub_store::admit())).assert_no_outage(&format!("450 of 500 ms, {way:?}"));
    }
}

#[test]
fn a_store_that_answers_with_garbage() {
    let _alone = alone();
    for way in Way::ALL {
        assert_bounded_outage(way, "garbage", stub_store::raw(b"\x00\xff<html>no store</html>\r\n"));
    }
}

#[test]
fn a_store_that_closes_in_the_middle_of_replies() {
    let _alone = alone();
    for way in Way::ALL {
        assert_bounded_outage(way, "closing", close_anywhere());
    }
}

#[test]
fn a_store_that_is_loading() {
    let _alone = alone();
    let loading = || stub_store::error("LOADING Redis is loading the dataset in memory");
    assert_bounded_outage(Way::RedisProxy, "loading", loading());
}

#[test]
fn each_error_reply_is_a_failure_with_a_metric_of_its_own() {
    let _alone = alone();
    let (stub, envoy) = start_one_worker(Way::Direct);
    let rows = [
        ("access", "NOAUTH Authentication required."),
        ("access", "WRONGPASS invalid username-password pair or user is disabled."),
        ("busy", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
        ("cluster_down", "CLUSTERDOWN The cluster is down"),
        ("loading", "LOADING Redis is loading the dataset in memory"),
        ("out_of_memory", "OOM command not allowed when used memory > 'maxmemory'."),
        ("out_of_memory", "ERR Error running script (call to f_4f): @user_script:7: -OOM command not allowed"),
        ("writes_disabled", "MISCONF Redis is configured to save RDB snapshots"),
        ("topology", "MOVED 866 127.0.0.1:7001"),
        ("read_only", "READONLY You can't write against a read only replica."),
        ("other", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("unknown", "upstream failure"),
        ("not_sent", "no upstream host"),
    ];
    for (outcome, text) in rows {
        let name = format!("wasmcustom.lockkeeper_store_calls.outcome.{outcome}");
        let before = envoy.admin().stat(&name);
        assert_one_failure(&stub, &envoy, text, stub_store::error(text));
        let counted = || (envoy.admin().stat(&name) > before).then_some(());
        poll::until(&name, Duration::from_secs(5), counted).unwrap_or_else(|error| panic!("{text}: {error:#}"));
        let reason = Refusal::ALL.into_iter().find(|refusal| refusal.word() == outcome).and_then(Refusal::reason);
        let told = || reason.is_none_or(|reason| envoy.process().log().contains(reason)).then_some(());
        poll::until("the log", Duration::from_secs(5), told).unwrap_or_else(|error| panic!("{text}: {error:#}"));
    }
}

/// The script is sent whole once; a store that does not know it even then has failed, and is not asked in a loop.
#[test]
fn a_second_noscript_is_a_failure() {
    let _alone = alone();
    let (stub, envoy) = start_one_worker(Way::Direct);
    let before = stub.commands();
    assert_one_failure(&stub, &envoy, "no script", stub_store::error("NOSCRIPT No matching script. Please use EVAL."));
    let sent = stub.commands() - before;
    assert!((4..=6).contains(&sent), "two requests in trouble and one after it sent {sent} commands");
}

#[test]
fn a_reply_in_any_two_pieces_is_a_reply() {
    let _alone = alone();
    for way in Way::ALL {
        let (stub, envoy) = start_one_worker(way);
        let client = envoy.client();
        for bytes in 0..=REPLY_BYTES {
            stub.behave(stub_store::cut_after(bytes, Duration::from_millis(5)));
            let decider = Mode::Deny.decider(&client.get(Mode::Deny.path()));
            assert_eq!(decider, Decider::Store, "cut after {bytes} bytes, {way:?}");
        }
    }
}

/// Asks once in each failure mode, then mends the store and waits for its decisions.
fn assert_one_failure(stub: &StubStore, envoy: &Envoy, name: &str, behaviour: Behaviour) {
    let client = envoy.client();
    stub.behave(behaviour);
    for mode in [Mode::Allow, Mode::Deny] {
        let response = client.get(mode.path());
        assert_eq!(mode.decider(&response), Decider::FailureMode, "{name}");
        assert!(response.elapsed < Duration::from_secs(1), "{name}: {:?}", response.elapsed);
    }
    stub.behave(stub_store::admit());
    wait_for_the_store(envoy);
}

#[test]
fn a_reply_that_ends_at_any_byte_is_a_failure() {
    let _alone = alone();
    for way in Way::ALL {
        let (stub, envoy) = start_one_worker(way);
        for bytes in 0..REPLY_BYTES {
            assert_one_failure(&stub, &envoy, &format!("closed after {bytes} bytes"), stub_store::close_after(bytes));
        }
    }
}

#[test]
fn a_reply_of_another_shape_is_a_failure() {
    let _alone = alone();
    let rows: [(&str, Vec<u8>); 14] = [
        ("a huge array", b"*5500000000000000000\r\n".to_vec()),
        ("a negative length", b"$-5\r\n".to_vec()),
        ("nested arrays", b"*1\r\n".repeat(10_000)),
        ("a huge string", b"$600000000\r\n".to_vec()),
        ("a null", b"$-1\r\n".to_vec()),
        ("a null array", b"*-1\r\n".to_vec()),
        ("an empty array", b"*0\r\n".to_vec()),
        ("an integer", b":1\r\n".to_vec()),
        ("a status", b"+OK\r\n".to_vec()),
        ("an empty line", b"\r\n".to_vec()),
        ("a RESP3 map", b"%1\r\n+a\r\n:1\r\n".to_vec()),
        ("a RESP3 null", b"_\r\n".to_vec()),
        ("a RESP3 push", b">2\r\n+message\r\n+x\r\n".to_vec()),
        ("a page", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()),
    ];
    let (stub, envoy) = start_one_worker(Way::Direct);
    let before = envoy.process().resident_bytes();
    for (name, bytes) in &rows {
        assert_one_failure(&stub, &envoy, name, stub_store::raw(bytes));
    }
    let grown = envoy.process().resident_bytes().saturating_sub(before);
    println!("Envoy grew by {} KiB over {} kinds of replies", grown / 1024, rows.len());
    assert!(grown < 64 << 20, "Envoy grew by {grown} bytes");
}

/// These come with the right tag: only their shape tells.
#[test]
fn a_reply_with_the_tag_and_wrong_elements_is_a_failure() {
    let _alone = alone();
    let (stub, envoy) = start_one_worker(Way::Direct);
    let rows = [
        ("too short", 4, ":1\r\n:9\r\n:0\r\n"),
        ("too long", 6, ":1\r\n:9\r\n:0\r\n:0\r\n:0\r\n"),
        ("a verdict that is neither", 5, ":2\r\n:9\r\n:0\r\n:0\r\n"),
        ("a negative number", 5, ":1\r\n:-9\r\n:0\r\n:0\r\n"),
        ("numbers as strings", 5, "$1\r\n1\r\n$1\r\n9\r\n$1\r\n0\r\n$1\r\n0\r\n"),
        ("a null among them", 5, ":1\r\n$-1\r\n:0\r\n:0\r\n"),
        ("an error among them", 5, ":1\r\n-ERR\r\n:0\r\n:0\r\n"),
        ("an array among them", 5, ":1\r\n*1\r\n:0\r\n:0\r\n:0\r\n"),
    ];
    for (name, elements, rest) in rows {
        let behaviour: Behaviour = Arc::new(move |command| {
            let tag = String::from_utf8_lossy(command.tag()).into_owned();
            vec![Act::Send(format!("*{elements}\r\n${}\r\n{tag}\r\n{rest}", tag.len()).into_bytes())]
        });
        assert_one_failure(&stub, &envoy, name, behaviour);
    }
}

#[test]
fn a_reply_to_another_request_is_a_failure() {
    let _alone = alone();
    let (stub, envoy) = start_one_worker(Way::Direct);
    let desyncs = || envoy.admin().stat("wasmcustom.lockkeeper_pipe_events.event.desync");
    let before = desyncs();
    let other = b"*5\r\n$16\r\n0123456789abcdef\r\n:1\r\n:9\r\n:0\r\n:0\r\n";
    assert_one_failure(&stub, &envoy, "another tag", stub_store::raw(other));
    poll::until("the desync is counted", Duration::from_secs(2), || (desyncs() > before).then_some(()))
        .expect("a count");
}
