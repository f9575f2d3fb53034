//! A stored response as the answer to a retry: the same status, headers and content, marked, and readable for this client.

use super::gzip;
use super::kept_headers::{Line, token};
use super::stored::Stored;
use crate::decision::Header;

/// A response may unfold to this many bytes; a larger one is only for clients that read its content coding.
const DECODED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What the retry's client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    /// Whether it wants no content.
    pub is_head: bool,
    /// Its `Accept-Encoding`, several lines joined by commas.
    pub accept_encoding: Option<&'a [u8]>,
}

/// The answer. What belongs to this exchange is added to it: quota, length, date, CORS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The stored status.
    pub status: u16,
    /// Ours: the marker, and `cache-control` unless the stored one says `no-store` itself. No other
    /// directive is stricter.
    pub headers: Vec<Header>,
    /// The stored lines.
    pub stored_headers: Vec<Line>,
    /// The content; nothing for HEAD, 204, 205 and 304.
    pub body: Vec<u8>,
}

/// The answer to a retry; `None` when its content is in a coding that the client does not read and we do not either, or
/// when we cannot unfold it. Then nothing is [retained](crate::answer::not_retained) for this client.
///
/// Content in gzip is decoded unless the client says that it reads gzip. One that says nothing gets any other coding as
/// it is (RFC 9110 §12.5.3). `marker` is the header that says of an answer that it is a replay.
pub fn replay(stored: Stored, client: &Client<'_>, marker: &str) -> Option<Replay> {
    let Stored { status, headers: mut stored_headers, body } = stored;
    let mut body = body;
    if client.is_head || matches!(status, 204 | 205 | 304) {
        body.clear();
    }
    if !body.is_empty() && !is_readable(&codings(&stored_headers), client) {
        match (decoded(&codings(&stored_headers), &body), client.accept_encoding) {
            (Some(content), _) => {
                body = content;
                stored_headers = without_coding(stored_headers);
            }
            (None, None) => {}
            (None, Some(_)) => return None,
        }
    }
    let mut headers: Vec<Header> = vec![(marker.to_owned().into(), "true".into())];
    if !forbids_storage(&stored_headers) {
        stored_headers.retain(|(name, _)| name != "cache-control");
        headers.push(("cache-control".into(), "no-store".into()));
    }
    stored_headers.retain(|(name, _)| name != marker);
    Some(Replay { status, headers, stored_headers, body })
}

/// The content codings, in the order in which they were applied.
fn codings(lines: &[Line]) -> Vec<String> {
    members(lines, "content-encoding").filter(|coding| !coding.is_empty() && coding != "identity").collect()
}

fn members<'l>(lines: &'l [Line], name: &str) -> impl Iterator<Item = String> + use<'l> {
    let values: Vec<&'l [u8]> =
        lines.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_slice()).collect();
    values.into_iter().flat_map(|value| value.split(|byte| *byte == b',')).map(|member| {
        // A member that is no text equals no word.
        token(&String::from_utf8_lossy(member))
    })
}

fn is_readable(codings: &[String], client: &Client<'_>) -> bool {
    codings.iter().all(|coding| client.accept_encoding.is_some_and(|accepted| accepts(accepted, coding)))
}

/// Whether an `Accept-Encoding` names the coding, or all that it does not name, with a weight above zero.
fn accepts(accepted: &[u8], coding: &str) -> bool {
    let accepted = String::from_utf8_lossy(accepted);
    let weight = |wanted: &str| {
        accepted.split(',').find_map(|member| {
            let (name, parameters) = member.split_once(';').unwrap_or((member, ""));
            let weight = || token(parameters).strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>).unwrap_or(0.0);
            (plain_name(&token(name)) == wanted).then(weight)
        })
    };
    weight(plain_name(coding)).or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
}

/// Two codings have an old name beside theirs (RFC 9110 §8.4.1).
fn plain_name(coding: &str) -> &str {
    match coding {
        "x-gzip" => "gzip",
        "x-compress" => "compress",
        other => other,
    }
}

fn decoded(codings: &[String], body: &[u8]) -> Option<Vec<u8>> {
    match codings {
        [coding] if plain_name(coding) == "gzip" => gzip::decode(body, DECODED_BYTES_MAX),
        _ => None,
    }
}

/// What still holds when the coding is gone. A strong validator names the bytes, so it becomes a weak one.
fn without_coding(lines: Vec<Line>) -> Vec<Line> {
    let of_the_bytes = ["content-encoding", "content-digest", "repr-digest", "digest", "content-md5"];
    let rest = lines.into_iter().filter(|(name, _)| !of_the_bytes.contains(&name.as_str()));
    rest.map(|(name, value)| match name == "etag" && value.starts_with(b"\"") {
        true => (name, [b"W/", value.as_slice()].concat()),
        false => (name, value),
    })
    .collect()
}

