//! One text for all spellings of a JSON value, so that a retry may order and space its body as it likes.

use crate::order;
use crate::policy::node::Node;

/// The canonical text of a document, in the manner of RFC 8785; `None` when it is none, or none that has one meaning.
///
/// | same | different | has no canonical text |
/// | --- | --- | --- |
/// | white space, order of members | order of items | two members of one name, at any depth |
/// | `1`, `1.0`, `1e0`, `10e-1`; `0`, `-0` | `1`, `"1"`, `true` | a number beyond a double's range, such as `1e999` |
/// | `"é"`, `"\u00e9"`; `"/"`, `"\/"` | `"é"` composed and decomposed | a half of a surrogate pair, bytes that are no UTF-8 |
/// | | a member that is `null`, and none | more than 127 levels, a byte-order mark, text behind the value |
/// | | `9007199254740992`, `9007199254740993` | |
///
/// Members are ordered by the bytes of their names. Numbers are compared as decimals, digit by digit, where RFC 8785
/// would round them to doubles: two long identifiers must not become one.
pub(super) fn canonical(json: &[u8]) -> Option<Vec<u8>> {
    let document = Node::parse(json).ok()?;
    let mut out = Vec::with_capacity(json.len());
    write(&document, &mut NumberLiterals { rest: json }, &mut out)?;
    Some(out)
}

/// Writes a value; the literals are those of its numbers, in the document's order.
fn write(node: &Node, numbers: &mut NumberLiterals<'_>, out: &mut Vec<u8>) -> Option<()> {
    match node {
        Node::Null => out.extend(b"null"),
        Node::Bool(value) => out.extend(value.to_string().bytes()),
        Node::Number(_) => out.extend(decimal(numbers.next()?)?.bytes()),
        Node::Text(text) => serde_json::to_writer(out, text).ok()?,
        Node::List(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                separate(index, out);
                write(item, numbers, out)?;
            }
            out.push(b']');
        }
        Node::Object(members) => write_object(members, numbers, out)?,
    }
    Some(())
}

fn write_object(members: &[(String, Node)], numbers: &mut NumberLiterals<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut written = Vec::with_capacity(members.len());
    for (name, node) in members {
        let mut value = Vec::new();
        write(node, numbers, &mut value)?;
        written.push((name, value));
    }
    let written = order::sorted(written);
    if written.windows(2).any(|pair| matches!(pair, [(first, _), (second, _)] if first == second)) {
        return None;
    }
    out.push(b'{');
    for (index, (name, value)) in written.iter().enumerate() {
        separate(index, out);
        serde_json::to_writer(&mut *out, name).ok()?;
        out.push(b':');
        out.extend(value);
    }
    out.push(b'}');
    Some(())
}

fn separate(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}

/// The number literals of a document that is known to be JSON. The tree has only doubles, which have lost digits.
struct NumberLiterals<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for NumberLiterals<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            match self.rest {
                [b'"', rest @ ..] => self.rest = after_string(rest),
                [b'-' | b'0'..=b'9', ..] => {
                    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                    let end = self.rest.iter().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
                    let (literal, rest) = self.rest.split_at_checked(end)?;
                    self.rest = rest;
                    return std::str::from_utf8(literal).ok();
                }
                [_, rest @ ..] => self.rest = rest,
                [] => return None,
            }
        }
    }
}

fn after_string(mut rest: &[u8]) -> &[u8] {
    loop {
        match rest {
            [b'\\', _, after @ ..] => rest = after,
            [b'"', after @ ..] => return after,
            [_, after @ ..] => rest = after,
            [] => return rest,
        }
    }
}

