//! Opening, closing, replacing the connection; and when output goes out.

use super::*;

#[test]
fn nothing_is_opened_before_the_first_call() {
    let mut client = Client::closed();
    assert_eq!(client.pipe.maintain(client.now_us), Connect::No);
    client.submit(1);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Open);
}

#[test]
fn the_first_call_waits_for_the_connection_and_goes_out_when_it_opens() {
    let mut client = Client::closed();
    assert!(client.submit(1));
    assert!(client.submit(2));
    assert_eq!(client.sent(Moment::Submitted).len(), 0);
    assert_eq!(client.sent(Moment::Flush).len(), 0);
    assert!(!client.pipe.is_healthy());
    client.pipe.opened(client.now_us);
    assert!(client.pipe.is_healthy());
    assert_eq!(client.sent(Moment::Flush).len(), 2);
}

#[test]
fn calls_that_waited_for_a_connection_that_fails_were_not_sent() {
    let mut client = Client::closed();
    client.submit(1);
    client.submit(2);
    assert_eq!(client.close(), [(1, Came::NotSent), (2, Came::NotSent)]);
    assert!(!client.submit(3), "nobody waits while the connection rests");
}

#[test]
fn where_the_host_wants_it_calls_wait_for_an_attempt_that_comes_in_time() {
    let mut client = Client::closed();
    client.pipe.config.waits_to_reconnect = true;
    client.close();
    assert!(client.submit(1), "25 ms of pause are less than the deadline");
    assert_eq!(client.pipe.maintain(client.now_us), Connect::No, "the pause is kept");
    client.wait_us(25_000);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Open);
    client.pipe.opened(client.now_us);
    assert_eq!(client.sent(Moment::Flush).len(), 1);
    client.close();
    assert!(!client.submit(2), "50 ms of pause are not");
}

#[test]
fn a_close_leaves_sent_calls_unknown_and_queued_ones_not_sent() {
    let mut client = Client::open();
    let first = client.call(1);
    client.call(2);
    client.submit(3);
    client.receive(reply(&first, 1));
    assert_eq!(client.close(), [(2, Came::Unknown), (3, Came::NotSent)]);
    assert_eq!(client.pipe.unanswered(), 0);
    assert_eq!(client.pipe.counts(), PipeCounts { opened: 1, closed: 1, desyncs: 0, late: 0, refused: 0 });
}

#[test]
fn expired_calls_are_not_settled_again_by_a_close() {
    let mut client = Client::open();
    client.call(1);
    client.wait_us(DEADLINE_US);
    assert_eq!(client.expire(), [(1, Came::Unknown)]);
    assert_eq!(client.close(), []);
}

/// Fails to open `times` times; the pauses until each next attempt.
fn pauses_ms(client: &mut Client, times: usize) -> Vec<u64> {
    let pause = |client: &mut Client| {
        client.close();
        let start_us = client.now_us;
        while client.pipe.maintain(client.now_us) != Connect::Open {
            client.wait_us(1_000);
        }
        (client.now_us - start_us) / 1_000
    };
    (0..times).map(|_| pause(client)).collect()
}

#[test]
fn pauses_between_attempts_double_up_to_the_longest_and_start_over_after_a_reply() {
    let mut client = Client::closed();
    client.pipe.wanted = true;
    assert_eq!(pauses_ms(&mut client, 7), [25, 50, 100, 200, 400, 500, 500]);
    client.pipe.opened(client.now_us);
    assert_eq!(pauses_ms(&mut client, 1), [500], "a connection that never answered is no success");
    // The attempts have opened the breaker; its probe found the store well.
    client.pipe.breaker.success();
    client.pipe.opened(client.now_us);
    let tag = client.call(1);
    client.receive(reply(&tag, 1));
    assert_eq!(pauses_ms(&mut client, 2), [25, 50]);
}

#[test]
fn a_call_made_when_the_pause_is_over_waits_for_the_next_attempt() {
    let mut client = Client::open();
    client.close();
    client.wait_us(24_999);
    assert!(!client.submit(1));
    client.wait_us(1);
    assert!(client.submit(2));
}

