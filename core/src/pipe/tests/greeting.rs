//! What a connection says before its first command.

use super::*;

/// A pipe that says AUTH and SELECT, just opened.
fn greeting() -> Client {
    let config = PipeConfig { greeting: Greeting::new(Some("me"), Some("pw"), 3), ..config() };
    let mut client = Client { pipe: Pipe::new(config, 0x1234_5678_9abc_def0), now_us: 1_000_000 };
    client.pipe.wanted = true;
    open(&mut client);
    client
}

fn open(client: &mut Client) {
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Open);
    client.pipe.opened(client.now_us);
}

fn words(sent: &[Vec<String>]) -> Vec<String> {
    sent.iter().map(|command| command.join(" ")).collect()
}

#[test]
fn commands_wait_until_all_of_the_greeting_is_accepted() {
    let mut client = greeting();
    assert!(client.submit(1));
    assert_eq!(words(&client.sent(Moment::Submitted)), ["AUTH me pw", "SELECT 3"]);
    assert_eq!(client.sent(Moment::Flush).len(), 0, "it is said once");
    assert_eq!(client.receive("+OK\r\n"), []);
    assert_eq!(client.sent(Moment::Flush).len(), 0, "the database is not selected yet");
    assert!(!client.pipe.is_healthy());
    assert_eq!(client.receive("+OK\r\n"), []);
    assert!(client.pipe.is_healthy());
    let sent = client.sent(Moment::Flush);
    assert_eq!(client.receive(reply(&sent[0][2], 7)), [(1, Came::Reply(7))]);
}

#[test]
fn its_replies_may_come_in_any_two_pieces() {
    const REPLIES: &[u8] = b"+OK\r\n+OK\r\n";
    for split in 0..=REPLIES.len() {
        let mut client = greeting();
        client.sent(Moment::Flush);
        let (first, rest) = REPLIES.split_at(split);
        assert_eq!(client.receive(first), []);
        assert_eq!(client.receive(rest), []);
        assert!(client.pipe.is_healthy(), "split at {split}");
    }
}

#[test]
fn calls_behind_a_refused_greeting_fail_as_it_did_and_the_connection_is_left() {
    for accepted_before in ["", "+OK\r\n"] {
        let mut client = greeting();
        client.submit(1);
        client.sent(Moment::Flush);
        let refusal = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
        let settled = client.receive(format!("{accepted_before}{refusal}+OK\r\n"));
        assert_eq!(settled, [(1, Came::Refused(Refusal::Access))]);
        assert_eq!(client.pipe.maintain(client.now_us), Connect::Close);
        assert_eq!(client.close(), []);
        assert_eq!(client.pipe.counts(), PipeCounts { opened: 1, closed: 1, desyncs: 0, late: 0, refused: 1 });
    }
}

#[test]
fn each_connection_is_greeted_and_a_refused_one_is_no_success() {
    let mut client = greeting();
    for pause_us in [25_000, 50_000, 100_000] {
        assert_eq!(client.sent(Moment::Flush).len(), 2);
        client.receive(error("NOAUTH Authentication required."));
        client.close();
        client.wait_us(pause_us - 1);
        assert_eq!(client.pipe.maintain(client.now_us), Connect::No);
        client.wait_us(1);
        open(&mut client);
    }
}

#[test]
fn credentials_that_are_put_right_close_the_breaker_again() {
    let mut client = greeting();
    for _ in 0..5 {
        client.sent(Moment::Flush);
        assert_eq!(client.receive(error("WRONGPASS invalid username-password pair")), []);
        client.close();
        client.wait_us(500_000);
        open(&mut client);
    }
    assert!(!client.pipe.breaker_is_closed(), "though nobody waited");
    client.sent(Moment::Flush);
    client.receive("+OK\r\n+OK\r\n");
    client.wait_us(500_000);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::No);
    let probe = client.sent(Moment::Flush);
    assert_eq!(probe[0][0], "EVAL");
    client.receive(format!("*1\r\n$16\r\n{}\r\n", probe[0][4]));
    assert!(client.pipe.is_healthy());
}

#[test]
fn an_unanswered_greeting_sends_nothing_and_the_connection_is_replaced() {
    let mut client = greeting();
    client.submit(1);
    client.sent(Moment::Flush);
    client.wait_us(DEADLINE_US);
    assert_eq!(client.expire(), [(1, Came::NotSent)]);
    client.wait_us(499_999);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::No);
    client.wait_us(1);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Close);
}

#[test]
fn a_close_during_the_greeting_leaves_calls_not_sent() {
    let mut client = greeting();
    client.submit(1);
    client.sent(Moment::Flush);
    assert_eq!(client.close(), [(1, Came::NotSent)]);
    client.wait_us(25_000);
    open(&mut client);
    assert_eq!(client.sent(Moment::Flush).len(), 2);
}

#[test]
fn another_reply_than_ok_is_a_desync() {
    let mut client = greeting();
    client.submit(1);
    client.sent(Moment::Flush);
    assert_eq!(client.receive(":1\r\n"), [(1, Came::NotSent)]);
    assert_eq!(client.pipe.counts().desyncs, 1);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Close);
}

#[test]
fn a_greeting_that_is_accepted_is_an_answer() {
    let mut client = greeting();
    for _ in 0..20 {
        assert_eq!(client.sent(Moment::Flush).len(), 2);
        client.receive("+OK\r\n+OK\r\n");
        client.pipe.maintain(client.now_us);
        assert_eq!(client.sent(Moment::Flush).len(), 0, "the store is known to be there");
        client.wait_us(1_000_000);
        client.close();
        client.wait_us(25_000);
        open(&mut client);
    }
    assert!(client.pipe.breaker_is_closed());
}
