//! The Idempotency-Key of a request: a structured-field String as the draft wants it, or bare as most clients send it.

use std::convert::Infallible;
use std::fmt;

use sfv::visitor::{Ignored, parameter_visitor_with};
use sfv::{BareItemFromInput, Parser};

/// Why a value is no key. The text is for the client and repeats nothing of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Neither a String of structured fields nor a bare key, or several lines.
    Malformed,
    /// Fewer bytes than the policy wants.
    TooShort {
        /// The least bytes.
        bytes_min: usize,
    },
    /// More bytes than the policy allows.
    TooLong {
        /// The most bytes.
        bytes_max: usize,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Malformed => formatter.write_str(
                "must be one string in double quotes, or visible ASCII characters without comma, quote and backslash",
            ),
            KeyError::TooShort { bytes_min } => write!(formatter, "must have at least {bytes_min} characters"),
            KeyError::TooLong { bytes_max } => write!(formatter, "must have at most {bytes_max} characters"),
        }
    }
}

impl std::error::Error for KeyError {}

/// The key that a header's value holds; `bytes` are the least and the most that it may have, quotes and escapes not
/// counted. The least is at least 1.
///
/// A value that starts with a double quote is read as RFC 9651 says, parameters ignored; any other one is the key as it
/// stands, and has neither space nor comma, quote or backslash. So `"abc"` and `abc` are one key, and several lines,
/// which hosts join by a comma, are none: only inside of quotes a comma is part of the key.
pub fn parse(value: &[u8], (bytes_min, bytes_max): (usize, usize)) -> Result<String, KeyError> {
    let value = trim_spaces(value);
    let key = match value.first() {
        Some(b'"') => quoted(value).ok_or(KeyError::Malformed)?,
        _ => bare(value).ok_or(KeyError::Malformed)?,
    };
    match key.len() {
        bytes if bytes < bytes_min.max(1) => Err(KeyError::TooShort { bytes_min: bytes_min.max(1) }),
        bytes if bytes > bytes_max => Err(KeyError::TooLong { bytes_max }),
        _ => Ok(key),
    }
}

/// Only spaces: a tab is part of the value, and no value may have one.
fn trim_spaces(mut value: &[u8]) -> &[u8] {
    while let Some((b' ', rest)) = value.split_first() {
        value = rest;
    }
    while let Some((b' ', rest)) = value.split_last() {
        value = rest;
    }
    value
}

fn quoted(value: &[u8]) -> Option<String> {
    let take_text = |item: BareItemFromInput<'_>| {
        let text = match item {
            BareItemFromInput::String(text) => Some(text.into_owned().into()),
            _ => None,
        };
        Ok::<_, Infallible>(parameter_visitor_with(Ignored, move |()| Ok(text)))
    };
    Parser::new(value).parse_item_with_visitor(take_text).ok().flatten()
}

fn bare(value: &[u8]) -> Option<String> {
    let is_bare = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'"' | b'\\');
    if !value.iter().all(is_bare) {
        return None;
    }
    std::str::from_utf8(value).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbtest::arbtest;

    const BYTES: (usize, usize) = (1, 255);

    #[test]
    fn quoted_and_bare_spellings_are_one_key() {
        let rows: [(&str, &str); 12] = [
            ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
            ("\"8e03978e-40d5-43e8-bc93-6894a57f9324\"", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
            ("  abc ", "abc"),
            ("  \"abc\" ", "abc"),
            ("\"abc\";v=1", "abc"),
            ("\"abc\"; v=?0;w=\"x\";x=:YQ==:;y=1.5;z", "abc"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            ("\"a,b\"", "a,b"),
            ("\" a \"", " a "),
            ("order:17/retry=2;x", "order:17/retry=2;x"),
            ("~", "~"),
            ("'a'", "'a'"),
        ];
        for (value, key) in rows {
            assert_eq!(parse(value.as_bytes(), BYTES).as_deref(), Ok(key), "{value:?}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let malformed: [&[u8]; 20] = [
            b"\"a",
            b"\"a\\q\"",
            b"\"a\\",
            b"\"a\"b",
            b"\"a\",\"b\"",
            b"\"a\", \"a\"",
            b"\"a\";",
            b"\"a\";V=1",
            b"\"a\tb\"",
            b"\"\xc3\xa9\"",
            b"\"a\x7f\"",
            b"a,b",
            b"a,a",
            b"a b",
            b"a\tb",
            b"\ta",
            b"a\"b",
            b"a\\b",
            b"\xc3\xa9",
            b"a\0",
        ];
        for value in malformed {
            assert_eq!(parse(value, BYTES), Err(KeyError::Malformed), "{}", value.escape_ascii());
        }
    }

    #[test]
    fn the_bounds_hold_for_the_key_without_its_quotes() {
        let too_short = Err(KeyError::TooShort { bytes_min: 1 });
        for value in ["", "  ", "\"\"", "\"\";v=1"] {
            assert_eq!(parse(value.as_bytes(), (0, 255)), too_short, "{value:?}");
        }
        let of = |bytes: usize| "k".repeat(bytes);
        for (value, bytes, expected) in [
            (of(255), BYTES, Ok(of(255))),
            (of(256), BYTES, Err(KeyError::TooLong { bytes_max: 255 })),
            (format!("\"{}\"", of(255)), BYTES, Ok(of(255))),
            (format!("\"{}\"", of(256)), BYTES, Err(KeyError::TooLong { bytes_max: 255 })),
            (format!("\"{}\"", of(1024)), (1, 1024), Ok(of(1024))),
            (r#""\"\"""#.into(), (2, 2), Ok(r#""""#.into())),
            (of(19), (20, 255), Err(KeyError::TooShort { bytes_min: 20 })),
            (of(20), (20, 255), Ok(of(20))),
        ] {
            assert_eq!(parse(value.as_bytes(), bytes), expected, "{value}");
        }
    }

    #[test]
    fn every_key_has_a_quoted_spelling_and_it_is_the_same_key() {
        arbtest(|input| {
            let value: Vec<u8> = input.arbitrary()?;
            if let Ok(key) = parse(&value, (1, usize::MAX)) {
                assert!(key.bytes().all(|byte| (0x20..=0x7e).contains(&byte)), "{key:?}");
                let spelling = format!("\"{}\"", key.replace('\\', r"\\").replace('"', r#"\""#));
                assert_eq!(parse(spelling.as_bytes(), (1, usize::MAX)), Ok(key));
            }
            Ok(())
        })
        .budget_ms(300)
        .run();
    }
}