/// A number as its significant digits and a power of ten: `-1.50` is `-15e-1`. `None` when the exponent is absurd.
fn decimal(literal: &str) -> Option<String> {
    let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_matches('0');
    if significant.is_empty() {
        return Some("0".into());
    }
    let trailing_zeros = digits.len().checked_sub(digits.trim_end_matches('0').len())?;
    let shift = i64::try_from(trailing_zeros).ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let exponent = exponent.parse::<i64>().ok()?.checked_add(shift)?;
    Some(format!("{sign}{significant}e{exponent}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbtest::arbitrary::{Result, Unstructured};
    use arbtest::arbtest;

    fn text(json: &str) -> Option<String> {
        canonical(json.as_bytes()).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn spellings_of_one_value_have_one_text() {
        let rows: [(&str, &[&str]); 12] = [
            (
                r#"{"a":1e0,"b":2e0}"#,
                &[r#"{"b":2,"a":1}"#, "{\n\t\"a\" : 1 , \"b\" : 2.0\r\n}", r#"{"\u0061":1,"b":2}"#],
            ),
            ("1e0", &["1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "1.000"]),
            ("15e-1", &["1.5", "1.50", "15e-1", "0.15E1"]),
            ("-12e2", &["-1200", "-1.2e3"]),
            ("1e1", &["10", "10.0", "1e1"]),
            ("0", &["0", "-0", "0.0", "0e5", "-0.0e-7", "0e99999999999999999999"]),
            ("9007199254740993e0", &["9007199254740993", "9007199254740993.0"]),
            (r#""é""#, &[r#""é""#, r#""\u00e9""#, r#""\u00E9""#]),
            (r#""/\"\\\n😀""#, &[r#""\/\"\\\n😀""#, r#""/\u0022\u005c\u000a\ud83d\ude00""#]),
            (r#"{"":[],"a":{"b":[null,true,false],"c":{}}}"#, &[r#" {"a":{"c":{ },"b":[null , true,false]},"":[]} "#]),
            (r#"{"B":1e0,"a":2e0,"é":3e0}"#, &[r#"{"é":3,"a":2,"B":1}"#]),
            (r#"["1-2e3\"4",7e0]"#, &[r#"["1-2e3\"4",7]"#]),
        ];
        for (expected, spellings) in rows {
            for spelling in spellings {
                assert_eq!(text(spelling).as_deref(), Some(expected), "{spelling}");
            }
        }
    }

    #[test]
    fn different_values_have_different_texts() {
        let groups: [&[&str]; 6] = [
            &["1", r#""1""#, "true", "null", "[1]", "1.0000000000000000000001", "-1", "1e-400", "1e300", "0"],
            &["9007199254740992", "9007199254740993", "9007199254740994"],
            &[r#"{"a":null}"#, "{}", r#"{"a":""}"#, r#"{"a":0}"#, r#"{"a":false}"#, r#"{"A":null}"#],
            &["[1,2]", "[2,1]", "[12]", "[[1],2]", "[1,[2]]"],
            &["\"\u{e9}\"", "\"e\u{301}\""],
            &[r#"{"a":{"b":1}}"#, r#"{"a":1,"b":1}"#, r#"{"a":[{"b":1}]}"#, r#"{"a\":{\"b":1}"#],
        ];
        for group in groups {
            for (index, one) in group.iter().enumerate() {
                let first = text(one).unwrap_or_else(|| panic!("{one} is JSON"));
                for other in group.iter().skip(index + 1) {
                    assert_ne!(Some(&first), text(other).as_ref(), "{one} and {other}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_one_meaning_has_no_text() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(text(&nested(127)).is_some());
        let deep = nested(128);
        let rows = [
            "",
            " ",
            "{",
            "[1,]",
            "{'a':1}",
            r#"{"a":1} x"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"b":{"a":1,"c":2,"a":3}}]"#,
            "1e999",
            "01",
            "+1",
            "NaN",
            r#""\ud83d""#,
            "\u{feff}{}",
            "1e-99999999999999999999",
            &deep,
        ];
        for row in rows {
            assert_eq!(text(row), None, "{row}");
        }
        assert_eq!(canonical(b"\"\xff\""), None);
    }

    /// A value in two spellings: the second with other white space, order and number literals.
    fn spellings(input: &mut Unstructured<'_>, levels: u8) -> Result<(String, String)> {
        Ok(match input.int_in_range(0..=if levels == 0 { 2 } else { 4 })? {
            0 => {
                let (number, zeros) = (input.int_in_range(-50..=5_000_000_i64)?, input.int_in_range(1..=4_usize)?);
                (number.to_string(), format!("{number}.{}e+00", "0".repeat(zeros)))
            }
            1 => {
                let text: &str = input.arbitrary()?;
                let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
                (serde_json::to_string(text).expect("a text is JSON"), format!("\"{escaped}\""))
            }
            2 => ("null".into(), " null\n".into()),
            3 => {
                let items = (0..input.int_in_range(0..=3)?).map(|_| spellings(input, levels.saturating_sub(1)));
                let (first, second): (Vec<_>, Vec<_>) = items.collect::<Result<Vec<_>>>()?.into_iter().unzip();
                (format!("[{}]", first.join(",")), format!("[ {} ]", second.join("\t,\r\n")))
            }
            _ => {
                let count = input.int_in_range(0..=3)?;
                let (mut first, mut second) = (Vec::new(), Vec::new());
                for index in 0..count {
                    let (one, other) = spellings(input, levels.saturating_sub(1))?;
                    first.push(format!("\"{index}\":{one}"));
                    second.push(format!("\"\\u003{index}\" : {other}"));
                }
                second.reverse();
                (format!("{{{}}}", first.join(",")), format!("{{ {} }}", second.join(" , ")))
            }
        })
    }

    #[test]
    fn a_text_is_its_own_canonical_form_whatever_the_spelling() {
        arbtest(|input| {
            let (one, other) = spellings(input, 4)?;
            let canonical_one = text(&one).unwrap_or_else(|| panic!("{one} is JSON"));
            assert_eq!(text(&other).as_ref(), Some(&canonical_one), "{one} and {other}");
            assert_eq!(text(&canonical_one).as_ref(), Some(&canonical_one));
            Ok(())
        })
        .budget_ms(500)
        .run();
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        arbtest(|input| {
            let bytes: Vec<u8> = input.arbitrary()?;
            if let Some(text) = canonical(&bytes) {
                assert_eq!(canonical(&text), Some(text));
            }
            Ok(())
        })
        .budget_ms(300)
        .run();
    }
}
