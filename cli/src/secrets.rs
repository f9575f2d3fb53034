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
    let (mut depth, mut scan) = (0_usize, Scan::default());
    for (place, char) in text.char_indices() {
        let in_string = scan.next(char);
        match char {
            _ if in_string => {}
            '{' | '[' => depth = depth.saturating_add(1),
            '}' | ']' if depth <= 1 => return place,
            '}' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return place,
            _ => {}
        }
    }
    text.len()
}

/// Members' names stay: a string that a colon follows.
fn push_masked(text: &str, shown: &mut String) {
    let (mut scan, mut is_value) = (Scan::default(), false);
    for char in text.chars() {
        let in_string = scan.next(char);
        match char {
            ':' if !in_string => is_value = true,
            ',' | '{' if !in_string => is_value = false,
            _ => {}
        }
        shown.push(if in_string && is_value && !char.is_control() { '*' } else { char });
    }
}

/// Follows a text into its strings and out of them.
#[derive(Default)]
struct Scan {
    in_string: bool,
    is_escaped: bool,
}

impl Scan {
    /// Whether the character is in a string, between its quotation marks.
    fn next(&mut self, char: char) -> bool {
        let was_escaped = self.is_escaped;
        self.is_escaped = self.in_string && char == '\\' && !was_escaped;
        if char == '"' && !was_escaped {
            self.in_string = !self.in_string;
            return false;
        }
        self.in_string
    }
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
            (r#"{"credentials": {"password": "cut"#, r#"{"credentials": {"password": "***"#),
            (r#"{"header": "credentials", "a": "b"}"#, r#"{"header": "credentials", "a": "b"}"#),
            ("{}", "{}"),
        ];
        for (text, shown) in rows {
            assert_eq!(masked(text), shown);
        }
    }
}
