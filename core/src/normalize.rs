//! One spelling for each host and path, so that no spelling of a request escapes a route's limits.
//! Follows RFC 3986 §6.2.2 (case, percent-encoding and dot-segment normalisation) and merges slashes.

use std::borrow::Cow;

/// Lower case, without port and final dot. The empty string stands for a missing host.
pub fn host(authority: &str) -> String {
    let without_user = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = without_port(without_user.trim());
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Drops `:443` from `name:443` and `[::1]:443`, but nothing from a bare IPv6 address.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => authority,
    }
}

/// What counts as the same path, besides what RFC 3986 says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    /// What a slash at the end means.
    pub trailing_slash: TrailingSlash,
    /// What the case of ASCII letters means.
    pub case: PathCase,
}

/// What a slash at the end of a path means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrailingSlash {
    /// `/a/` and `/a` are two paths.
    Distinct,
    /// `/a/` is `/a`.
    #[default]
    Ignore,
}

/// What the case of the ASCII letters of a path means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathCase {
    /// `/A` is `/a`.
    Insensitive,
    /// `/A` and `/a` are two paths.
    #[default]
    Sensitive,
}

/// The path of a target by the default rules; see [`target`].
pub fn path(text: &str) -> String {
    target(text, PathRules::default()).path.into_owned()
}

/// A request target in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The path in its one spelling: unreserved percent codes decoded, the others in upper case, and what no path may hold
    /// as it is encoded; backslashes taken for slashes, and duplicate slashes merged; dot segments resolved, encoded ones too. Always starts with a slash.
    pub path: Cow<'static, str>,
    /// The query as it came, without the question mark; empty when there is none.
    pub query: &'a str,
    /// Whether the path held a percent sign without two hex digits. It is taken as a literal percent sign, which servers
    /// may read otherwise.
    pub is_malformed: bool,
}

/// Takes a request target apart: `/path?query` or the absolute form, a fragment dropped.
pub fn target(text: &str, rules: PathRules) -> Target<'_> {
    let without_fragment = text.split_once('#').map_or(text, |(before, _)| before);
    let (raw, query) = without_fragment.split_once('?').unwrap_or((without_fragment, ""));
    let (encoded, is_malformed) = one_encoding(raw_path(raw));
    let mut path = resolve_segments(&encoded, rules.trailing_slash);
    if rules.case == PathCase::Insensitive {
        path.to_mut().make_ascii_lowercase();
    }
    Target { path, query, is_malformed }
}

/// The path of an absolute-form target, or the target itself.
fn raw_path(target: &str) -> &str {
    let starts_with = |scheme: &str| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    if !starts_with("http://") && !starts_with("https://") {
        return target;
    }
    let after_scheme = target.split_once("://").map_or("", |(_, rest)| rest);
    after_scheme.find('/').and_then(|start| after_scheme.get(start..)).unwrap_or("/")
}

/// The path with each byte in its one spelling, and whether a percent code was malformed.
fn one_encoding(path: &str) -> (String, bool) {
    let mut encoded = String::with_capacity(path.len());
    let (mut rest, mut is_malformed) = (path, false);
    while let Some((before, after)) = rest.split_once('%') {
        push_raw(&mut encoded, before);
        match percent_code(after) {
            Some((byte, tail)) => {
                push_byte(&mut encoded, byte, is_unreserved);
                rest = tail;
            }
            None => {
                is_malformed = true;
                encoded.push_str("%25");
                rest = after;
            }
        }
    }
    push_raw(&mut encoded, rest);
    (encoded, is_malformed)
}

/// The byte that the two hex digits after a percent sign mean, and what follows them.
pub(crate) fn percent_code(after_percent: &str) -> Option<(u8, &str)> {
    let digits = after_percent.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some((u8::from_str_radix(digits, 16).ok()?, after_percent.get(2..)?))
}

/// A backslash is a slash: browsers and proxies take it for one (WHATWG URL), and it may not spell a path anew.
fn push_raw(encoded: &mut String, text: &str) {
    let slashed = |byte: u8| if byte == b'\\' { b'/' } else { byte };
    text.bytes().for_each(|byte| push_byte(encoded, slashed(byte), is_path_byte));
}

fn push_byte(encoded: &mut String, byte: u8, stands_for_itself: impl Fn(u8) -> bool) {
    match stands_for_itself(byte) {
        true => encoded.push(char::from(byte)),
        false => {
            let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
            encoded.extend(['%', digit(byte >> 4), digit(byte & 0xf)]);
        }
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// The characters of a path segment (RFC 3986 §3.3) and the slash.
fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte)
}

fn resolve_segments(path: &str, trailing_slash: TrailingSlash) -> Cow<'static, str> {
    let mut resolved = String::with_capacity(path.len());
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => resolved.truncate(resolved.rfind('/').unwrap_or(0)),
            _ => resolved.extend(["/", segment]),
        }
    }
    if resolved.is_empty() {
        return Cow::Borrowed("/");
    }
    let is_directory = matches!(path.rsplit('/').next(), Some("" | "." | ".."));
    if trailing_slash == TrailingSlash::Distinct && is_directory {
        resolved.push('/');
    }
    Cow::Owned(resolved)
}

/// The segments of a normalised path: none of `/`; the last of `/a/` is empty.
pub(crate) fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    let inner = path.strip_prefix('/').filter(|inner| !inner.is_empty());
    inner.into_iter().flat_map(|inner| inner.split('/'))
}