#[test]
fn a_connection_that_owes_a_reply_for_too_long_is_replaced() {
    let mut client = Client::open();
    client.call(1);
    client.wait_us(DEADLINE_US + 499_999);
    client.expire();
    assert_eq!(client.pipe.maintain(client.now_us), Connect::No);
    client.wait_us(1);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Close);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Close, "until the host has closed it");
    assert_eq!(client.close(), []);
    client.wait_us(25_000);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Open);
}

#[test]
fn a_demoted_primary_is_left_at_once() {
    let mut client = Client::open();
    client.call(1);
    client.call(2);
    let settled = client.receive(error("READONLY You can't write against a read only replica."));
    assert_eq!(settled, [(1, Came::Refused(Refusal::ReadOnly)), (2, Came::Unknown)]);
    assert!(!client.pipe.breaker_is_closed(), "what a replica says of others is not asked any more");
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Close);
    assert!(client.pipe.tick_us() <= 1_000, "and soon");
    assert_eq!(client.pipe.counts().desyncs, 0);
}

/// Calls one more than may be in flight before they gather, with a store `round_trip_us` away.
fn with_four_in_flight(round_trip_us: u64) -> (Client, Vec<String>) {
    let mut client = Client::open();
    let tag = client.call(0);
    client.wait_us(round_trip_us);
    client.receive(reply(&tag, 0));
    let mut tags = Vec::new();
    for number in 1..=4 {
        assert!(client.submit(number));
        let sent = client.sent(Moment::Submitted);
        assert_eq!(sent.len(), 1, "call {number} goes out by itself");
        tags.push(sent[0][2].clone());
    }
    (client, tags)
}

#[test]
fn with_a_near_store_further_calls_go_out_together_after_the_next_reply() {
    let (mut client, tags) = with_four_in_flight(500);
    client.submit(5);
    client.submit(6);
    assert_eq!(client.sent(Moment::Submitted).len(), 0);
    client.receive(reply(&tags[0], 1));
    assert_eq!(client.sent(Moment::Flush).len(), 2);
}

#[test]
fn with_a_distant_store_no_call_waits_for_others() {
    let (mut client, _) = with_four_in_flight(501);
    client.submit(5);
    assert_eq!(client.sent(Moment::Submitted).len(), 1);
}

#[test]
fn a_store_that_has_moved_away_is_distant_after_two_seconds() {
    let (mut client, tags) = with_four_in_flight(100);
    tags.iter().for_each(|tag| drop(client.receive(reply(tag, 1))));
    for number in 10..=14 {
        client.wait_us(600_000);
        let tag = client.call(number);
        client.wait_us(1_000);
        client.receive(reply(&tag, 1));
    }
    (20..24).for_each(|number| drop(client.call(number)));
    client.submit(25);
    assert_eq!(client.sent(Moment::Submitted).len(), 1);
}

#[test]
fn what_is_bulky_goes_out_behind_what_was_queued_after_it_and_replies_keep_that_order() {
    let mut client = Client::open();
    let bulky = Submission::new(client.now_us, client.now_us + DEADLINE_US).bulky(true);
    let write = |number: &u32, tag: &str, out: &mut Vec<u8>| {
        encode_command(&[b"CALL", number.to_string().as_bytes(), tag.as_bytes()], out);
    };
    assert!(client.pipe.submit(1, bulky.clone(), write).is_ok());
    assert!(client.pipe.submit(2, bulky.tagged("another's".into()), write).is_ok());
    assert!(client.submit(3));
    let sent = client.sent(Moment::Flush);
    assert_eq!(sent.iter().map(|words| words[1].as_str()).collect::<Vec<_>>(), ["3", "1", "2"]);
    let replies = [reply(&sent[0][2], 30), reply(&sent[1][2], 10), reply("another's", 20)];
    let expected = [(3, Came::Reply(30)), (1, Came::Reply(10)), (2, Came::Reply(20))];
    assert_eq!(client.receive(replies.concat()), expected);
}
