//! A response as a record holds it. Other hosts read what one host wrote, over transports that carry only text, so every
//! field is UTF-8.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::kept_headers::Line;
use crate::claim::{Encoding, Kept};

/// A response that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// 200 to 599.
    pub status: u16,
    /// What was [kept](super::kept_headers::kept).
    pub headers: Vec<Line>,
    /// The content, in its content coding.
    pub body: Vec<u8>,
}

/// A response as the fields of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    /// `c`: three digits.
    pub status: String,
    /// `h`: see [`encode_headers`].
    pub headers: String,
    /// `b`: the content, or its base64.
    pub body: String,
    /// `e`: empty, or [`BASE64_MARK`].
    pub encoding: &'static str,
}

/// A response that is not kept: what its record says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// 200 to 599.
    pub status: u16,
    /// Where the client finds what it made: those of [`SEALED`](super::kept_headers::SEALED).
    pub headers: Vec<Line>,
}

impl Sealed {
    /// The response of the fields as they were read; `None` when we did not write them.
    pub fn from_fields(status: &[u8], headers: &[u8]) -> Option<Sealed> {
        Some(Sealed { status: parse_status(status)?, headers: decode_headers(headers)? })
    }

    /// The value of the first line of that name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(known, _)| known == name)?;
        std::str::from_utf8(value).ok()
    }
}

/// Says that a field holds base64.
pub const BASE64_MARK: &str = "base64";

impl Stored {
    /// The fields that are written. A body stays as it is when it is UTF-8.
    pub fn into_fields(self) -> Fields {
        let (body, encoding) = match String::from_utf8(self.body) {
            Ok(text) => (text, ""),
            Err(error) => (BASE64.encode(error.as_bytes()), BASE64_MARK),
        };
        Fields { status: self.status.to_string(), headers: encode_headers(&self.headers), body, encoding }
    }

    /// What the store is told.
    pub fn into_kept(self) -> Kept {
        let Fields { headers, body, encoding, .. } = self.clone().into_fields();
        let encoding = if encoding == BASE64_MARK { Encoding::Base64 } else { Encoding::Plain };
        Kept::Done { status: self.status, headers: headers.into_bytes(), body: body.into_bytes(), encoding }
    }

    /// The response of a record's parts; `None` when we did not write the content.
    pub fn from_kept(status: u16, headers: Vec<Line>, body: &[u8], encoding: Encoding) -> Option<Stored> {
        let body = match encoding {
            Encoding::Plain => body.to_vec(),
            Encoding::Base64 => BASE64.decode(body).ok()?,
        };
        Some(Stored { status, headers, body })
    }

    /// The response of the fields as they were read; `None` when we did not write them. Then the record is corrupt.
    pub fn from_fields(status: &[u8], headers: &[u8], body: Vec<u8>, encoding: &[u8]) -> Option<Stored> {
        let body = match encoding {
            b"" => body,
            _ if encoding == BASE64_MARK.as_bytes() => BASE64.decode(body).ok()?,
            _ => return None,
        };
        Some(Stored { status: parse_status(status)?, headers: decode_headers(headers)?, body })
    }
}

/// The status of a record's field.
pub fn parse_status(field: &[u8]) -> Option<u16> {
    let status = (field.len() == 3).then(|| std::str::from_utf8(field).ok()?.parse().ok())??;
    (200..=599).contains(&status).then_some(status)
}

/// Follows a value's name: the value stands as it is.
const TEXT: u8 = b'=';
/// Follows a value's name: the value is no UTF-8, and stands in base64.
const BINARY: u8 = b'~';

/// Header lines as one text: for each line the name and the value, each after its length. A length is decimal, counts
/// bytes and ends in a colon; between name and value stands `=`, or `~` when the value is in base64. For example
/// `8:location=9:/orders/1`. Nothing separates lines.
pub fn encode_headers(lines: &[Line]) -> String {
    let mut text = String::new();
    for (name, value) in lines {
        let (mark, value) = match std::str::from_utf8(value) {
            Ok(value) => (TEXT, value.to_owned()),
            Err(_) => (BINARY, BASE64.encode(value)),
        };
        text.push_str(&format!("{}:{name}{}{}:{value}", name.len(), char::from(mark), value.len()));
    }
    text
}

/// The lines of such a text; `None` when it is anything but what [`encode_headers`] writes for valid lines.
pub fn decode_headers(mut text: &[u8]) -> Option<Vec<Line>> {
    let mut lines = Vec::new();
    while !text.is_empty() {
        let (name, rest) = sized(text)?;
        let (mark, rest) = rest.split_first()?;
        let (value, rest) = sized(rest)?;
        lines.push((header_name(name)?, header_value(*mark, value)?));
        text = rest;
    }
    Some(lines)
}

/// A text after its length, and what follows it.
fn sized(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (digits, rest) = text.split_at_checked(colon)?;
    let is_plain = digits.iter().all(u8::is_ascii_digit) && (digits == b"0" || digits.first() != Some(&b'0'));
    let bytes = is_plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())??;
    rest.get(1..)?.split_at_checked(bytes)
}

