//! What passes its deadline, and what comes after it.

use super::*;

#[test]
fn a_sent_call_that_expires_is_unknown_and_keeps_its_place() {
    let mut client = Client::open();
    let (first, second) = (client.call(1), {
        client.wait_us(10_000);
        client.call(2)
    });
    client.wait_us(DEADLINE_US - 10_000);
    assert_eq!(client.expire(), [(1, Came::Unknown)], "call 2 has 10 ms left");
    assert_eq!(client.expire(), [], "settled once");
    assert_eq!(client.pipe.unanswered(), 2);
    assert_eq!(client.receive(reply(&first, 10)), [], "too late: nobody waits");
    assert_eq!(client.receive(reply(&second, 20)), [(2, Came::Reply(20))]);
    assert_eq!(client.pipe.counts().late, 1);
    assert_eq!(client.pipe.counts().desyncs, 0);
}

#[test]
fn a_late_error_is_dropped_in_its_place_too() {
    let mut client = Client::open();
    client.call(1);
    client.wait_us(DEADLINE_US);
    client.expire();
    let second = client.call(2);
    assert_eq!(client.receive([error("BUSY x"), reply(&second, 20)].concat()), [(2, Came::Reply(20))]);
    assert_eq!(client.pipe.counts().late, 1);
}

#[test]
fn a_late_reply_that_is_lost_does_not_pass_the_next_one_on() {
    let mut client = Client::open();
    client.call(1);
    client.wait_us(DEADLINE_US);
    client.expire();
    let second = client.call(2);
    assert_eq!(client.receive(reply(&second, 20)), [(2, Came::Unknown)], "it came in the place of call 1");
    assert_eq!(client.pipe.counts(), PipeCounts { opened: 1, closed: 0, desyncs: 1, late: 0, refused: 0 });
}

#[test]
fn a_queued_call_that_expires_is_not_sent_and_never_goes_out() {
    let mut client = Client::closed();
    assert!(client.submit(1));
    client.wait_us(DEADLINE_US - 1);
    assert_eq!(client.expire(), []);
    client.wait_us(1);
    assert_eq!(client.expire(), [(1, Came::NotSent)]);
    assert!(client.submit(2));
    client.pipe.opened(client.now_us);
    let sent = client.sent(Moment::Flush);
    assert_eq!(sent.iter().map(|words| words[1].as_str()).collect::<Vec<_>>(), ["2"]);
}

#[test]
fn a_call_without_time_left_is_refused_at_once() {
    let mut client = Client::open();
    let write = |_: &u32, _: &str, _: &mut Vec<u8>| panic!("nothing may be written");
    let now_us = client.now_us;
    assert_eq!(client.pipe.submit(1, Submission::new(now_us, now_us), write), Err(1));
    assert_eq!(client.pipe.unanswered(), 0);
}

#[test]
fn expired_calls_count_against_the_most_in_flight() {
    let mut client = Client::open();
    client.pipe.config.in_flight_max = 3;
    client.pipe.config.breaker.failures_max = 100;
    client.pipe.breaker = Breaker::new(client.pipe.config.breaker, 1);
    let first = client.call(1);
    client.call(2);
    client.submit(3);
    assert!(!client.submit(4), "two in flight and one queued are all there may be");
    client.sent(Moment::Flush);
    client.wait_us(DEADLINE_US);
    assert_eq!(client.expire().len(), 3);
    assert!(!client.submit(5), "their replies may still come");
    client.receive(reply(&first, 1));
    assert!(client.submit(6));
}

#[test]
fn the_tick_is_as_short_as_the_waiting_calls_need() {
    let mut client = Client::closed();
    assert_eq!(client.pipe.tick_us(), 1_000_000, "nobody has asked");
    client.submit(1);
    assert_eq!(client.pipe.tick_us(), 5_000, "a call waits for the connection");
    client.pipe.opened(client.now_us);
    let tag = client.sent(Moment::Flush)[0][2].clone();
    assert_eq!(client.pipe.tick_us(), 5_000, "a call waits for its reply");
    client.receive(reply(&tag, 1));
    assert_eq!(client.pipe.tick_us(), 1_000_000, "idle");
    client.call(2);
    client.wait_us(DEADLINE_US);
    client.expire();
    assert_eq!(client.pipe.tick_us(), 25_000, "only an expired call is in flight: is the connection stuck?");
    client.close();
    assert_eq!(client.pipe.tick_us(), 25_000, "the connection is to be opened again");
}

#[test]
fn the_tick_stays_short_while_the_breaker_is_open() {
    let mut client = Client::open();
    client.open_breaker();
    assert_eq!(client.pipe.tick_us(), 25_000);
}
