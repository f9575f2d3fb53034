//! What makes two requests with one key the same: a hash over the request's head, and one over its body.

use sha2::{Digest, Sha256};

use super::canonical_json::canonical;
use crate::identity::hex;
use crate::normalize;
use crate::policy::{BodyFingerprint, FingerprintRules};

/// Bytes of a SHA-256.
pub(super) const SHA_256_BYTES: usize = 32;

/// Domains keep hashes of different things apart. Their text, and what follows, never changes: it is stored.
const HEAD: &[u8] = b"lockkeeper head 1\0";
const JSON: &[u8] = b"lockkeeper json 1\0";
const NO_JSON: &[u8] = b"lockkeeper bytes 1\0";

/// What counts of a request before its body.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// As sent.
    pub method: &'a str,
    /// Normalised.
    pub host: &'a str,
    /// Normalised, not the route's pattern: `/orders/1` is not `/orders/2`.
    pub path: &'a str,
    /// As sent, without `?`; none is the same as an empty one.
    pub query: &'a str,
    /// The value of each header of [`headers`], in that order. A missing one is not an empty one.
    pub values: &'a [Option<Vec<u8>>],
}

/// The headers that count, in lower case: those of the policy and, where the body is not known in time, its length.
pub fn headers(rules: &FingerprintRules) -> impl Iterator<Item = &str> {
    let length = (rules.body == BodyFingerprint::AtCompletion).then_some("content-length");
    let is_new = |name: &&str| !rules.headers.iter().any(|known| known == name);
    rules.headers.iter().map(String::as_str).chain(length.filter(is_new))
}

/// The hash of a head: 64 lower-case hex digits of SHA-256 over a label, then method, host, path, query and each header
/// with its name. Texts follow their length in 8 bytes, least first; a header's value, without blanks behind its commas,
/// follows a byte, 1, and a 0 stands for a missing one.
pub fn head(rules: &FingerprintRules, head: &Head<'_>) -> String {
    let mut hasher = Sha256::new_with_prefix(HEAD);
    for text in [head.method, head.host, head.path, head.query] {
        push_sized(&mut hasher, text.as_bytes());
    }
    let values = head.values.iter().map(Option::as_deref).chain(std::iter::repeat(None));
    for (name, value) in headers(rules).zip(values) {
        push_sized(&mut hasher, name.as_bytes());
        hasher.update([u8::from(value.is_some())]);
        value.into_iter().for_each(|value| push_sized(&mut hasher, &normalize::joined(value)));
    }
    hex(&hasher.finalize())
}

fn push_sized(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
    hasher.update(bytes);
}

/// Hashes a body piece by piece.
#[derive(Clone)]
pub struct BodyHasher(Kind);

#[derive(Clone)]
enum Kind {
    Bytes(Box<Sha256>),
    Json(Vec<u8>),
    Ignored,
}

impl BodyHasher {
    /// Before the first byte. No body is the same as an empty one: to HTTP they are one message.
    pub fn new(rule: BodyFingerprint) -> BodyHasher {
        BodyHasher(match rule {
            BodyFingerprint::Raw | BodyFingerprint::AtCompletion => Kind::Bytes(Box::default()),
            BodyFingerprint::Json => Kind::Json(Vec::new()),
            BodyFingerprint::Ignored => Kind::Ignored,
        })
    }

