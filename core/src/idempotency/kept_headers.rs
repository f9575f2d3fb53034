//! Which header lines of a response are kept for replays: those that describe its content or the resource, never those
//! that describe the one exchange it came in.

/// A header line: its name in lower case, and its value byte for byte.
pub type Line = (String, Vec<u8>);

/// What is kept unless a policy takes it away.
pub const STANDARD: [&str; 13] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "deprecation",
    "etag",
    "last-modified",
    "link",
    "location",
    "sunset",
    "vary",
];

/// What is kept of a response whose content is not: it tells the client where its resource is.
pub const SEALED: [&str; 2] = ["etag", "location"];

/// What no policy can add. A replayed cookie or challenge is a leak, a replayed quota or date is a lie, and the rest
/// belongs to a connection that is gone.
const NEVER: [&str; 43] = [
    "age",
    "alt-svc",
    "authentication-info",
    "b3",
    "cf-ray",
    "connection",
    "content-length",
    "correlation-id",
    "date",
    "keep-alive",
    "nel",
    "origin-agent-cluster",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "proxy-status",
    "report-to",
    "reporting-endpoints",
    "request-id",
    "retry-after",
    "server",
    "server-timing",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "te",
    "timing-allow-origin",
    "traceparent",
    "traceresponse",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "uber-trace-id",
    "upgrade",
    "via",
    "warning",
    "www-authenticate",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-request-id",
    "x-runtime",
    "x-trace-id",
];

/// The same, by what the name starts with. A colon: pseudo-headers of HTTP/2.
const NEVER_PREFIXES: [&str; 9] =
    [":", "access-control-", "grpc-", "ratelimit", "x-b3-", "x-datadog-", "x-envoy-", "x-rate-limit", "x-ratelimit"];

/// Whether replays never carry a header, whatever the policy says. The name is in lower case.
pub fn is_never_kept(name: &str) -> bool {
    NEVER.contains(&name) || NEVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The lines of a response that are kept: in their order, repeated ones apart and values untouched. `wanted` are the
/// names of the policy, in lower case; headers that `Connection` names are hop by hop, and never kept.
pub fn kept<S: AsRef<str>>(lines: &[(S, Vec<u8>)], wanted: &[impl AsRef<str>]) -> Vec<Line> {
    let lines = || lines.iter().map(|(name, value)| (name.as_ref().to_ascii_lowercase(), value));
    let hop_by_hop: Vec<String> = lines()
        .filter(|(name, _)| name == "connection")
        .flat_map(|(_, value)| String::from_utf8_lossy(value).split(',').map(token).collect::<Vec<_>>())
        .collect();
    lines()
        .filter(|(name, _)| wanted.iter().any(|wanted| wanted.as_ref() == name))
        .filter(|(name, _)| !is_never_kept(name) && !hop_by_hop.contains(name))
        .map(|(name, value)| (name, value.clone()))
        .collect()
}

/// A member of a list, in lower case and without the spaces around it.
pub(super) fn token(member: &str) -> String {
    member.trim_matches([' ', '\t']).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rows: &[(&str, &str)]) -> Vec<Line> {
        rows.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn what_describes_the_content_is_kept_and_the_exchange_is_not() {
        let response = lines(&[
            (":status", "201"),
            ("Content-Type", "text/html; charset=utf-8"),
            ("location", "/orders/1"),
            ("etag", "\"1\""),
            ("link", "</a>; rel=\"next, last\""),
            ("link", "</b>"),
            ("content-disposition", "attachment; filename=\"a, b.pdf\""),
            ("content-length", "5"),
            ("set-cookie", "session=1"),
            ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("retry-after", "1"),
            ("ratelimit", "\"a\";r=1"),
            ("x-request-id", "1"),
            ("access-control-allow-origin", "*"),
            ("connection", "close, Sunset"),
            ("sunset", "Thu, 01 Jan 2099 00:00:00 GMT"),
            ("x-own", "1"),
            ("x-version", "3"),
        ]);
        let wanted: Vec<&str> =
            STANDARD.iter().copied().chain(["x-version", "set-cookie", "date", "ratelimit"]).collect();
        let expected = lines(&[
            ("content-type", "text/html; charset=utf-8"),
            ("location", "/orders/1"),
            ("etag", "\"1\""),
            ("link", "</a>; rel=\"next, last\""),
            ("link", "</b>"),
            ("content-disposition", "attachment; filename=\"a, b.pdf\""),
            ("x-version", "3"),
        ]);
        assert_eq!(kept(&response, &wanted), expected);
        assert_eq!(kept(&response, &SEALED), lines(&[("location", "/orders/1"), ("etag", "\"1\"")]));
    }

    #[test]
    fn nothing_is_both_standard_and_forbidden() {
        assert!(STANDARD.iter().chain(&SEALED).all(|name| !is_never_kept(name)));
        for name in ["ratelimit-policy", "x-ratelimit-limit", "x-rate-limit-reset", "access-control-expose-headers"] {
            assert!(is_never_kept(name), "{name}");
        }
        assert!(!is_never_kept("x-version"));
    }
}