/// One spelling of a header that may have stood on several lines: hosts join them by `,` or by `, `, so blanks behind
/// commas say nothing.
pub(crate) fn joined(value: &[u8]) -> Cow<'_, [u8]> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let has_blanks = value.windows(2).any(|pair| matches!(pair, [b',', second] if is_blank(second)));
    if !has_blanks {
        return Cow::Borrowed(value);
    }
    let mut kept = Vec::with_capacity(value.len());
    for byte in value {
        if !(is_blank(byte) && kept.last() == Some(&b',')) {
            kept.push(*byte);
        }
    }
    Cow::Owned(kept)
}

/// The same for a header's value that a policy names.
pub(crate) fn joined_text(text: &str) -> String {
    String::from_utf8_lossy(&joined(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_is_one_path() {
        let rows = [
            ("/v1/login", "/v1/login"),
            ("//v1//login", "/v1/login"),
            ("/./v1/./login", "/v1/login"),
            ("/v1/x/../login", "/v1/login"),
            ("/v1/%6Cogin", "/v1/login"),
            ("/v1/%6cogin?x=/y", "/v1/login"),
            ("/v1/%2e%2E/v1/login", "/v1/login"),
            ("/../../v1/login", "/v1/login"),
            ("/v1/login#top", "/v1/login"),
            ("http://api.example.com/v1/login", "/v1/login"),
            ("HTTPS://api.example.com", "/"),
            ("/v1/login/", "/v1/login"),
            ("/v1/a%2fb", "/v1/a%2Fb"),
            ("/v1/%zz%4", "/v1/%25zz%254"),
            ("/caf\u{e9}/%c3", "/caf%C3%A9/%C3"),
            ("/caf%c3%A9", "/caf%C3%A9"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/{x}|\"<>^`", "/%7Bx%7D%7C%22%3C%3E%5E%60"),
            ("/v1\\login", "/v1/login"),
            ("\\v1\\.\\x\\..\\login\\", "/v1/login"),
            ("/v1%5clogin", "/v1%5Clogin"),
            ("/a\t\r\n\0", "/a%09%0D%0A%00"),
            ("/%252e%252e/x", "/%252e%252e/x"),
            ("/a;b=c/d:e@f!$&'()*+,=~", "/a;b=c/d:e@f!$&'()*+,=~"),
            ("/%", "/%25"),
            ("/%C", "/%25C"),
            ("/%\u{e9}", "/%25%C3%A9"),
            ("*", "/*"),
            ("", "/"),
            ("/..", "/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a"),
        ];
        for (target, expected) in rows {
            assert_eq!(path(target), expected, "{target:?}");
            assert_eq!(path(expected), expected, "normalising twice changes {expected:?}");
        }
    }

    #[test]
    fn a_slash_at_the_end_and_the_case_mean_what_the_rules_say() {
        let (distinct, insensitive) = (TrailingSlash::Distinct, PathCase::Insensitive);
        let rules = |trailing_slash, case| PathRules { trailing_slash, case };
        let both = rules(distinct, insensitive);
        let rows = [
            (rules(distinct, PathCase::Sensitive), "/a/", "/a/"),
            (rules(distinct, PathCase::Sensitive), "/a//?x", "/a/"),
            (rules(distinct, PathCase::Sensitive), "/a/.", "/a/"),
            (rules(distinct, PathCase::Sensitive), "/a/b/%2e%2e", "/a/"),
            (rules(distinct, PathCase::Sensitive), "/a", "/a"),
            (rules(distinct, PathCase::Sensitive), "/", "/"),
            (rules(distinct, PathCase::Sensitive), "", "/"),
            (rules(distinct, PathCase::Sensitive), "//", "/"),
            (rules(distinct, PathCase::Sensitive), "/a/../", "/"),
            (rules(TrailingSlash::Ignore, insensitive), "/V1/Login/", "/v1/login"),
            (rules(TrailingSlash::Ignore, insensitive), "/%4C%c3%89%2F", "/l%c3%89%2f"),
            (both, "/A/", "/a/"),
        ];
        for (rules, text, expected) in rows {
            let expected = if rules.case == insensitive { expected.to_ascii_lowercase() } else { expected.into() };
            assert_eq!(target(text, rules).path, expected, "{text}");
            assert_eq!(target(&expected, rules).path, expected, "normalising twice changes {expected}");
        }
    }

    #[test]
    fn a_target_has_a_query_and_says_when_a_percent_code_is_malformed() {
        let rows = [
            ("/a?b=%zz", "b=%zz", false),
            ("/a?b?c#d?e", "b?c", false),
            ("/a#b?c", "", false),
            ("/a?", "", false),
            ("http://h?x", "x", false),
            ("/%zz?q", "q", true),
            ("/%", "", true),
            ("/%4", "", true),
            ("/%25zz", "", false),
        ];
        for (text, query, is_malformed) in rows {
            let found = target(text, PathRules::default());
            assert_eq!((found.query, found.is_malformed), (query, is_malformed), "{text}");
        }
    }

    #[test]
    fn every_spelling_of_a_host_is_one_host() {
        let rows = [
            ("api.example.com", "api.example.com"),
            ("API.Example.COM:443", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("api.example.com.:8080", "api.example.com"),
            ("user@api.example.com", "api.example.com"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ];
        for (authority, expected) in rows {
            assert_eq!(host(authority), expected, "{authority:?}");
        }
    }

    #[test]
    fn however_a_host_joins_the_lines_of_a_header_the_spelling_is_one() {
        let rows: [(&[u8], &[u8]); 6] = [
            (b"", b""),
            (b"a,b", b"a,b"),
            (b"a, b,\t c", b"a,b,c"),
            (b"a , b", b"a ,b"),
            (b", ", b","),
            (b"\xff,  \xff d", b"\xff,\xff d"),
        ];
        for (value, expected) in rows {
            assert_eq!(*joined(value), *expected, "{value:?}");
        }
    }
}
