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

/// The path without query and fragment; unreserved percent codes decoded, the others in upper case; duplicate
/// slashes merged; dot segments resolved, encoded ones too; no slash at the end. Always starts with a slash.
pub fn path(target: &str) -> String {
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let raw = target.get(..end).unwrap_or_default();
    resolve_segments(&decode_unreserved(raw_path(raw)))
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

fn decode_unreserved(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        match percent_code(after) {
            Some((byte, tail)) => {
                push_code(&mut decoded, byte);
                rest = tail;
            }
            None => {
                decoded.push_str("%25");
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

fn percent_code(after_percent: &str) -> Option<(u8, &str)> {
    let digits = after_percent.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some((u8::from_str_radix(digits, 16).ok()?, after_percent.get(2..)?))
}

fn push_code(decoded: &mut String, byte: u8) {
    let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    match unreserved {
        true => decoded.push(char::from(byte)),
        false => decoded.push_str(&format!("%{byte:02X}")),
    }
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
            ("/caf\u{e9}/%c3", "/caf\u{e9}/%C3"),
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