    /// Takes the next bytes. For JSON they are kept, so the host bounds what it passes.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Kind::Bytes(hasher) => hasher.update(bytes),
            Kind::Json(body) => body.extend(bytes),
            Kind::Ignored => {}
        }
    }

    /// 64 lower-case hex digits, or nothing when bodies do not count. Bytes are hashed as they are, so that a declared
    /// [digest](super::content_digest) is comparable: a multipart body with a new boundary is another body. A JSON
    /// document is hashed in its canonical form, anything else as bytes under a label of its own.
    pub fn finish(self) -> String {
        let hasher = match self.0 {
            Kind::Bytes(hasher) => *hasher,
            Kind::Json(body) => match canonical(&body) {
                Some(canonical) => Sha256::new_with_prefix(JSON).chain_update(canonical),
                None => Sha256::new_with_prefix(NO_JSON).chain_update(body),
            },
            Kind::Ignored => return String::new(),
        };
        hex(&hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::OverMax;
    use arbtest::arbtest;

    fn rules(body: BodyFingerprint, headers: &[&str]) -> FingerprintRules {
        FingerprintRules {
            body,
            headers: headers.iter().map(|name| (*name).to_owned()).collect(),
            max_body_bytes: 65_536,
            over_max: OverMax::Reject,
            recipe: "0badcafe".into(),
        }
    }

    const HEAD_OF_ROW_0: Head<'_> =
        Head { method: "POST", host: "api.example.com", path: "/orders", query: "a=1&b=2", values: &[] };

    #[test]
    fn anything_that_counts_makes_another_head() {
        let raw = |headers: &[&str]| rules(BodyFingerprint::Raw, headers);
        let value = |value: &str| Some(value.as_bytes().to_vec());
        let base = HEAD_OF_ROW_0;
        let with_header = |name: &str, value: Option<Vec<u8>>| head(&raw(&[name]), &Head { values: &[value], ..base });
        let rows = [
            head(&raw(&[]), &base),
            head(&raw(&[]), &Head { method: "PATCH", ..base }),
            head(&raw(&[]), &Head { host: "api.example.org", ..base }),
            head(&raw(&[]), &Head { path: "/orders/1", ..base }),
            head(&raw(&[]), &Head { path: "/orders/", query: "", ..base }),
            head(&raw(&[]), &Head { query: "b=2&a=1", ..base }),
            head(&raw(&[]), &Head { path: "/ordersa=1", query: "&b=2", ..base }),
            head(&raw(&[]), &Head { host: "api.example.com/", path: "orders", ..base }),
            with_header("x-version", None),
            with_header("x-version", value("")),
            with_header("x-version", value("1")),
            with_header("x-variant", value("1")),
            with_header("x-versio", value("n1")),
            head(&raw(&["a", "b"]), &Head { values: &[value("1"), None], ..base }),
            head(&raw(&["a", "b"]), &Head { values: &[None, value("1")], ..base }),
        ];
        for (index, one) in rows.iter().enumerate() {
            assert_eq!(one.len(), 64);
            assert!(rows.iter().skip(index + 1).all(|other| other != one), "row {index}");
        }
        assert_eq!(head(&raw(&["a"]), &base), with_header("a", None), "a value that was not passed is missing");
    }

    #[test]
    fn the_format_is_the_one_that_is_stored() {
        let stored = "a35bb2ce5f4ed5ee9b9cc2d7296a9d4c3d9a473ca1d171c4f89499366e0f40c7";
        let head = head(
            &rules(BodyFingerprint::Raw, &["x-version"]),
            &Head { values: &[Some(b"2".to_vec())], ..HEAD_OF_ROW_0 },
        );
        assert_eq!(head, stored);
    }

    #[test]
    fn the_length_counts_where_the_body_comes_too_late() {
        let named = |body, own: &[&str]| headers(&rules(body, own)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(named(BodyFingerprint::Raw, &["a"]), ["a"]);
        assert_eq!(named(BodyFingerprint::AtCompletion, &["a"]), ["a", "content-length"]);
        assert_eq!(named(BodyFingerprint::AtCompletion, &["content-length"]), ["content-length"]);
    }

    fn body(rule: BodyFingerprint, pieces: &[&[u8]]) -> String {
        let mut hasher = BodyHasher::new(rule);
        pieces.iter().for_each(|piece| hasher.push(piece));
        hasher.finish()
    }

    #[test]
    fn bodies_count_as_the_policy_says() {
        use BodyFingerprint::{AtCompletion, Ignored, Json, Raw};
        let (one, other) = (&[&br#"{"a":1,"b":2}"#[..]][..], &[&br#"{ "b": 2.0, "#[..], br#""a": 1}"#][..]);
        assert_ne!(body(Raw, one), body(Raw, other));
        assert_eq!(body(Json, one), body(Json, other));
        assert_ne!(body(Json, one), body(Json, &[br#"{"a":1,"b":"2"}"#]));
        assert_ne!(body(Json, &[b"a=1"]), body(Json, &[b"a=1 "]), "what is no JSON counts by its bytes");
        assert_ne!(body(Json, &[br#"{"a":1,"a":1}"#]), body(Json, &[br#"{"a":1}"#]));
        assert_eq!(body(Raw, one), body(AtCompletion, one));
        assert_eq!(body(Ignored, one), "");
        for rule in [Raw, Json, AtCompletion] {
            assert_eq!(body(rule, &[]), body(rule, &[b""]), "{rule:?}: none is empty");
            assert_ne!(body(rule, &[]), body(rule, &[b"{}"]), "{rule:?}");
        }
        let sha_256_of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(body(Raw, &[b"a", b"", b"bc"]), sha_256_of_abc);
    }

    #[test]
    fn a_label_cannot_be_sent() {
        let json = body(BodyFingerprint::Json, &[b"[1]"]);
        assert_ne!(json, body(BodyFingerprint::Json, &[JSON, b"[1e0]"]));
        assert_ne!(json, body(BodyFingerprint::Raw, &[b"[1e0]"]));
    }

    #[test]
    fn pieces_do_not_count() {
        arbtest(|input| {
            let (bytes, cut): (Vec<u8>, usize) = input.arbitrary()?;
            let (first, second) = bytes.split_at(cut.checked_rem(bytes.len()).unwrap_or(0));
            for rule in [BodyFingerprint::Raw, BodyFingerprint::Json] {
                assert_eq!(body(rule, &[&bytes]), body(rule, &[first, second]));
            }
            Ok(())
        })
        .budget_ms(200)
        .run();
    }
}
