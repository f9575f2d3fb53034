//! When calls stop waiting for the store, and how the pipe finds out that it is back.

use super::*;
use crate::breaker::BreakerConfig;

/// Waits for the next probe: its tag, and how long it took to come, in milliseconds.
fn probe(client: &mut Client) -> (String, u64) {
    for waited_ms in 0..2_000 {
        assert_eq!(client.pipe.maintain(client.now_us), Connect::No);
        let sent = client.sent(Moment::Flush);
        if let [words] = sent.as_slice() {
            assert_eq!(words[0], "EVAL");
            assert_eq!(words[1], script::PROBE.text());
            assert_eq!(&words[2..4], ["1", PROBE_KEY]);
            return (words[4].clone(), waited_ms);
        }
        client.wait_us(1_000);
    }
    panic!("no probe in two seconds");
}

#[test]
fn after_failures_in_a_row_no_call_waits() {
    let mut client = Client::open();
    client.open_breaker();
    assert!(!client.submit(1));
    assert!(!client.pipe.is_healthy());
}

#[test]
fn expired_and_lost_calls_are_failures_too() {
    let mut client = Client::open();
    (1..=3).for_each(|number| drop(client.call(number)));
    client.wait_us(DEADLINE_US);
    client.expire();
    client.call(4);
    client.call(5);
    assert!(client.pipe.breaker_is_closed());
    client.close();
    assert!(!client.pipe.breaker_is_closed());
}

#[test]
fn a_script_that_is_not_cached_is_no_failure() {
    let mut client = Client::open();
    for number in 0..20 {
        client.call(number);
        client.receive(error("NOSCRIPT No matching script."));
    }
    assert!(client.pipe.breaker_is_closed());
}

#[test]
fn one_success_forgets_the_failures_before_it() {
    let mut client = Client::open();
    for number in 0..20 {
        let tag = client.call(number);
        let bytes = if number % 5 == 4 { reply(&tag, 1) } else { error("BUSY x") };
        client.receive(bytes);
    }
    assert!(client.pipe.breaker_is_closed());
}

#[test]
fn a_probe_that_is_answered_lets_calls_pass_again() {
    let mut client = Client::open();
    client.open_breaker();
    let (tag, waited_ms) = probe(&mut client);
    assert!((50..=100).contains(&waited_ms), "{waited_ms} ms");
    assert!(!client.submit(1), "the probe alone is out");
    assert_eq!(client.receive(format!("*1\r\n$16\r\n{tag}\r\n")), [], "nobody waits for a probe");
    assert!(client.pipe.is_healthy());
    assert!(client.submit(2));
}

#[test]
fn a_probe_that_fails_in_any_way_makes_the_next_one_wait_longer_up_to_the_longest_pause() {
    let refused = |client: &mut Client, _: &str| assert_eq!(client.receive(error("LOADING x")), []);
    let expired = |client: &mut Client, _: &str| {
        client.wait_us(DEADLINE_US);
        assert_eq!(client.expire(), []);
    };
    for fail in [refused as fn(&mut Client, &str), expired] {
        let mut client = Client::open();
        client.pipe.config.stuck_after_us = u64::MAX;
        client.open_breaker();
        let BreakerConfig { pause_min_us, pause_max_us, .. } = BreakerConfig::default();
        let mut longest_ms = pause_min_us / 1_000;
        for _ in 0..8 {
            let (tag, waited_ms) = probe(&mut client);
            assert!((longest_ms / 2..=longest_ms).contains(&waited_ms), "{waited_ms} of {longest_ms} ms");
            fail(&mut client, &tag);
            longest_ms = (longest_ms * 2).min(pause_max_us / 1_000);
        }
    }
}

#[test]
fn a_probe_that_is_lost_with_its_connection_is_repeated_on_the_next() {
    let mut client = Client::open();
    client.open_breaker();
    probe(&mut client);
    assert_eq!(client.close(), []);
    client.wait_us(25_000);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Open, "the connection is opened without a call");
    client.pipe.opened(client.now_us);
    let (tag, _) = probe(&mut client);
    client.receive(format!("*1\r\n$16\r\n{tag}\r\n"));
    assert!(client.pipe.is_healthy());
}

#[test]
fn there_is_one_probe_at_a_time() {
    let mut client = Client::open();
    client.open_breaker();
    probe(&mut client);
    client.wait_us(DEADLINE_US - 1);
    client.pipe.maintain(client.now_us);
    assert_eq!(client.sent(Moment::Flush).len(), 0);
}

#[test]
fn a_late_answer_to_an_old_call_does_not_close_the_breaker() {
    let mut client = Client::open();
    let tags: Vec<String> = (1..=6).map(|number| client.call(number)).collect();
    let failures = [error("BUSY x").repeat(5), reply(&tags[5], 6)].concat();
    assert_eq!(client.receive(failures).len(), 6);
    assert!(!client.pipe.breaker_is_closed());
}

