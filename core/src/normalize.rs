//! One spelling for each host and path, so that no spelling of a request escapes a route's limits.
//! Follows RFC 3986 §6.2.2 (case, percent-encoding and dot-segment normalisation) and merges slashes.

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

/// The path without query and fragment; unreserved percent codes decoded, the others in upper case, and what no path may
/// hold as it is encoded; duplicate slashes merged; dot segments resolved, encoded ones too; no slash at the end. Always
/// starts with a slash.
pub fn path(target: &str) -> String {
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let raw = target.get(..end).unwrap_or_default();
    resolve_segments(&one_encoding(raw_path(raw)))
}

/// The path of an absolute-form target, or the target itself.
fn raw_path(target: &str) -> &str {
    let lower = target.get(..8).unwrap_or(target).to_ascii_lowercase();
    if !lower.starts_with("http://") && !lower.starts_with("https://") {
        return target;
    }
    let after_scheme = target.split_once("://").map_or("", |(_, rest)| rest);
    after_scheme.find('/').and_then(|start| after_scheme.get(start..)).unwrap_or("/")
}

fn one_encoding(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        push_raw(&mut encoded, before);
        match percent_code(after) {
            Some((byte, tail)) => {
                push_byte(&mut encoded, byte, is_unreserved);
                rest = tail;
            }
            None => {
                encoded.push_str("%25");
                rest = after;
            }
        }
    }
    push_raw(&mut encoded, rest);
    encoded
}

fn percent_code(after_percent: &str) -> Option<(u8, &str)> {
    let digits = after_percent.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some((u8::from_str_radix(digits, 16).ok()?, after_percent.get(2..)?))
}

fn push_raw(encoded: &mut String, text: &str) {
    text.bytes().for_each(|byte| push_byte(encoded, byte, is_path_byte));
}

fn push_byte(encoded: &mut String, byte: u8, stands_for_itself: impl Fn(u8) -> bool) {
    match stands_for_itself(byte) {
        true => encoded.push(char::from(byte)),
        false => encoded.push_str(&format!("%{byte:02X}")),
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// The characters of a path segment (RFC 3986 §3.3) and the slash.
fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte)
}

fn resolve_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
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
            ("/{x}|\\\"<>^`", "/%7Bx%7D%7C%5C%22%3C%3E%5E%60"),
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
}