fn forbids_storage(lines: &[Line]) -> bool {
    members(lines, "cache-control").any(|directive| directive == "no-store")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rows: &[(&str, &str)]) -> Vec<Line> {
        rows.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
    }

    fn reads(accept_encoding: Option<&str>) -> Client<'_> {
        Client { is_head: false, accept_encoding: accept_encoding.map(str::as_bytes) }
    }

    fn replayed(status: u16, headers: &[(&str, &str)], body: &[u8], client: &Client<'_>) -> Option<Replay> {
        let stored = Stored { status, headers: lines(headers), body: body.to_vec() };
        replay(stored, client, "idempotent-replayed")
    }

    #[test]
    fn a_replay_is_the_stored_response_marked() {
        let stored = Stored {
            status: 201,
            headers: lines(&[
                ("location", "/orders/1"),
                ("link", "</a>"),
                ("link", "</b, c>"),
                ("cache-control", "max-age=9"),
            ]),
            body: b"\0\xff".to_vec(),
        };
        let expected = Replay {
            status: 201,
            headers: vec![("idempotent-replayed".into(), "true".into()), ("cache-control".into(), "no-store".into())],
            stored_headers: lines(&[("location", "/orders/1"), ("link", "</a>"), ("link", "</b, c>")]),
            body: b"\0\xff".to_vec(),
        };
        assert_eq!(replay(stored, &reads(None), "idempotent-replayed"), Some(expected));
    }

    #[test]
    fn no_cache_may_keep_a_replay() {
        let rows: [(&[&str], bool); 6] = [
            (&[], true),
            (&["private, max-age=60"], true),
            (&["no-cache"], true),
            (&["no-storeroom, x=\"no-store\""], true),
            (&["no-store"], false),
            (&["private", "must-revalidate , No-Store"], false),
        ];
        for (values, is_ours) in rows {
            let stored: Vec<_> = values.iter().map(|value| ("cache-control", *value)).collect();
            let replay = replayed(200, &stored, b"", &reads(None)).expect("it is readable");
            let own = replay.headers.iter().filter(|(name, _)| name == "cache-control").count();
            let expected = if is_ours { (1, 0) } else { (0, values.len()) };
            assert_eq!((own, replay.stored_headers.len()), expected, "{values:?}");
        }
    }

    #[test]
    fn a_marker_that_an_upstream_set_is_replaced() {
        let replay = replayed(200, &[("idempotent-replayed", "false")], b"", &reads(None)).expect("it is readable");
        assert_eq!(replay.stored_headers, []);
    }

    #[test]
    fn some_answers_have_no_content() {
        for (status, is_head, bytes) in
            [(200, false, 1), (200, true, 0), (204, false, 0), (205, false, 0), (304, false, 0)]
        {
            let client = Client { is_head, accept_encoding: None };
            let replay = replayed(status, &[("content-encoding", "br")], b"x", &client).expect("it is readable");
            assert_eq!((replay.status, replay.body.len()), (status, bytes), "{status} {is_head}");
        }
    }

    const CONTENT: &[u8] = b"{\"id\":\"\xc3\xa9\"}";

    #[test]
    fn gzip_is_for_those_who_read_it() {
        let zipped = gzip::tests::encode(CONTENT, 0, b"");
        let rows = [
            (Some("gzip"), true),
            (Some("GZip, br"), true),
            (Some("br, x-gzip ; q=0.5"), true),
            (Some("*"), true),
            (Some("gzip;q=0.001"), true),
            (Some("identity"), false),
            (Some(""), false),
            (Some("gzip;q=0"), false),
            (Some("gzip;q=0, *"), false),
            (Some("*;q=0.0"), false),
            (Some("gzip;q=high"), false),
            (Some("br, deflate"), false),
            (None, false),
        ];
        let headers =
            [("content-encoding", "gzip"), ("etag", "\"1\""), ("content-digest", "x"), ("vary", "accept-encoding")];
        for (accept_encoding, as_stored) in rows {
            let replay = replayed(201, &headers, &zipped, &reads(accept_encoding)).expect("it is readable");
            let (body, headers) = match as_stored {
                true => (&zipped[..], lines(&headers)),
                false => (CONTENT, lines(&[("etag", "W/\"1\""), ("vary", "accept-encoding")])),
            };
            assert_eq!((&replay.body[..], replay.stored_headers), (body, headers), "{accept_encoding:?}");
        }
    }

    #[test]
    fn what_the_client_cannot_read_is_not_sent() {
        let zipped = gzip::tests::encode(CONTENT, 0, b"");
        type Row<'a> = (&'a [&'a str], &'a [u8], Option<&'a str>, bool);
        let rows: [Row<'_>; 11] = [
            (&["br"], b"x", Some("br"), true),
            (&["br"], b"x", Some("gzip"), false),
            (&["br"], b"x", None, true),
            (&["gzip, br"], b"x", Some("br, gzip"), true),
            (&["gzip", "br"], b"x", Some("br"), false),
            (&["gzip", "gzip"], &zipped, Some("identity"), false),
            (&["gzip"], b"no gzip", Some("identity"), false),
            (&["gzip"], b"no gzip", None, true),
            (&["identity"], b"x", Some("identity"), true),
            (&[""], b"x", Some(""), true),
            (&["br"], b"", Some("identity"), true),
        ];
        for (codings, body, accept_encoding, is_sent) in rows {
            let headers: Vec<_> = codings.iter().map(|coding| ("content-encoding", *coding)).collect();
            let replay = replayed(200, &headers, body, &reads(accept_encoding));
            let as_stored = is_sent.then(|| (body.to_vec(), lines(&headers)));
            assert_eq!(
                replay.map(|replay| (replay.body, replay.stored_headers)),
                as_stored,
                "{codings:?} {accept_encoding:?}"
            );
        }
    }

    #[test]
    fn what_unfolds_to_too_much_is_not_sent_to_those_who_cannot_read_it() {
        let zipped = gzip::tests::encode(&vec![0; DECODED_BYTES_MAX + 1], 0, b"");
        assert!(zipped.len() < 256 * 1024);
        assert_eq!(replayed(200, &[("content-encoding", "gzip")], &zipped, &reads(Some("identity"))), None);
        assert!(replayed(200, &[("content-encoding", "gzip")], &zipped, &reads(Some("gzip"))).is_some());
    }
}