#[test]
fn a_probe_writes_the_key_that_was_said_last() {
    let mut client = Client::open();
    client.pipe.probe_at("other:probe");
    client.open_breaker();
    client.wait_us(1_000_000);
    client.pipe.maintain(client.now_us);
    assert_eq!(client.sent(Moment::Flush)[0][3], "other:probe");
}

#[test]
fn a_probe_answered_for_another_breaks_the_connection() {
    let mut client = Client::open();
    client.open_breaker();
    probe(&mut client);
    assert_eq!(client.receive(b"*1\r\n$16\r\n0000000000000000\r\n"), []);
    assert!(!client.pipe.breaker_is_closed());
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Close);
}

/// Each attempt that ends in nothing counts, whether somebody waits or not.
#[test]
fn a_store_that_cannot_be_reached_opens_the_breaker_without_traffic() {
    let mut client = Client::answered();
    client.close();
    let mut attempts = 0;
    while client.pipe.breaker_is_closed() {
        client.wait_us(1_000);
        if client.pipe.maintain(client.now_us) == Connect::Open {
            client.pipe.opened(client.now_us);
            client.close();
            attempts += 1;
        }
    }
    assert_eq!(attempts, 5, "the close of a connection that had answered is none");
}

#[test]
fn connections_that_answer_and_close_are_no_failures() {
    let mut client = Client::open();
    for number in 0..20 {
        let tag = client.call(number);
        client.receive(reply(&tag, 1));
        client.close();
        client.wait_us(500_000);
        assert!(client.pipe.breaker_is_closed());
        assert_eq!(client.pipe.maintain(client.now_us), Connect::Open);
        client.pipe.opened(client.now_us);
    }
}

/// A store that closes connections after `idle_us`, as `timeout` of Redis makes it do, and gives this `answer` to probes. The
/// pauses before each is opened again.
fn idle_closes(client: &mut Client, closes: u32, idle_us: u64, answer: impl Fn(&str) -> Vec<u8>) -> Vec<u64> {
    let mut pauses_us = Vec::new();
    for _ in 0..closes {
        client.wait_us(idle_us);
        client.close();
        let closed_us = client.now_us;
        while client.pipe.maintain(client.now_us) != Connect::Open {
            client.wait_us(1_000);
        }
        pauses_us.push(client.now_us - closed_us);
        client.pipe.opened(client.now_us);
        client.wait_us(client.pipe.tick_us());
        client.pipe.maintain(client.now_us);
        let sent = client.sent(Moment::Flush);
        let tag = sent.first().and_then(|words| words.last()).expect("a probe on a connection that nobody uses");
        let settled = client.receive(answer(tag));
        assert_eq!(settled, [], "nobody waits for it");
        client.pipe.maintain(client.now_us);
        assert_eq!(client.sent(Moment::Flush).len(), 0, "it is asked once");
    }
    pauses_us
}

#[test]
fn a_store_that_closes_idle_connections_is_asked_once_on_each_and_is_no_failure() {
    let mut client = Client::answered();
    let pauses_us = idle_closes(&mut client, 20, 1_000_000, |tag| reply(tag, 0));
    assert!(client.pipe.breaker_is_closed());
    assert!(pauses_us.iter().all(|pause_us| *pause_us == 25_000), "each pause is the short one: {pauses_us:?}");
    assert_eq!(client.pipe.tick_us(), 1_000_000, "and then there is nothing to do");
}

#[test]
fn a_store_that_closes_as_soon_as_it_has_answered_is_asked_less_and_less() {
    let mut client = Client::answered();
    let pauses_us = idle_closes(&mut client, 8, 10_000, |tag| reply(tag, 0));
    assert_eq!(pauses_us, [25, 50, 100, 200, 400, 500, 500, 500].map(|pause_ms| pause_ms * 1_000));
    assert!(client.pipe.breaker_is_closed(), "it is there");
}

#[test]
fn a_store_that_refuses_or_ignores_the_first_probe_of_each_connection_is_a_failure() {
    let mut client = Client::answered();
    idle_closes(&mut client, 5, 1_000_000, |_| error("OOM x"));
    assert!(!client.pipe.breaker_is_closed(), "refused");

    let mut client = Client::open();
    let mut waited_us = 0;
    while client.pipe.breaker_is_closed() {
        let tick_us = client.pipe.tick_us();
        client.wait_us(tick_us);
        waited_us += tick_us;
        client.expire();
        match client.pipe.maintain(client.now_us) {
            Connect::Open => client.pipe.opened(client.now_us),
            Connect::Close => assert_eq!(client.close(), []),
            Connect::No => {}
        }
        client.sent(Moment::Flush);
        assert!(waited_us < 10_000_000, "ignored");
    }
}
