//! Hides what stands under `credentials` before a line of a document is shown: terminals are shared, and logs are kept.
//! It looks at the text alone, since a document that is shown is often one that cannot be read.

/// The text with an asterisk for each character of the strings that are, or are in, the value of a member `credentials`.
pub fn masked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(NAME) {
        shown.extend([before, NAME]);
        let hidden = value_end(behind);
        let (value, after) = behind.split_at_checked(hidden).unwrap_or((behind, ""));
        push_masked(value, &mut shown);
        rest = after;
    }
    shown.push_str(rest);
    shown
}

const NAME: &str = "\"credentials\"";

/// Where the value behind a member's name ends: at the brace that closes it, or at the next member.
fn value_end(text: &str) -> usize {
    let (mut depth, mut string_ends) = (0_usize, 0);
    for (place, char) in text.char_indices() {
        match char {
            _ if place < string_ends => {}
            '"' => string_ends = place.saturating_add(string_bytes(text.get(place..).unwrap_or_default())),
            '{' | '[' => depth = depth.saturating_add(1),
            '}' | ']' if depth <= 1 => return place,
            '}' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return place,
            _ => {}
        }
    }
    text.len()
}

/// The length of the string that a text begins with, its quotation marks included.
fn string_bytes(text: &str) -> usize {
    let mut is_escaped = false;
    for (place, char) in text.char_indices().skip(1) {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return place.saturating_add(1),
            _ => {}
        }
    }
    text.len()
}

/// Members' names stay: strings that a colon follows.
fn push_masked(text: &str, shown: &mut String) {
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        let (before, string) = rest.split_at_checked(start).unwrap_or((rest, ""));
        let (string, behind) = string.split_at_checked(string_bytes(string)).unwrap_or((string, ""));
        let is_name = behind.trim_start().starts_with(':');
        shown.push_str(before);
        // Quotation marks inside are hidden with the rest; those around it keep their places.
        let inside = 1..string.chars().count().saturating_sub(usize::from(string.ends_with('"')));
        let hide =
            |(index, char): (usize, char)| if inside.contains(&index) && !char.is_control() { '*' } else { char };
        match is_name {
            true => shown.push_str(string),
            false => shown.extend(string.chars().enumerate().map(hide)),
        }
        rest = behind;
    }
    shown.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn what_stands_under_credentials_is_hidden_and_nothing_else() {
        let rows = [
            (
                r#"{"credentials": {"user": "me", "passwd": "p}\"w"}, "a": "b"}"#,
                r#"{"credentials": {"user": "**", "passwd": "*****"}, "a": "b"}"#,
            ),
            (r#"{"credentials": "redis://u:p@h", "a": "b"}"#, r#"{"credentials": "*************", "a": "b"}"#),
            (
                r#"{"credentials": {"password": "pw", "password": "ö"}}"#,
                r#"{"credentials": {"password": "**", "password": "*"}}"#,
            ),
            (r#"{"credentials": ["me", "pw"], "a": "b"}"#, r#"{"credentials": ["**", "**"], "a": "b"}"#),
            (r#"{"credentials": {"password": "cut"#, r#"{"credentials": {"password": "***"#),
            (r#"{"header": "credentials", "a": "b"}"#, r#"{"header": "credentials", "a": "b"}"#),
            ("{}", "{}"),
        ];
        for (text, shown) in rows {
            assert_eq!(masked(text), shown);
        }
    }
}
