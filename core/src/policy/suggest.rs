//! What to write instead: guesses for mistakes that people make, so that a message ends with what they meant.
//! Guesses only help; what loads is decided without them.

pub mod time;

use super::node::Node;

/// Longer words are no typos of ours, and comparing them would take long.
const WORD_BYTES_MAX: usize = 40;

/// What other limiters, and our own other fields, call the same.
const FIELD_SYNONYMS: [(&str, &[&str]); 25] = [
    ("burst", &["capacity"]),
    ("by", &["key"]),
    ("count", &["limit"]),
    ("default", &["default_policy"]),
    ("duration", &["window"]),
    ("enabled", &["enforce"]),
    ("fill_interval", &["refill"]),
    ("id", &["name"]),
    ("interval", &["window", "refill"]),
    ("keys", &["key"]),
    ("limit", &["capacity"]),
    ("max", &["limit", "capacity"]),
    ("max_tokens", &["capacity"]),
    ("method", &["methods"]),
    ("on_failure", &["limits_on_store_failure"]),
    ("per", &["window", "refill"]),
    ("period", &["window", "refill"]),
    ("prefix", &["path"]),
    ("quota", &["limit", "capacity"]),
    ("rate", &["refill", "limit"]),
    ("requests", &["limit", "capacity"]),
    ("tokens_per_fill", &["refill"]),
    ("type", &["algorithm"]),
    ("weight", &["cost"]),
    ("window", &["refill"]),
];

const VALUE_SYNONYMS: [(&str, &[&str]); 12] = [
    ("closed", &["deny"]),
    ("draft_11", &["rt"]),
    ("fail_closed", &["deny"]),
    ("fail_open", &["allow"]),
    ("gcra", &["token_bucket"]),
    ("ignore", &["skip"]),
    ("leaky_bucket", &["token_bucket"]),
    ("none", &["off"]),
    ("open", &["allow"]),
    ("rolling_window", &["sliding_window"]),
    ("sliding_log", &["sliding_window"]),
    ("standard", &["rt"]),
];

/// The known field that was meant.
pub fn field<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    synonym(written, known, &FIELD_SYNONYMS).or_else(|| closest(written, known))
}

/// The known word that was meant.
pub fn word<'k>(written: &Node, known: &[&'k str]) -> Option<&'k str> {
    let written = written.as_text()?;
    synonym(written, known, &VALUE_SYNONYMS).or_else(|| closest(written, known))
}

fn synonym<'k>(written: &str, known: &[&'k str], synonyms: &[(&str, &[&str])]) -> Option<&'k str> {
    let written = plain(written)?;
    let (_, meant) = synonyms.iter().find(|(word, _)| *word == written)?;
    meant.iter().find_map(|word| known.iter().find(|known| *known == word)).copied()
}

/// The known word with the fewest edits, when they are few for its length.
pub fn closest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let written = plain(written)?;
    let edits = known.iter().filter_map(|word| Some((edits(&written, &plain(word)?), *word)));
    let (edits, word) = edits.min_by_key(|(edits, _)| *edits)?;
    let tolerated = match written.len().min(word.len()) {
        0..=2 => 0,
        3..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    (edits <= tolerated).then_some(word)
}

/// Lower case with underscores, when it is short.
fn plain(word: &str) -> Option<String> {
    (word.len() <= WORD_BYTES_MAX).then(|| word.to_ascii_lowercase().replace(['-', ' '], "_"))
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one word to the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    let mut previous = None;
    for (row, char) in from.chars().enumerate() {
        let mut current = vec![row.saturating_add(1)];
        for (column, other) in to.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX);
            let next = column.saturating_add(1);
            let replaced = at(&last, column).saturating_add(usize::from(char != *other));
            let mut fewest =
                replaced.min(at(&last, next).saturating_add(1)).min(at(&current, column).saturating_add(1));
            let neighbour = column.checked_sub(1).and_then(|left| to.get(left));
            if neighbour == Some(&char) && previous == Some(*other) {
                fewest = fewest.min(at(&before, column.saturating_sub(1)).saturating_add(1));
            }
            current.push(fewest);
        }
        before = std::mem::replace(&mut last, current);
        previous = Some(char);
    }
    last.last().copied().unwrap_or_default()
}

