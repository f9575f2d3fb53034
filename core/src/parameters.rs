//! Values out of a query and out of the `cookie` header, in one spelling each, as most servers read them.

use std::borrow::Cow;

use crate::normalize::percent_code;

/// The first parameter of that decoded name in a query (`a=1&b=2`). Names and values are decoded as forms are: percent
/// codes, and `+` for a space. A malformed percent code stands for itself.
pub fn query<'q>(query: &'q str, name: &str) -> Option<Cow<'q, [u8]>> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(raw_name, _)| *decoded(raw_name) == *name.as_bytes()).map(|(_, value)| decoded(value))
}

fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text.as_bytes());
    }
    let spaced = text.replace('+', " ");
    let (mut bytes, mut rest) = (Vec::with_capacity(spaced.len()), spaced.as_str());
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let (byte, tail) = percent_code(after).unwrap_or((b'%', after));
        bytes.push(byte);
        rest = tail;
    }
    bytes.extend_from_slice(rest.as_bytes());
    Cow::Owned(bytes)
}

/// The first cookie of that name in a `cookie` header (RFC 6265 §4.2), without quotes around its value.
pub fn cookie<'h>(header: &'h [u8], name: &str) -> Option<&'h [u8]> {
    let mut pairs = header.split(|byte| *byte == b';').filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at_checked(equals)?;
        Some((name.trim_ascii(), value.get(1..)?.trim_ascii()))
    });
    pairs.find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| unquoted(value))
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_found_however_its_name_is_spelled_and_decoded_once() {
        let rows: [(&str, Option<&[u8]>); 14] = [
            ("", None),
            ("k", Some(b"")),
            ("k=", Some(b"")),
            ("k=v", Some(b"v")),
            ("a=1&k=v&k=w", Some(b"v")),
            ("%6B=v", Some(b"v")),
            ("%6b=%76", Some(b"v")),
            ("k=a+b%2Bc", Some(b"a b+c")),
            ("k=a=b", Some(b"a=b")),
            ("k=%2541", Some(b"%41")),
            ("k=%zz%4&x", Some(b"%zz%4")),
            ("k=%ff%00", Some(b"\xff\0")),
            ("K=v", None),
            ("ak=v&=k", None),
        ];
        for (text, expected) in rows {
            assert_eq!(query(text, "k").as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_cookie_is_the_first_of_its_name() {
        let rows: [(&str, Option<&str>); 10] = [
            ("", None),
            ("sid", None),
            ("sid=v", Some("v")),
            ("a=1; sid=v; sid=w", Some("v")),
            ("a=1;sid=v", Some("v")),
            ("a=1; sid = \"v\" ", Some("v")),
            ("sid=", Some("")),
            ("sid=a=b", Some("a=b")),
            ("SID=v", None),
            ("xsid=v; a=sid=v", None),
        ];
        for (text, expected) in rows {
            assert_eq!(cookie(text.as_bytes(), "sid"), expected.map(str::as_bytes), "{text}");
        }
    }
}
