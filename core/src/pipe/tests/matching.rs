//! Which reply settles which call.

use super::*;

#[test]
fn replies_settle_calls_in_order_with_the_time_they_took() {
    let mut client = Client::open();
    let (first, second) = (client.call(1), client.call(2));
    client.wait_us(700);
    let settled = client.pipe.received(&[reply(&first, 10), reply(&second, 20)].concat(), client.now_us);
    assert_eq!(settled.iter().map(|one| one.elapsed_us).collect::<Vec<_>>(), [700, 700]);
    assert_eq!(came(settled), [(1, Came::Reply(10)), (2, Came::Reply(20))]);
    assert_eq!(client.pipe.unanswered(), 0);
}

#[test]
fn replies_settle_the_same_calls_in_every_split() {
    let bytes = |tags: &[String]| [reply(&tags[0], 1), error("OOM x"), reply(&tags[2], 3)].concat();
    let length = bytes(&["x".repeat(16), "x".repeat(16), "x".repeat(16)]).len();
    for first in 0..=length {
        for second in first..=length {
            let mut client = Client::open();
            let bytes = bytes(&[client.call(1), client.call(2), client.call(3)]);
            let mut settled = client.receive(&bytes[..first]);
            settled.extend(client.receive(&bytes[first..second]));
            settled.extend(client.receive(&bytes[second..]));
            let expected = [(1, Came::Reply(1)), (2, Came::Refused(Refusal::OutOfMemory)), (3, Came::Reply(3))];
            assert_eq!(settled, expected, "split at {first} and {second}");
        }
    }
}

#[test]
fn error_replies_keep_their_place_between_tagged_ones() {
    let mut client = Client::open();
    let tags = [client.call(1), client.call(2), client.call(3), client.call(4)];
    let bytes = [error("NOSCRIPT x"), reply(&tags[1], 2), error("upstream failure"), error("no upstream host")];
    let settled = client.receive(bytes.concat());
    let expected = [(1, Came::Refused(Refusal::NoScript)), (2, Came::Reply(2)), (3, Came::Unknown), (4, Came::NotSent)];
    assert_eq!(settled, expected);
}

#[test]
fn a_lost_reply_is_never_replaced_by_the_next_one() {
    let mut client = Client::open();
    client.call(1);
    let second = client.call(2);
    client.submit(3);
    // The reply to call 1 is missing: the one to call 2 must not pass for it.
    let settled = client.receive(reply(&second, 20));
    assert_eq!(settled, [(1, Came::Unknown), (2, Came::Unknown), (3, Came::NotSent)]);
    assert_eq!(client.pipe.counts().desyncs, 1);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Close);
    assert!(!client.submit(4), "a broken connection takes no calls");
}

#[test]
fn replies_before_a_mismatch_still_count() {
    let mut client = Client::open();
    let first = client.call(1);
    client.call(2);
    let settled = client.receive([reply(&first, 10), reply("0000000000000000", 0)].concat());
    assert_eq!(settled, [(1, Came::Reply(10)), (2, Came::Unknown)]);
}

#[test]
fn whatever_is_no_scripts_reply_breaks_the_connection() {
    let tagless: [&[u8]; 13] = [
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n$-1\r\n",
        b"$2\r\nab\r\n",
        b"*5500000000000000000\r\n",
        b"$600000000\r\n",
        b"%1\r\n+a\r\n:1\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0",
    ];
    for bytes in tagless {
        let mut client = Client::open();
        client.call(1);
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!(client.receive(bytes), [(1, Came::Unknown)], "{shown:?}");
        assert_eq!(client.pipe.counts().desyncs, 1, "{shown:?}");
        assert_eq!(client.pipe.maintain(client.now_us), Connect::Close, "{shown:?}");
    }
}

#[test]
fn the_tag_counts_only_in_full_and_only_at_the_front() {
    let wrong = |tag: &str| -> Vec<Vec<u8>> {
        let nested = format!("*1\r\n*1\r\n$16\r\n{tag}\r\n");
        let second = format!("*2\r\n:1\r\n$16\r\n{tag}\r\n");
        vec![
            reply(&tag[..15], 1),
            reply(&format!("{tag}0"), 1),
            reply(&tag.to_uppercase(), 1),
            nested.into(),
            second.into(),
        ]
    };
    for index in 0..5 {
        let mut client = Client::open();
        let tag = client.call(1);
        assert_eq!(client.receive(&wrong(&tag)[index]), [(1, Came::Unknown)], "row {index} with tag {tag}");
    }
}

#[test]
fn bytes_that_nobody_asked_for_break_the_connection_once() {
    let mut client = Client::open();
    assert_eq!(client.receive(error("ERR max number of clients reached")), []);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Close);
    assert_eq!(client.receive(b"+more of it\r\n"), []);
    assert_eq!(client.pipe.counts().desyncs, 1, "a broken connection is not listened to");
}

#[test]
fn bytes_after_the_close_change_nothing() {
    let mut client = Client::open();
    let tag = client.call(1);
    assert_eq!(client.close(), [(1, Came::Unknown)]);
    assert_eq!(client.receive(reply(&tag, 1)), []);
    assert_eq!(client.pipe.counts(), PipeCounts { opened: 1, closed: 1, desyncs: 0, late: 0, refused: 0 });
    assert_eq!(client.pipe.maintain(client.now_us), Connect::No, "the pause still holds");
}

#[test]
fn half_a_reply_is_not_continued_by_the_next_connection() {
    let mut client = Client::open();
    let tag = client.call(1);
    client.receive(&reply(&tag, 1)[..9]);
    client.close();
    client.wait_us(25_000);
    assert_eq!(client.pipe.maintain(client.now_us), Connect::Open);
    client.pipe.opened(client.now_us);
    let tag = client.call(2);
    assert_eq!(client.receive(reply(&tag, 2)), [(2, Came::Reply(2))]);
}

#[test]
fn of_many_calls_without_a_cached_script_one_in_a_while_uploads_it() {
    let mut client = Client::open();
    assert!(client.pipe.takes_upload(client.now_us));
    client.wait_us(DEADLINE_US - 1);
    assert!(!client.pipe.takes_upload(client.now_us));
    client.wait_us(1);
    assert!(client.pipe.takes_upload(client.now_us), "that upload failed or was lost");
    assert!(!client.pipe.takes_upload(client.now_us));
}

#[test]
fn tags_are_unique_within_a_pipe_and_differ_between_pipes() {
    let mut client = Client::open();
    let mut tags: Vec<String> = (0..50).map(|number| client.call(number)).collect();
    let mut other = Client::open();
    other.pipe = Pipe::new(config(), 77);
    other.pipe.opened(other.now_us);
    tags.extend((0..50).map(|number| other.call(number)));
    assert!(tags.iter().all(|tag| tag.len() == 16));
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 100);
}