/// A whole number that was written as a string, with separators, or as a rate whose time stands elsewhere.
pub fn whole(written: &Node) -> Option<String> {
    let text = written.as_text()?.split(['/', ' ']).next().unwrap_or_default().replace(['_', ',', '\''], "");
    let is_number = !text.is_empty() && text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(text)
}

/// A truth value that was written as a string or a number.
pub fn boolean(written: &Node) -> Option<String> {
    let meant = match written {
        Node::Number(number) if *number == 0.0 => false,
        Node::Number(number) if *number == 1.0 => true,
        Node::Text(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => true,
            "false" | "no" | "off" => false,
            _ => return None,
        },
        _ => return None,
    };
    Some(meant.to_string())
}

/// The list of one item that was written without brackets.
pub fn list(written: &Node) -> Option<String> {
    let text = written.as_text().filter(|text| text.len() <= WORD_BYTES_MAX && !text.is_empty())?;
    let items: Vec<String> = text.split(',').map(|item| format!("{:?}", item.trim())).collect();
    Some(format!("[{}]", items.join(", ")))
}

/// A route's host: without scheme, port and path, any host by leaving it out.
pub fn host(written: &str) -> Option<String> {
    if written.len() > 255 {
        return None;
    }
    let after_scheme = written.split_once("://").map_or(written, |(_, rest)| rest);
    let authority = after_scheme.split('/').next().unwrap_or_default();
    let name = authority.split_once(':').map_or(authority, |(name, _)| name);
    let name = match name.strip_prefix('.').or_else(|| name.strip_prefix('*').map(|rest| rest.trim_start_matches('.')))
    {
        Some(suffix) => format!("*.{suffix}"),
        None => name.to_owned(),
    };
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    let is_plain =
        plain.contains('.') && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    (is_plain && name != written).then(|| format!("{name:?}"))
}

/// A route's path: with a slash in front, without scheme and host, `/*` for what other languages write as a pattern.
pub fn path(written: &str) -> Option<String> {
    if written.len() > 255 {
        return None;
    }
    let path = match written.split_once("://") {
        Some((_, rest)) => rest.find('/').and_then(|slash| rest.get(slash..)).unwrap_or("/"),
        None => written,
    };
    let path = path.trim_start_matches('^').trim_end_matches('$').split(['?', '#']).next().unwrap_or_default();
    let stem = ["/.*", "/**", ".*", "*"].iter().find_map(|pattern| path.strip_suffix(pattern));
    let (stem, end) = stem.map_or((path, ""), |stem| (stem.trim_end_matches('/'), "/*"));
    let segments: Vec<String> = stem.trim_start_matches('/').split('/').map(segment).collect();
    let path = format!("/{}{end}", segments.join("/"));
    let path = path.replace("//", "/");
    let is_plain = !path.trim_end_matches("/*").contains(['*', '?', '(', '[', '\\', '|']);
    (is_plain && path != written && !written.is_empty()).then(|| format!("{path:?}"))
}