fn header_name(name: &[u8]) -> Option<String> {
    let is_token = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_name = !name.is_empty() && name.iter().all(is_token);
    is_name.then(|| String::from_utf8_lossy(name).into_owned())
}

fn header_value(mark: u8, value: &[u8]) -> Option<Vec<u8>> {
    let is_text = std::str::from_utf8(value).is_ok();
    let value = match mark {
        TEXT if is_text => value.to_vec(),
        BINARY => BASE64.decode(value).ok().filter(|value| std::str::from_utf8(value).is_err())?,
        _ => return None,
    };
    // A line break would let a record add lines to a response.
    (!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbtest::arbtest;

    fn line(name: &str, value: &[u8]) -> Line {
        (name.into(), value.to_vec())
    }

    fn read(fields: &Fields) -> Option<Stored> {
        Stored::from_fields(
            fields.status.as_bytes(),
            fields.headers.as_bytes(),
            fields.body.clone().into_bytes(),
            fields.encoding.as_bytes(),
        )
    }

    #[test]
    fn the_format_is_the_one_that_other_hosts_read() {
        let stored = Stored {
            status: 201,
            headers: vec![
                line("location", b"/orders/1"),
                line("link", b"</a>, </b>"),
                line("link", "é=1:".as_bytes()),
                line("x-empty", b""),
                line("x-latin", b"\xe9"),
            ],
            body: b"{\"id\":1}".to_vec(),
        };
        let fields = stored.clone().into_fields();
        let headers = "8:location=9:/orders/14:link=10:</a>, </b>4:link=5:é=1:7:x-empty=0:7:x-latin~4:6Q==";
        assert_eq!(fields.headers, headers);
        assert_eq!((fields.status.as_str(), fields.body.as_str(), fields.encoding), ("201", "{\"id\":1}", ""));
        assert_eq!(read(&fields), Some(stored));
    }

    #[test]
    fn a_body_that_is_no_text_is_base64() {
        let rows: [(&[u8], &str, &str); 4] =
            [(b"", "", ""), (b"a\0b", "a\0b", ""), ("é".as_bytes(), "é", ""), (b"\x1f\x8b\xff", "H4v/", "base64")];
        for (body, text, encoding) in rows {
            let stored = Stored { status: 200, headers: Vec::new(), body: body.to_vec() };
            let fields = stored.clone().into_fields();
            assert_eq!((fields.body.as_str(), fields.encoding), (text, encoding));
            assert_eq!(read(&fields), Some(stored));
        }
    }

    #[test]
    fn what_we_did_not_write_is_refused() {
        let headers = [
            "8:location",
            "8:location=",
            "8:location=9:/orders/",
            "8:location=9:/orders/12",
            "08:location=1:a",
            "8:location=01:a",
            "+8:location=1:a",
            "8 :location=1:a",
            ":=1:a",
            "0:=1:a",
            "1:A=1:a",
            "1: =1:a",
            "1:a:1:a",
            "1:a=3:a\r\n",
            "1:a=1:\0",
            "1:a~4:YQ==",
            "1:a~3:6Q=",
            "1:a~4:6R==",
            "99999999999999999999:a=1:a",
            "18446744073709551615:a=1:a",
        ];
        for text in headers {
            assert_eq!(decode_headers(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(decode_headers(b"1:a=1:\xe9"), None);
        for status in ["", "99", "199", "600", "2000", "+20", "20x"] {
            assert_eq!(Stored::from_fields(status.as_bytes(), b"", Vec::new(), b""), None, "{status}");
        }
        for (body, encoding) in [("a", "gzip"), ("?", "base64"), ("YQ", "base64"), ("YQ==", "BASE64")] {
            assert_eq!(Stored::from_fields(b"200", b"", body.into(), encoding.as_bytes()), None, "{body} {encoding}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        arbtest(|input| {
            let values: Vec<Vec<u8>> = input.arbitrary()?;
            let is_value = |value: &Vec<u8>| !value.iter().any(|byte| b"\r\n\0".contains(byte));
            let headers = values.into_iter().filter(is_value).map(|value| ("x-any".to_owned(), value)).collect();
            let stored = Stored { status: input.int_in_range(200..=599)?, headers, body: input.arbitrary()? };
            assert_eq!(read(&stored.clone().into_fields()), Some(stored));
            Ok(())
        })
        .budget_ms(300)
        .run();
    }

    #[test]
    fn only_what_is_written_is_read() {
        arbtest(|input| {
            let pieces: Vec<&str> = (0..input.int_in_range(0..=12)?)
                .map(|_| input.choose(&["1:", "a", "=", "~", "0:", "4:", "6Q==", "2:", "é", "\n", "01:"]).copied())
                .collect::<Result<_, _>>()?;
            let text = pieces.concat();
            if let Some(lines) = decode_headers(text.as_bytes()) {
                assert_eq!(encode_headers(&lines), text);
            }
            Ok(())
        })
        .budget_ms(300)
        .run();
    }
}