/// `:id` and `<id>` name a parameter elsewhere.
fn segment(segment: &str) -> String {
    let name = segment
        .strip_prefix(':')
        .or_else(|| segment.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')))
        .filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    name.map_or_else(|| segment.to_owned(), |name| format!("{{{name}}}"))
}

/// A method in lower case.
pub fn method(written: &str) -> Option<String> {
    let is_word = (1..=20).contains(&written.len()) && written.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_word.then(|| format!("{:?}", written.to_ascii_uppercase()))
}

/// What other languages call the parts of a key, with the start of those that name something.
const KEY_PARTS: [(&str, &str); 18] = [
    ("address", "client_address"),
    ("authorization", "header:authorization"),
    ("client", "client_address"),
    ("client_ip", "client_address"),
    ("global", "constant:all"),
    ("header", "header:x-api-key"),
    ("hostname", "host"),
    ("ip", "client_address"),
    ("ip_address", "client_address"),
    ("remote_addr", "client_address"),
    ("remote_address", "client_address"),
    ("remote_ip", "client_address"),
    ("source_address", "client_address"),
    ("source_ip", "client_address"),
    ("url", "path"),
    ("uri", "path"),
    ("verb", "method"),
    ("x_forwarded_for", "client_address"),
];
const KEY_KINDS: [&str; 6] = ["header", "metadata", "constant", "cookie", "query", "path"];

/// A part of a key; `loads` says which spellings there are.
pub fn key_part(written: &str, loads: impl Fn(&str) -> bool) -> Option<String> {
    let guess = |text: String| Some(text).filter(|text| text != written && loads(text)).map(|text| format!("{text:?}"));
    let word = plain(written)?;
    if let Some((_, meant)) = KEY_PARTS.iter().find(|(synonym, _)| *synonym == word) {
        return guess((*meant).to_owned());
    }
    let split = written.find([':', '.', '=', ' ']).and_then(|at| written.split_at_checked(at));
    if let Some((kind, rest)) = split {
        let name = rest.get(1..).unwrap_or_default().trim();
        let kind = closest(kind.trim_end_matches('s'), &KEY_KINDS)?;
        let name = if kind == "header" { name.to_ascii_lowercase() } else { name.to_owned() };
        return guess(format!("{kind}:{name}"));
    }
    match closest(written, &["client_address", "method", "host", "path"]) {
        Some(part) => guess(part.to_owned()),
        None if written.contains('-') => guess(format!("header:{}", written.to_ascii_lowercase())),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_means_the_closest_word_and_another_word_means_nothing() {
        let known = ["name", "algorithm", "key", "on_missing_key", "cost", "capacity", "refill"];
        let rows = [
            ("refil", Some("refill")),
            ("re-fill", Some("refill")),
            ("Capacity", Some("capacity")),
            ("capcaity", Some("capacity")),
            ("algoritm", Some("algorithm")),
            ("onMissingKey", Some("on_missing_key")),
            ("keys", Some("key")),
            ("burst", Some("capacity")),
            ("interval", Some("refill")),
            ("colour", None),
            ("x", None),
            ("", None),
        ];
        for (written, meant) in rows {
            assert_eq!(field(written, &known), meant, "{written}");
        }
        assert_eq!(field(&"refill".repeat(10_000), &known), None);
    }

    #[test]
    fn hosts_and_paths_of_other_languages_are_guessed() {
        let hosts = [
            ("https://api.example.com/v1", Some("\"api.example.com\"")),
            ("api.example.com:443", Some("\"api.example.com\"")),
            ("*example.com", Some("\"*.example.com\"")),
            (".example.com", Some("\"*.example.com\"")),
            ("*", None),
            ("api.*.com", None),
            ("", None),
        ];
        for (written, meant) in hosts {
            assert_eq!(host(written).as_deref(), meant, "{written}");
        }
        let paths = [
            ("v1/login", Some("\"/v1/login\"")),
            ("/v1*", Some("\"/v1/*\"")),
            ("/v1/**", Some("\"/v1/*\"")),
            ("^/v1/.*$", Some("\"/v1/*\"")),
            ("https://api.example.com/v1", Some("\"/v1\"")),
            ("/orders/:id/items", Some("\"/orders/{id}/items\"")),
            ("/orders/<id>", Some("\"/orders/{id}\"")),
            ("/v1/login?x=1", Some("\"/v1/login\"")),
            ("/v1/*/items", None),
            ("/v1/(a|b)", None),
            ("", None),
        ];
        for (written, meant) in paths {
            assert_eq!(path(written).as_deref(), meant, "{written}");
        }
    }
}
